// Everything about finding vendor libraries: what is loaded, what can be opened, which symbols they have.
#pragma once
#include <link.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "error.h"

namespace hp {

// The dynamic loader's functions, in one place so that tests can put others there.
struct Loader {
  void *(*open)(const char *file, int mode);
  void *(*symbol)(void *handle, const char *name);
  int (*iterate)(int (*visit)(dl_phdr_info *, size_t, void *), void *data);
};
extern Loader loader;

// One name that a runtime goes by.
struct RuntimeName {
  const char *stem;                      // "libcudart"
  bool hashed;                           // wheels rename it: libcudart-1a2b3c4d.so.12
  std::span<const char *const> sonames;  // versioned, newest first
};

struct Library {
  void *handle = nullptr;
  std::string file;
};

struct Symbol {
  const char *name;
  void **target;
  bool required;
};

// STEM.so, STEM.so.N..., and where hashed STEM-HEX.so.N or STEM.HEX.so.N; nothing else that merely begins alike.
bool is_runtime(const char *basename, const RuntimeName &name) noexcept;

// The copies that are loaded, in load order, wherever their files are or were.
std::vector<Library> loaded_copies(const RuntimeName &name);

// Opens a file or soname for good: vendor libraries do not survive being closed. handle is null if it cannot be had;
// the loader's words then are in `why`.
Library open_library(const char *file, Text &why);

// Looks up all symbols; false, naming the first in `why`, when a required one is missing.
bool resolve(const Library &library, std::span<const Symbol> symbols, Text &why) noexcept;

// Grows whenever the process loads a library.
unsigned long long libraries_loaded() noexcept;

}  // namespace hp
