// The command line.
#pragma once
#include <cstdint>
#include <string>

namespace info {

struct Options {
  enum class Action { show, help, version, wrong };
  Action action = Action::show;
  bool json = false;
  uint64_t pin_bytes = 0;    // 0: no trial pin
  uint64_t bench_bytes = 0;  // 0: no benchmark
  std::string plot;          // the SVG file of the benchmark, or ""
};

// Has said on stderr what is wrong when the action is `wrong`.
Options parse_options(int argc, char **argv);

std::string help_text();

}  // namespace info
