// Lives one scenario of a process's life, by name; the exit status tells how it went. Run by test_sim_process.cpp.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "hostpin-sim.h"

namespace {

alignas(4096) char memory[4096];

void *open_runtime(const std::string &file) {
    void *library = dlopen((std::string(SIM_RUNTIMES) + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) _exit(126);
    return library;
}

template <class... A> int call(void *library, const char *name, A... arguments) {
    return reinterpret_cast<int (*)(A...)>(dlsym(library, name))(arguments...);
}

void *loaded = nullptr;
const char *unregister = "cudaHostUnregister";

void *load_and_register() {
    loaded = open_runtime("cudart12/libcudart.so.12");
    if (call(loaded, "cudaHostRegister", static_cast<void *>(memory), sizeof memory, 0u)) _exit(125);
    return loaded;
}

void load_and_register_with_hip() {
    unregister = "hipHostUnregister";
    loaded = open_runtime("amdhip7/libamdhip64.so.7");
    if (call(loaded, "hipHostRegister", static_cast<void *>(memory), sizeof memory, 0u)) _exit(125);
}

// What a careless library does in its destructor. Registered before the runtime is loaded, it runs after its teardown.
void call_too_late() { _exit(call(loaded, unregister, static_cast<void *>(memory))); }

int device_count() {
    int count = 0;
    int code = call(open_runtime("cudart12/libcudart.so.12"), "cudaGetDeviceCount", &count);
    return code ? code : count;
}

int device_count_after_reset() {
    device_count();
    hps_script("devices=9");
    hps_reset();
    return device_count();
}

int late_call(void (*end)(int), int (*at_end)(void (*)()), void (*begin)()) {
    at_end(call_too_late);
    begin();
    end(0);
    return 124;
}

int load_driver() {
    int count = 0;
    return call(open_runtime("cudart12/libcudart.so.12"), "cudaGetDeviceCount", &count);
}

const std::map<std::string, std::function<int()>> scenarios = {
    {"call-after-return", [] { return std::atexit(call_too_late), load_and_register(), 0; }},
    {"call-after-exit", [] { return late_call(std::exit, std::atexit, [] { load_and_register(); }); }},
    {"call-after-quick-exit", [] { return late_call(std::quick_exit, std::at_quick_exit, [] { load_and_register(); }); }},
    {"hip-call-after-exit", [] { return late_call(std::exit, std::atexit, load_and_register_with_hip); }},
    {"return", [] { return load_and_register(), 0; }},
    {"exit", [] { return load_and_register(), std::exit(0), 0; }},
    {"quick-exit", [] { return load_and_register(), std::quick_exit(0), 0; }},
    {"unload-then-quick-exit", [] { return dlclose(load_and_register()), std::quick_exit(0), 0; }},
    {"load-driver", load_driver},
    {"load-driver-found", [] { return open_runtime("cuda/libcuda.so.1"), load_driver(); }},
    {"device-count", device_count},
    {"device-count-after-reset", device_count_after_reset},
};

} // namespace

int main(int, char **arguments) { return scenarios.at(arguments[1])(); }
