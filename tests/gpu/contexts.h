// What several behaviours ask of contexts and of child processes.
#pragma once

#include "libraries.h"

#include <functional>
#include <string>

namespace gpu {

// Devices whose primary context is active. Initialises the driver.
int active_contexts(const Libraries &lib);

// "none", "some": the calling thread's current context, asked of the driver.
const char *current_context(const Libraries &lib);

// Makes device 0's primary context, as the program's main thread would.
void make_context(const Libraries &lib);

// What `body` says in a forked child, or how the child ended without a word.
std::string in_child(const std::function<std::string()> &body);

} // namespace gpu
