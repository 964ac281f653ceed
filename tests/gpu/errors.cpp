// The last error: what a failed call leaves behind, where, and for how long.
#include "behaviour.h"
#include "memory.h"

#include <thread>

namespace gpu {

namespace {

// Leaves 713 behind.
int fail(const Libraries &lib) { return lib.runtime.host_unregister(map_pages(1)); }

std::string kept_until_read(const Libraries &lib) {
    return answer({fail(lib), lib.runtime.peek_at_last_error(), lib.runtime.peek_at_last_error(),
                   lib.runtime.get_last_error(), lib.runtime.get_last_error()});
}

std::string kept_by_success(const Libraries &lib) {
    return answer({fail(lib), lib.runtime.host_register(map_pages(1), page_size(), 0), lib.runtime.get_last_error()});
}

std::string replaced(const Libraries &lib) {
    return answer({fail(lib), lib.runtime.host_unregister(nullptr), lib.runtime.get_last_error(),
                   lib.runtime.get_last_error()});
}

std::string of_each_thread(const Libraries &lib) {
    int elsewhere = -1;
    const int code = fail(lib);
    std::thread([&] { elsewhere = lib.runtime.get_last_error(); }).join();
    return answer({code, elsewhere, lib.runtime.get_last_error()});
}

// A context first, made by a call that succeeds.
std::string none_from_driver(const Libraries &lib) {
    return answer({lib.runtime.free(nullptr), lib.driver.mem_host_unregister(map_pages(1)),
                   lib.runtime.peek_at_last_error()});
}

std::string names(const Libraries &lib) {
    const std::string already = lib.runtime.get_error_name(712), never = lib.runtime.get_error_name(713);
    const bool right = already == "cudaErrorHostMemoryAlreadyRegistered" && never == "cudaErrorHostMemoryNotRegistered";
    return right ? "as documented" : answer({already, never});
}

std::string unknown_name(const Libraries &lib) {
    const char *name = "untouched";
    const int code = lib.driver.get_error_name(12345, &name);
    return answer({lib.runtime.get_error_name(12345), code});
}

constexpr Behaviour behaviours[] = {
    {"error-kept", "failure; peek, peek, get, get", always("713 713 713 713 0"), source::documentation,
     kept_until_read},
    {"error-success", "failure, success; get", always("713 0 713"), source::documentation, kept_by_success},
    {"error-replaced", "failure, another failure; get, get", always("713 1 1 0"), source::documentation, replaced},
    {"error-thread", "failure; get in another thread; get here", always("713 0 713"), source::documentation,
     of_each_thread},
    {"error-driver", "context, failure of the driver API; peek", always("0 713 0"), source::report, none_from_driver},
    {"error-names", "cudaGetErrorName of 712 and 713",
     always("as documented"), source::documentation, names},
    {"error-unknown-name", "cudaGetErrorName and cuGetErrorName of an unknown code",
     always("unrecognized error code 1"), source::measured, unknown_name},
};

} // namespace

std::span<const Behaviour> error_behaviours() { return behaviours; }

} // namespace gpu
