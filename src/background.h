// Threads of the library, and the end of the process, in which its runtimes are torn down and must not be called.
#pragma once

namespace hp {

// Runs run(argument) on a new detached thread that takes no signals of the application. Throws when none can be made.
void start_background(void (*run)(void *), void *argument);

// To be called once a runtime is loaded. From the beginning of exit() on, which is before the runtime's own teardown, no
// driver call is allowed any more; exit() waits a moment for those that are under way.
void watch_for_exit() noexcept;

// To live around every driver call.
class DriverCall {
public:
  DriverCall() noexcept;
  ~DriverCall();
  DriverCall(const DriverCall &) = delete;
  DriverCall &operator=(const DriverCall &) = delete;
  bool allowed() const noexcept { return allowed_; }

private:
  bool allowed_;
};

}  // namespace hp
