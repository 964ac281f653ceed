// Contexts and devices: who makes a context, what goes with one, the runtime beside the driver API, fork.
#include "contexts.h"

#include "behaviour.h"
#include "child.h"
#include "memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace gpu {

int active_contexts(const Libraries &lib) {
    int devices = 0, active = 0;
    lib.driver.init(0);
    lib.driver.device_get_count(&devices);
    for (int device = 0; device < devices; ++device) {
        unsigned flags = 0;
        int one = 0;
        lib.driver.device_primary_ctx_get_state(device, &flags, &one);
        active += one;
    }
    return active;
}

const char *current_context(const Libraries &lib) {
    void *context = nullptr;
    lib.driver.ctx_get_current(&context);
    return context ? "some" : "none";
}

void make_context(const Libraries &lib) {
    if (const int code = lib.runtime.free(nullptr)) throw std::runtime_error("cudaFree(0): " + std::to_string(code));
}

std::string in_child(const std::function<std::string()> &body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t child = fork();
    if (child == 0) {
        const std::string said = body();
        std::_Exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string said(100, '\0');
    const ssize_t length = read(ends[0], said.data(), said.size());
    int status = 0;
    waitpid(child, &status, 0);
    if (length <= 0) return end_of(status);
    said.resize(static_cast<std::size_t>(length));
    return said;
}

namespace {

int pin(const Libraries &lib) { return lib.runtime.host_register(map_pages(1), page_size(), 0); }

std::string none_by_counting(const Libraries &lib) {
    int devices = 0;
    return answer({lib.runtime.get_device_count(&devices), active_contexts(lib)});
}

std::string one_by_registering(const Libraries &lib) {
    const int before = active_contexts(lib);
    return answer({before, pin(lib), active_contexts(lib)});
}

std::string by_set_device(const Libraries &lib) {
    return answer({lib.runtime.set_device(0), active_contexts(lib)});
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

std::string on_last_device(const Libraries &lib) {
    int devices = 0, device = -1;
    lib.runtime.get_device_count(&devices);
    if (devices < 2) throw NotApplicable("one device");
    lib.runtime.set_device(devices - 1);
    const int code = pin(lib);
    lib.runtime.get_device(&device);
    return answer({code, device == devices - 1 ? "same" : "changed", active_contexts(lib)});
}

std::string driver_before_init(const Libraries &lib) {
    return answer({lib.driver.mem_host_register(map_pages(1), page_size(), 0)});
}

std::string driver_without_context(const Libraries &lib) {
    return answer({lib.driver.init(0), lib.driver.mem_host_register(map_pages(1), page_size(), 0)});
}

std::string driver_unregister_without_context(const Libraries &lib) {
    char *memory = map_pages(1);
    make_context(lib);
    const int registered = lib.driver.mem_host_register(memory, page_size(), 0);
    lib.driver.ctx_set_current(nullptr);
    const char *current = current_context(lib);
    return answer({registered, current, lib.driver.mem_host_unregister(memory)});
}

std::string driver_then_runtime(const Libraries &lib) {
    char *memory = map_pages(1);
    make_context(lib);
    return answer({lib.driver.mem_host_register(memory, page_size(), 0),
                   lib.runtime.host_register(memory, page_size(), 0), lib.runtime.host_unregister(memory)});
}

std::string runtime_then_driver(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 0),
                   lib.driver.mem_host_register(memory, page_size(), 0), lib.driver.mem_host_unregister(memory)});
}

std::string unregister_after_reset(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 0), lib.runtime.device_reset(),
                   lib.runtime.host_unregister(memory)});
}

std::string register_after_reset(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 0), lib.runtime.device_reset(),
                   lib.runtime.host_register(memory, page_size(), 0)});
}

// The only reference to the context goes, and what was registered in it with it.
std::string unregister_after_release(const Libraries &lib) {
    char *memory = map_pages(1);
    void *context = nullptr;
    lib.driver.init(0);
    lib.driver.device_primary_ctx_retain(&context, 0);
    lib.driver.ctx_set_current(context);
    const int registered = lib.driver.mem_host_register(memory, page_size(), 0);
    lib.driver.ctx_set_current(nullptr);
    return answer({registered, lib.driver.device_primary_ctx_release(0), lib.driver.mem_host_unregister(memory)});
}

std::string fork_after_init(const Libraries &lib) {
    pin(lib);
    return in_child([&] { return answer({pin(lib)}); });
}

std::string fork_before_init(const Libraries &lib) {
    return in_child([&] { return answer({pin(lib)}); });
}

std::string parent_after_fork(const Libraries &lib) {
    char *memory = map_pages(1);
    const int registered = lib.runtime.host_register(memory, page_size(), 0);
    const std::string child = in_child([] { return answer({"gone"}); });
    return answer({registered, child, lib.runtime.host_unregister(memory)});
}

constexpr Behaviour behaviours[] = {
    {"context-none", "count the devices; active contexts", always("0 0"), source::documentation, none_by_counting},
    {"context-register", "active contexts before, register, after", always("0 0 1"), source::documentation,
     one_by_registering},
    {"context-set-device", "cudaSetDevice(0); active contexts", depending(set_device_creates_context, "0 1", "0 0"),
     source::documentation, by_set_device},
    {"context-thread", "fresh thread: current context, register, current context, active contexts",
     always("none 0 some 1"), source::documentation, in_fresh_thread},
    {"context-last-device", "last device: register, current device, active contexts", always("0 same 1"),
     source::documentation, on_last_device},
    {"driver-before-init", "cuMemHostRegister before cuInit", always("3"), source::measured, driver_before_init},
    {"driver-no-context", "cuInit, cuMemHostRegister with no current context", always("0 201"),
     source::documentation, driver_without_context},
    {"driver-unregister-no-context", "cuMemHostUnregister with no current context", always("0 none 0"),
     source::report, driver_unregister_without_context},
    {"driver-then-runtime", "register by driver, by runtime; unregister by runtime", always("0 712 0"),
     source::assumed, driver_then_runtime},
    {"runtime-then-driver", "register by runtime, by driver; unregister by driver", always("0 712 0"),
     source::assumed, runtime_then_driver},
    {"reset-unregister", "register, cudaDeviceReset, unregister", always("0 0 713"), source::report,
     unregister_after_reset},
    {"reset-register", "register, cudaDeviceReset, register again", always("0 0 0"), source::assumed,
     register_after_reset},
    {"release-unregister", "driver: register, release the context, unregister", always("0 0 713"), source::report,
     unregister_after_release},
    {"fork-after", "register in a child of a process that had initialised",
     unlike_simulation(always("3"), always("abort"), "the simulation ends a process that makes this mistake"),
     source::report, fork_after_init},
    {"fork-before", "register in a child of a process that had not initialised", always("0"), source::report,
     fork_before_init},
    {"fork-parent", "register, a child comes and goes, unregister", always("0 gone 0"), source::assumed,
     parent_after_fork},
};

} // namespace

std::span<const Behaviour> context_behaviours() { return behaviours; }

} // namespace gpu
