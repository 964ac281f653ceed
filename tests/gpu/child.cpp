#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace gpu {

namespace {

int answer_file = STDOUT_FILENO;

[[noreturn]] void become(const Child &child, int output) {
    setpgid(0, 0);
    for (const auto &[name, value] : child.environment) {
        if (value.empty()) unsetenv(name.c_str());
        else setenv(name.c_str(), value.c_str(), 1);
    }
    dup2(output, STDOUT_FILENO);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    if (child.quiet) dup2(null, STDERR_FILENO);
    std::vector<char *> arguments{const_cast<char *>("hostpin-gpu-check")};
    for (const std::string &argument : child.arguments) arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    execv("/proc/self/exe", arguments.data());
    std::_Exit(127);
}

// Everything up to the end of the file; false if the time is up before.
bool read_until_end(int file, int seconds, std::string &text) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::seconds(seconds);
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd wanted{file, POLLIN, 0};
        if (left <= 0 || poll(&wanted, 1, static_cast<int>(left)) == 0) return false;
        char part[4096];
        const ssize_t length = read(file, part, sizeof part);
        if (length <= 0) return true;
        text.append(part, static_cast<std::size_t>(length));
    }
}

} // namespace

std::string run(const Child &child) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    if (process == 0) become(child, ends[1]);
    setpgid(process, process);
    close(ends[1]);
    std::string text;
    const bool in_time = read_until_end(ends[0], child.seconds, text);
    close(ends[0]);
    // A grandchild that hangs would otherwise outlive the check.
    if (!in_time) kill(-process, SIGKILL);
    int status = 0;
    waitpid(process, &status, 0);
    if (!in_time) return "timeout";
    const std::string end = end_of(status);
    if (end == "exit 0") return text;
    return text.empty() ? end : text + ", then " + end;
}

void keep_stdout_for_answer() {
    answer_file = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

void say(const std::string &answer) {
    if (write(answer_file, answer.data(), answer.size()) != static_cast<ssize_t>(answer.size())) std::_Exit(1);
}

std::string end_of(int status) {
    if (!WIFSIGNALED(status)) return "exit " + std::to_string(WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    if (signal == SIGABRT) return "abort";
    const char *name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

} // namespace gpu
