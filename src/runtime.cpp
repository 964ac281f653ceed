#include "runtime.h"

#include <dlfcn.h>

#include <cstring>

namespace hp {

Loader loader = {dlopen, dlsym, dl_iterate_phdr};

namespace {

bool all_of(const char *from, const char *to, const char *set) noexcept {
  return from != to && std::strspn(from, set) >= static_cast<size_t>(to - from);
}

const char *basename_of(const char *path) noexcept {
  const char *slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}

}  // namespace

bool is_runtime(const char *basename, const RuntimeName &name) noexcept {
  const size_t stem = std::strlen(name.stem);
  if (std::strncmp(basename, name.stem, stem) != 0) return false;
  const char *rest = basename + stem;
  const char *so = std::strstr(rest, ".so");
  if (!so) return false;
  const bool hash = name.hashed && (*rest == '-' || *rest == '.') && all_of(rest + 1, so, "0123456789abcdef");
  if (so != rest && !hash) return false;
  const char *version = so + 3;
  return *version == 0 || (*version == '.' && all_of(version + 1, version + std::strlen(version), "0123456789."));
}

std::vector<Library> loaded_copies(const RuntimeName &name) {
  struct Search {
    const RuntimeName &name;
    std::vector<std::string> files;
    bool out_of_memory = false;
  } search{name, {}, false};
  // No exception may pass through the loader's frames.
  auto visit = [](dl_phdr_info *info, size_t, void *data) {
    auto *s = static_cast<Search *>(data);
    try {
      if (info->dlpi_name && is_runtime(basename_of(info->dlpi_name), s->name)) s->files.emplace_back(info->dlpi_name);
    } catch (...) {
      s->out_of_memory = true;
    }
    return 0;
  };
  loader.iterate(visit, &search);
  if (search.out_of_memory) throw std::bad_alloc();
  std::vector<Library> found;
  for (auto &file : search.files)
    if (void *handle = loader.open(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE))
      found.push_back({handle, std::move(file)});
  return found;
}

Library open_library(const char *file, Text &why) {
  Library library;
  // Local, because libamdhip64 brings LLVM and more with it, whose symbols are nobody else's business.
  library.handle = loader.open(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library.handle) {
    const char *words = dlerror();
    why.add("%s", words ? words : "cannot be opened");
    return library;
  }
  library.file = file;
  // The path it was found at, where the loader tells.
  link_map *map = nullptr;
  if (loader.open == dlopen && dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    library.file = map->l_name;
  return library;
}

bool resolve(const Library &library, std::span<const Symbol> symbols, Text &why) noexcept {
  for (const Symbol &s : symbols) {
    *s.target = loader.symbol(library.handle, s.name);
    if (!*s.target && s.required) {
      why.add("%s has no %s", library.file.c_str(), s.name);
      return false;
    }
  }
  return true;
}

unsigned long long libraries_loaded() noexcept {
  unsigned long long adds = 0;
  loader.iterate(
      [](dl_phdr_info *info, size_t, void *data) {
        *static_cast<unsigned long long *>(data) = info->dlpi_adds;
        return 1;
      },
      &adds);
  return adds;
}

}  // namespace hp
