// libhostpin on this runtime: the error, context, capture and process around a call are as they were.
#include "access.h"
#include "behaviour.h"
#include "captures.h"
#include "contexts.h"
#include "hostpin_calls.h"
#include "memory.h"

#include <cstdlib>
#include <thread>

namespace gpu {

namespace {

int pin(const Libraries &lib) { return lib.hostpin.pin(map_pages(1), page_size(), 0); }

int pin_nothing(const Libraries &lib) { return lib.hostpin.pin(map_before_hole(0), page_size(), 0); }

std::string backend(const Libraries &lib) {
    hp_backend_info info{};
    info.struct_size = sizeof info;
    int devices = 0;
    const int code = lib.hostpin.get_backend(&info);
    lib.runtime.get_device_count(&devices);
    return answer({code, info.backend == HP_BACKEND_CUDA ? "cuda" : "another",
                   info.device_count == devices ? "same count" : "another count"});
}

// ---- The last error

std::string clean_error(const Libraries &lib) {
    make_context(lib);
    return answer({pin_nothing(lib), lib.runtime.peek_at_last_error()});
}

std::string clean_error_foreign(const Libraries &lib) {
    char *memory = map_pages(1);
    lib.runtime.host_register(memory, page_size(), 0);
    return answer({lib.hostpin.pin(memory, page_size(), 0), lib.runtime.peek_at_last_error()});
}

std::string clean_error_unregister(const Libraries &lib) {
    char *memory = map_pages(1);
    const int pinned = lib.hostpin.pin(memory, page_size(), 0);
    lib.runtime.host_unregister(memory);
    return answer({pinned, lib.hostpin.unpin(memory), lib.runtime.peek_at_last_error()});
}

// The application has not seen its own failure yet, so a failure must stay there for it.
std::string kept_error(const Libraries &lib) {
    lib.runtime.host_unregister(map_pages(1));
    const int pinned = pin_nothing(lib);
    return answer({pinned, lib.runtime.peek_at_last_error() ? "an error" : "none"});
}

std::string kept_error_success(const Libraries &lib) {
    lib.runtime.host_unregister(map_pages(1));
    return answer({pin(lib), lib.runtime.peek_at_last_error()});
}

// ---- Contexts

std::string looking(const Libraries &lib) {
    hp_backend_info info{};
    info.struct_size = sizeof info;
    return answer({lib.hostpin.get_backend(&info), active_contexts(lib)});
}

std::string first_context(const Libraries &lib) {
    const int before = active_contexts(lib);
    return answer({before, pin(lib), active_contexts(lib), current_context(lib)});
}

std::string in_fresh_thread(const Libraries &lib) {
    make_context(lib);
    std::string said;
    std::thread([&] {
        const char *before = current_context(lib);
        said = answer({before, pin(lib), current_context(lib), active_contexts(lib)});
    }).join();
    return said;
}

// The process works on its last device only; a fresh thread must not wake device 0.
std::string beside_last_device(const Libraries &lib) {
    int devices = 0, code = 0;
    lib.runtime.get_device_count(&devices);
    if (devices < 2) throw NotApplicable("one device");
    lib.runtime.set_device(devices - 1);
    make_context(lib);
    std::thread([&] { code = pin(lib); }).join();
    return answer({code, active_contexts(lib)});
}

std::string after_reset(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.hostpin.pin(memory, page_size(), 0), lib.runtime.device_reset(), lib.hostpin.unpin(memory),
                   lib.hostpin.pin(memory, page_size(), 0), memory_type(lib, memory), lib.hostpin.unpin(memory)});
}

// ---- Stream capture

std::string beside_capture(const Libraries &lib) {
    char *memory = map_pages(1);
    make_context(lib);
    OtherCapture other(lib, capture_global);
    const int pinned = lib.hostpin.pin(memory, page_size(), 0);
    const int ended = lib.hostpin.unpin(memory);
    int mode = capture_global;
    lib.runtime.thread_exchange_stream_capture_mode(&mode);
    return answer({pinned, ended, mode, other.end()});
}

// ---- Fork and exit

std::string in_forked_child(const Libraries &lib) {
    char *memory = map_pages(2);
    const int pinned = lib.hostpin.pin(memory, page_size(), 0);
    const std::string child = in_child([&] {
        return answer({lib.hostpin.pin(memory + page_size(), page_size(), 0), query(lib, memory, page_size()),
                       lib.hostpin.unpin(memory)});
    });
    return answer({pinned, child, query(lib, memory, page_size()), lib.hostpin.unpin(memory)});
}

std::string in_first_child(const Libraries &lib) {
    return in_child([&] { return answer({pin(lib)}); });
}

std::string exit_in_child(const Libraries &lib) {
    return in_child([&] {
        if (pin(lib) != HP_OK) return std::string("not pinned");
        std::exit(0);
    });
}

constexpr Behaviour behaviours[] = {
    {"hp-backend", "backend, count of devices against the runtime's", always("0 cuda same count"), source::contract,
     backend},
    {"hp-error-clean", "a refused register; last error", always("1 0"), source::contract, clean_error},
    {"hp-error-clean-foreign", "register what the runtime registered; last error", always("2 0"), source::contract,
     clean_error_foreign},
    {"hp-error-clean-unregister", "register; runtime unregisters it; unregister; last error", always("0 0 0"),
     source::contract, clean_error_unregister},
    {"hp-error-kept", "an error is pending; a refused register; last error", always("1 an error"), source::contract,
     kept_error},
    {"hp-error-kept-success", "713 is pending; register; last error", always("0 713"), source::contract,
     kept_error_success},
    {"hp-context-none", "look for a backend; active contexts", always("0 0"), source::contract, looking},
    {"hp-context-first", "active contexts, register, active contexts, current context", always("0 0 1 none"),
     source::contract, first_context},
    {"hp-context-thread", "fresh thread: current context, register, current context, active contexts",
     always("none 0 none 1"), source::contract, in_fresh_thread},
    {"hp-context-last-device", "only the last device is in use: register in a fresh thread, active contexts",
     always("0 1"), source::contract, beside_last_device},
    {"hp-reset", "register, cudaDeviceReset, unregister; register again, type, unregister", always("0 0 0 0 1 0"),
     source::contract, after_reset},
    {"hp-capture", "another thread captures, mode global: register, unregister, own mode, end of the capture",
     always("0 0 0 0"), source::contract, beside_capture},
    {"hp-fork", "register; child: register, query, unregister; query, unregister", always("0 -10 1 -10 0 0"),
     source::contract, in_forked_child},
    {"hp-fork-first", "register in a child whose parent had not", always("0"), source::contract, in_first_child},
    {"hp-exit", "exit with a live registration", always("exit 0"), source::contract, exit_in_child},
};

} // namespace

std::span<const Behaviour> process_behaviours() { return behaviours; }

} // namespace gpu
