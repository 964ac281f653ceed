// The one line that the library writes when there is nobody to log to but stderr, and stderr does not work.
#include "devices.h"
#include "scenario.h"

#include <ctime>

namespace {

using namespace scenario;

char memory[page];
int pipe_signals = 0;

void expect_pageable() {
  CHECK_EQUAL(hp_register(memory, sizeof memory, 0), HP_PAGEABLE);
  CHECK(contains(hp_last_error(), "no GPU runtime is usable"));
}

// The program's output descriptor takes the place of stderr; failures are told where that was.
void stderr_is(int file) {
  real::failures = dup(STDERR_FILENO);
  CHECK(dup2(file, STDERR_FILENO) == STDERR_FILENO);
  close(file);
}

int broken_pipe() {
  int ends[2];
  CHECK(pipe(ends) == 0);
  close(ends[0]);
  return ends[1];
}

// SIGPIPE keeps its default, which ends the program.
void stderr_is_a_pipe_without_reader() {
  stderr_is(broken_pipe());
  expect_pageable();
}

void no_handler_sees_the_pipe() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++pipe_signals; };
  CHECK(sigaction(SIGPIPE, &action, nullptr) == 0);
  stderr_is(broken_pipe());
  expect_pageable();
  CHECK_EQUAL(pipe_signals, 0);
  sigset_t blocked;
  CHECK(pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0 && !sigismember(&blocked, SIGPIPE));
  CHECK(write(STDERR_FILENO, "x", 1) < 0);  // the handler does work
  CHECK_EQUAL(pipe_signals, 1);
}

void pending_signal_stays() {
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  CHECK(pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr) == 0);
  stderr_is(broken_pipe());
  CHECK(raise(SIGPIPE) == 0);
  expect_pageable();
  const timespec now{};
  CHECK_EQUAL(sigtimedwait(&pipe_signal, nullptr, &now), SIGPIPE);
  CHECK(hp_register(nullptr, 1, 0) == HP_E_INVALID);
  CHECK_EQUAL(sigtimedwait(&pipe_signal, nullptr, &now), -1);
}

void stderr_is_closed() {
  real::failures = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  expect_pageable();
  CHECK(fcntl(STDERR_FILENO, F_GETFD) == -1);
}

void stderr_is_full() {
  int ends[2];
  CHECK(pipe2(ends, O_NONBLOCK) == 0);
  const std::string some(page, 'x');
  while (write(ends[1], some.data(), some.size()) > 0) {
  }
  stderr_is(ends[1]);
  expect_pageable();
}

void device_of_stderr_is_full() {
  stderr_is(open("/dev/full", O_WRONLY));
  expect_pageable();
}

void stderr_is_read_only() {
  stderr_is(open("/dev/null", O_RDONLY));
  expect_pageable();
}

// Where it works it is one whole line in one write.
void one_whole_line() {
  int ends[2];
  CHECK(pipe2(ends, O_DIRECT) == 0);  // keeps writes apart
  stderr_is(ends[1]);
  expect_pageable();
  char line[4096];
  const ssize_t length = read(ends[0], line, sizeof line);
  CHECK(length > 0);
  const std::string_view text(line, static_cast<std::size_t>(length));
  CHECK(text.starts_with("hostpin: warning: ") && text.find('\n') == text.size() - 1);
}

void off_is_silent() {
  setenv("HOSTPIN_LOG", "off", 1);
  const CapturedStderr captured;
  expect_pageable();
  CHECK(captured.text().empty());
}

void callback_gets_it_instead() {
  static std::string got;
  hp_set_log_callback([](int32_t level, const char *text, void *user) {
    CHECK_EQUAL(level, HP_LOG_WARN);
    CHECK(user == memory);
    got += text;
  }, memory);
  expect_pageable();  // and nothing on stderr, or the case fails
  CHECK(got.starts_with("no GPU runtime is usable") && !contains(got, "\n"));
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"stderr_is_a_pipe_without_reader", stderr_is_a_pipe_without_reader},
                    {"no_handler_sees_the_pipe", no_handler_sees_the_pipe},
                    {"pending_signal_stays", pending_signal_stays},
                    {"stderr_is_closed", stderr_is_closed},
                    {"stderr_is_full", stderr_is_full},
                    {"device_of_stderr_is_full", device_of_stderr_is_full},
                    {"stderr_is_read_only", stderr_is_read_only},
                    {"one_whole_line", one_whole_line},
                    {"off_is_silent", off_is_silent},
                    {"callback_gets_it_instead", callback_gets_it_instead}});
}
