// The machine's device nodes, as libhostpin finds them: none of a vendor's, unless a test says that there are some. So the
// tests mean the same on a machine with a GPU and on one without.
#pragma once

#include <string>
#include <vector>

// The nodes that are there from now on.
void pretend_devices(std::vector<std::string> nodes);

// What libhostpin has asked dlopen for since the program started, without RTLD_NOLOAD.
std::vector<std::string> opened_by_hostpin();
