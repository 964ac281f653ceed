// The frame of the programs that live through scenarios of a process's life, each in a process of its own: on their own
// or on the simulated runtimes.
#pragma once

#include "real_hostpin.h"

#include <hostpin-sim.h>

#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern char **environ;

namespace scenario {

using real::backend;
using real::CapturedStderr;
using real::contains;
using real::find;
using real::map_memory;
using real::open_files;
using real::open_library;
using real::region;
using real::stats;
using real::threads;

constexpr std::size_t page = 4096;
constexpr unsigned patience = 120;  // seconds until a scenario counts as hung, on any machine and under valgrind

inline std::string sim(std::string_view file) { return std::string(SIM_RUNTIMES) + "/" + std::string(file); }

inline const std::string cudart11 = sim("cudart11/libcudart.so.11.0"), cudart12 = sim("cudart12/libcudart.so.12"),
                         cudart13 = sim("cudart13/libcudart.so.13"), cuda = sim("cuda/libcuda.so.1"),
                         hip7 = sim("amdhip7/libamdhip64.so.7");

// Names the runtime for libhostpin's first look. Nothing of the environment is read before that.
inline void use(const std::string &cudart) { setenv("HOSTPIN_CUDART", cudart.c_str(), 1); }

// ---- Child processes

struct Outcome {
  int status = 0;
  std::string output;  // of stdout and stderr

  bool returned(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

inline std::string describe(const Outcome &outcome) {
  std::string text = WIFSIGNALED(outcome.status) ? "signal " + std::to_string(WTERMSIG(outcome.status))
                                                 : "status " + std::to_string(WEXITSTATUS(outcome.status));
  return text + (outcome.output.empty() ? ", no output" : ", output: " + outcome.output);
}

// Ends with 0 and says nothing.
inline void check_clean(const std::string &what, const Outcome &outcome) {
  if (!outcome.returned(0) || !outcome.output.empty()) real::fail(__FILE__, __LINE__, what.c_str(), describe(outcome));
}

// The end of a forked child and what it said until then.
inline Outcome outcome_of(pid_t child, int output) {
  Outcome outcome;
  char text[4096];
  for (ssize_t n; (n = read(output, text, sizeof text)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) outcome.output.append(text, static_cast<std::size_t>(n));
  close(output);
  while (waitpid(child, &outcome.status, 0) != child)
    if (errno != EINTR) real::fail("waitpid", 0, "waitpid", std::strerror(errno));
  return outcome;
}

// Runs body in a forked child that ends with 0 after it. A child that hangs is ended by SIGALRM.
template <class Body>
Outcome in_child(Body body) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(patience);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  return outcome_of(child, ends[0]);
}

// Executes this program with one argument, the name of a role or case. The environment is this one's without the
// library's variables and the loader's search path, and with `variables` ("NAME=VALUE").
[[noreturn]] inline void become(const char *role, const std::vector<std::string> &variables = {}) {
  const auto dropped = [](std::string_view old) {
    return old.starts_with("HOSTPIN_") || old.starts_with("LD_LIBRARY_PATH=");
  };
  std::vector<char *> all;
  for (char **v = environ; *v != nullptr; ++v)
    if (!dropped(*v)) all.push_back(*v);
  for (const std::string &v : variables) all.push_back(const_cast<char *>(v.c_str()));
  all.push_back(nullptr);
  char self[] = "/proc/self/exe";
  char *const arguments[] = {self, const_cast<char *>(role), nullptr};
  execve(self, arguments, all.data());
  _exit(127);
}

inline Outcome run_again(const char *role, const std::vector<std::string> &variables = {}) {
  return in_child([&] { become(role, variables); });
}

// ---- Cases

struct Case {
  std::string_view name;
  void (*run)();
  std::string libraries = {};  // LD_LIBRARY_PATH, which the loader reads before main
  bool once = false;           // slow
};

// With the name of a case runs that; without arguments runs all so many times, each in a process of its own.
inline int run_cases(int argc, char **argv, std::initializer_list<Case> cases, int times = 1) {
  if (argc == 2) {
    for (const Case &one : cases)
      if (one.name == argv[1]) return one.run(), 0;
    dprintf(STDERR_FILENO, "%s: no case %s\n", argv[0], argv[1]);
    return 2;
  }
  int failed = 0;
  for (const Case &one : cases) {
    std::vector<std::string> variables;
    if (!one.libraries.empty()) variables.push_back("LD_LIBRARY_PATH=" + one.libraries);
    for (int i = 0; i < (one.once ? 1 : times); ++i) {
      const Outcome outcome = run_again(one.name.data(), variables);
      if (outcome.returned(0) && outcome.output.empty()) continue;
      ++failed;
      dprintf(STDERR_FILENO, "%s: %s\n", one.name.data(), describe(outcome).c_str());
      break;
    }
  }
  dprintf(STDOUT_FILENO, "%zu cases, %d failed\n", cases.size(), failed);
  return failed == 0 ? 0 : 1;
}

} // namespace scenario
