// A stream capture that another thread holds open.
#pragma once

#include "libraries.h"

#include <latch>
#include <thread>

namespace gpu {

class OtherCapture {
public:
    // Returns when the capture has begun.
    OtherCapture(const Libraries &lib, int mode);
    // What its end says: 0, or 901 when something has broken it.
    int end();

private:
    void capture(const Libraries &lib, int mode);

    std::latch begun_{1}, over_{1};
    int end_code_ = -1;
    std::thread thread_;
};

} // namespace gpu
