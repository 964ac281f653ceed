// How fast: copies from and to pageable, allocated and registered memory, and what registering costs.
#pragma once

#include "libraries.h"

#include <cstddef>
#include <iosfwd>
#include <string>

namespace gpu {

// Measures up to buffers of `largest` bytes, on the current device. JSON, in which a "problem" says which call failed.
std::string measure(const Libraries &lib, std::size_t largest);

// The problem in such a JSON text, or "" where there is none.
std::string problem_of(const std::string &rates);

void print_rates(std::ostream &out, const std::string &rates);
void print_rates_markdown(std::ostream &out, const std::string &rates);

} // namespace gpu
