// What the programs on the vendors' real libraries share: assertions that end the program, symbols by dlsym, and what a
// process owns.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) real::fail(__FILE__, __LINE__, #condition, "is false"); \
  } while (false)

// Equal numbers, shown in hexadecimal too, because Level Zero's codes are.
#define CHECK_EQUAL(actual, expected) real::check_equal(__FILE__, __LINE__, #actual, (actual), (expected))

namespace real {

// Where failures are told: stderr, also while a test has put something else in its place.
inline int failures = STDERR_FILENO;

[[noreturn]] inline void fail(const char *file, int line, const char *what, const std::string &why) {
  dprintf(failures, "%s:%d: %s %s\n", file, line, what, why.c_str());
  std::_Exit(1);
}

template <class A, class E>
void check_equal(const char *file, int line, const char *what, const A &actual, const E &expected) {
  const auto got = static_cast<long long>(actual), want = static_cast<long long>(expected);
  if (got == want) return;
  char text[128];
  std::snprintf(text, sizeof text, "is %lld (0x%llx), not %lld (0x%llx)", got, got, want, want);
  fail(file, line, what, text);
}

inline void *open_library(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(name, 0, "dlopen", dlerror());
  return library;
}

template <class F> F *find(void *library, const char *name) {
  void *address = dlsym(library, name);
  if (address == nullptr) fail(name, 0, "dlsym", dlerror());
  return reinterpret_cast<F *>(address);
}

inline long entries(const char *folder) {
  const std::filesystem::directory_iterator begin(folder);
  return std::distance(begin, std::filesystem::directory_iterator());
}

inline long open_files() { return entries("/proc/self/fd"); }
inline long threads() { return entries("/proc/self/task"); }

// Page-aligned memory, written once.
inline char *map_memory(std::size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap", 0, "mmap", std::strerror(errno));
  std::memset(memory, 1, bytes);
  return static_cast<char *>(memory);
}

// The signal that ends a child which runs body, or 0 if the body returns.
template <class Body> int signal_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::_Exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail("waitpid", 0, "waitpid", std::strerror(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail("child", 0, "the child", "failed");
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// A program's cases by name: `program CASE` runs one.
struct Case {
  std::string_view name;
  void (*run)();
};

template <std::size_t N> int run_case(int argc, char **argv, const Case (&cases)[N]) {
  for (const Case &one : cases)
    if (argc == 2 && one.name == argv[1]) return one.run(), 0;
  std::cerr << "usage: " << argv[0] << " CASE, where CASE is one of:";
  for (const Case &one : cases) std::cerr << ' ' << one.name;
  std::cerr << '\n';
  return 2;
}

} // namespace real
