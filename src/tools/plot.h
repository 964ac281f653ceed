// A picture of the benchmark.
#pragma once
#include <string>

#include "rates.h"

namespace info {

// As SVG. Throws std::system_error if the file cannot be written.
void draw(const Rates &rates, const std::string &file);

}  // namespace info
