// A picture of the benchmark.
#pragma once
#include <string>

#include "rates.h"

namespace info {

// The program that makes PNG of SVG, and whether it is there to be run.
inline constexpr char kConverter[] = "rsvg-convert";
bool has_converter();

// Throws std::system_error if the file cannot be written; leaves it as it is, or not there.
void require_writable(const std::string &file);

// As PNG if the file's name ends in .png, else as SVG. Throws std::system_error if that cannot be written.
void draw(const Rates &rates, const std::string &file);

}  // namespace info
