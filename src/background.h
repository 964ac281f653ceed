// Threads of the library. They call drivers, and must not do so while the process tears its runtimes down.
#pragma once

namespace hp {

// Runs run(argument) on a new detached thread that takes no signals of the application. Throws when none can be made.
void start_background(void (*run)(void *), void *argument);

// Around every driver call: lets nothing but the process's own threads through once exit has begun, and lets exit wait a
// moment for a call of ours that is under way. On the process's own threads it does nothing.
class DriverCall {
public:
  DriverCall() noexcept;
  ~DriverCall();
  DriverCall(const DriverCall &) = delete;
  DriverCall &operator=(const DriverCall &) = delete;

private:
  bool counted_ = false;
};

}  // namespace hp
