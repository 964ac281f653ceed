// What the tests of the simulation share: the vendors' functions by name, fresh memory, a child process.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <utility>

#include "catch.h"
#include "hostpin-sim.h"

constexpr size_t page = 4096;
constexpr size_t mib = size_t{1} << 20;
constexpr size_t gib = size_t{1} << 30;

inline std::string runtime_file(const std::string &folder, const std::string &file) {
    return std::string(SIM_RUNTIMES) + "/" + folder + "/" + file;
}

inline void *open_file(const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) FAIL(dlerror());
    return library;
}

// A vendor function of a loaded library, typed where it is called.
class Library {
  public:
    Library(const std::string &folder, const std::string &file) : handle_(open_file(runtime_file(folder, file))) {}
    explicit Library(const std::string &path) : handle_(open_file(path)) {}

    bool has(const char *name) const { return dlsym(handle_, name) != nullptr; }

    template <class... A> int operator()(const char *name, A... arguments) const {
        auto *function = reinterpret_cast<int (*)(A...)>(dlsym(handle_, name));
        if (!function) FAIL(name << " is missing");
        return function(arguments...);
    }

    const char *text(const char *name, int code) const {
        return reinterpret_cast<const char *(*)(int)>(dlsym(handle_, name))(code);
    }

    void close() { dlclose(std::exchange(handle_, nullptr)); }

  private:
    void *handle_;
};

// Page-aligned memory of its own mapping.
class Memory {
  public:
    explicit Memory(size_t length, int protection = PROT_READ | PROT_WRITE, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
        : length_(length), base_(mmap(nullptr, length, protection, flags | MAP_NORESERVE, fd, 0)) {
        REQUIRE(base_ != MAP_FAILED);
    }
    ~Memory() { munmap(base_, length_); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    void *at(size_t offset = 0) const { return static_cast<char *>(base_) + offset; }

  private:
    size_t length_;
    void *base_;
};

// Every test starts and ends with a driver that is as new.
struct Fresh {
    Fresh() { hps_reset(); }
    ~Fresh() { hps_reset(); }
};

struct Outcome {
    int status;
    std::string output; // of stderr
};

// Runs `body` in a forked child, which ends with what it returns.
template <class Body> Outcome in_child(Body body) {
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        _exit(body());
    }
    close(pipe_ends[1]);
    Outcome outcome{};
    char text[512];
    for (ssize_t n; (n = read(pipe_ends[0], text, sizeof text)) > 0;) outcome.output.append(text, static_cast<size_t>(n));
    close(pipe_ends[0]);
    REQUIRE(waitpid(child, &outcome.status, 0) == child);
    return outcome;
}

inline bool aborted(const Outcome &outcome) { return WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGABRT; }
inline bool returned(const Outcome &outcome, int code) {
    return WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == code;
}
