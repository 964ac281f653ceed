// Registering while a stream is being captured.
#include "captures.h"

#include "behaviour.h"
#include "contexts.h"
#include "memory.h"
#include "stream.h"

namespace gpu {

OtherCapture::OtherCapture(const Libraries &lib, int mode) : thread_([this, &lib, mode] { capture(lib, mode); }) {
    begun_.wait();
}

int OtherCapture::end() {
    over_.count_down();
    thread_.join();
    return end_code_;
}

void OtherCapture::capture(const Libraries &lib, int mode) {
    const Stream stream(lib);
    void *graph = nullptr;
    const int code = lib.runtime.stream_begin_capture(stream.get(), mode);
    begun_.count_down();
    over_.wait();
    end_code_ = code ? code : lib.runtime.stream_end_capture(stream.get(), &graph);
}

namespace {

int pin(const Libraries &lib) { return lib.runtime.host_register(map_pages(1), page_size(), 0); }

std::string beside_other(const Libraries &lib, int mode) {
    make_context(lib);
    OtherCapture other(lib, mode);
    const int code = pin(lib);
    return answer({code, other.end()});
}

std::string relaxed_beside_other(const Libraries &lib) {
    make_context(lib);
    OtherCapture other(lib, capture_global);
    int mode = capture_relaxed;
    const int exchanged = lib.runtime.thread_exchange_stream_capture_mode(&mode);
    const int code = pin(lib);
    const int back = lib.runtime.thread_exchange_stream_capture_mode(&mode);
    return answer({exchanged, code, back, mode, other.end()});
}

std::string unregister_beside_other(const Libraries &lib) {
    char *memory = map_pages(1);
    const int registered = lib.runtime.host_register(memory, page_size(), 0);
    OtherCapture other(lib, capture_global);
    const int code = lib.runtime.host_unregister(memory);
    return answer({registered, code, other.end()});
}

std::string in_own(const Libraries &lib, int mode) {
    const Stream stream(lib);
    void *graph = nullptr;
    return answer({lib.runtime.stream_begin_capture(stream.get(), mode), pin(lib),
                   lib.runtime.stream_end_capture(stream.get(), &graph)});
}

constexpr Behaviour behaviours[] = {
    {"capture-global", "another thread captures, mode global: register; end of the capture", always("900 901"),
     source::report, [](const Libraries &lib) { return beside_other(lib, capture_global); }},
    {"capture-relaxed-here", "the same with this thread's mode relaxed: exchange, register, exchange, mode; end",
     always("0 0 0 2 0"), source::report, relaxed_beside_other},
    {"capture-thread-local", "another thread captures, mode thread-local: register; end", always("0 0"),
     source::documentation, [](const Libraries &lib) { return beside_other(lib, capture_thread_local); }},
    {"capture-relaxed", "another thread captures, mode relaxed: register; end", always("0 0"), source::documentation,
     [](const Libraries &lib) { return beside_other(lib, capture_relaxed); }},
    {"capture-unregister", "register; another thread captures, mode global: unregister; end", always("0 900 901"),
     source::assumed, unregister_beside_other},
    {"capture-own", "own capture, mode thread-local: begin, register, end", always("0 900 901"),
     source::documentation, [](const Libraries &lib) { return in_own(lib, capture_thread_local); }},
    {"capture-own-relaxed", "own capture, mode relaxed: begin, register, end", always("0 0 0"),
     source::documentation, [](const Libraries &lib) { return in_own(lib, capture_relaxed); }},
};

} // namespace

std::span<const Behaviour> capture_behaviours() { return behaviours; }

} // namespace gpu
