// Counts what libhostpin calls in the vendors' real libraries. The program's own dlsym, which comes before libc's in
// the order of look-up, gives libhostpin a counting thunk for each function it asks for; everybody else gets what libc
// says.
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
