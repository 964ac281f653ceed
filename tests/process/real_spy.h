// Counts what libhostpin calls in the vendors' real libraries: where it asks dlsym for a function, it gets a counting
// thunk in front of it.
#pragma once

#include <array>
#include <cstddef>

namespace spy {

// Calls of the function of this name since the program started, or of all functions.
long calls(const char *name);
long calls();

// The arguments of the latest call.
std::array<std::size_t, 6> latest_arguments(const char *name);

} // namespace spy
