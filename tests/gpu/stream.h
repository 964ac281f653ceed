// A stream of the runtime.
#pragma once

#include "libraries.h"

namespace gpu {

class Stream {
public:
    explicit Stream(const Libraries &lib) : lib_(lib), code_(lib.runtime.stream_create(&stream_)) {}
    ~Stream() {
        if (code_ == 0) lib_.runtime.stream_destroy(stream_);
    }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void *get() const { return stream_; }
    int code() const { return code_; } // of making it

private:
    const Libraries &lib_;
    void *stream_ = nullptr;
    int code_;
};

} // namespace gpu
