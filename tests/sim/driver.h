// What the simulated runtimes share: the driver in libhostpin-sim.so.0, seen from a runtime.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#define SIM_API __attribute__((visibility("default")))

namespace sim {

enum class Vendor { cuda, hip };

// Codes that CUDA and HIP have in common.
enum Code : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    unloading = 4,
    stub_library = 34,
    insufficient_driver = 35,
    no_device = 100,
    invalid_device = 101,
    invalid_context = 201,
    not_found = 500,
    context_destroyed = 709,
    already_registered = 712,
    not_registered = 713,
    not_supported = 801,
    capture_unsupported = 900,
    capture_invalidated = 901,
};

// One thread's error state in one runtime copy. Void when its generation is not the driver's.
struct ErrorSlot {
    uint64_t generation;
    int last;
    int latest;
};

struct Runtime {
    Vendor vendor;
    int major;
    int version;
    int init; // fixed answer of a stub, or 0
    ErrorSlot &(*slot)();
    const char *path;
    std::atomic<bool> ended;
};

// Puts a copy on the list when it is loaded, and off it when it is unloaded or torn down at exit.
SIM_API void attach(Runtime &runtime);
SIM_API void detach(Runtime &runtime);

struct Function {
    const char *name;
    Function *group; // "register", "unregister" or null
    std::atomic<uint64_t> calls;
    unsigned waiting;
};

struct Arguments {
    const void *ptr = nullptr;
    size_t length = 0;
    unsigned flags = 0;
};

SIM_API Function &function(const char *name);

// One call of an exported vendor function, from its first line to its last. A call that must not be made ends here.
class SIM_API Call {
  public:
    Call(const Runtime &runtime, Function &function, const Arguments &arguments);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    int scripted() const { return scripted_; } // what to answer instead of the usual course, or 0
    void answered(int code) const;

  private:
    const Runtime &runtime_;
    const Function &function_;
    Arguments arguments_;
    int scripted_ = success;
    int file_lock_ = -1;
};

// Reads a pending error and clears it.
SIM_API int take_error(int &pending);

[[noreturn]] SIM_API void punish(const char *function, const char *why);

// 0, or the code that all calls answer because the driver cannot be used. A success is remembered.
SIM_API int initialise(const Runtime &runtime);
SIM_API bool initialised(Vendor vendor);
SIM_API int lost_code();
SIM_API bool loads_driver();
SIM_API int driver_version();
SIM_API uint64_t generation();
SIM_API int device_count();
SIM_API int attribute(int device, int number);

SIM_API const char *code_name(Vendor vendor, int code); // the runtime's enumerator, null when unknown
SIM_API const char *driver_code_name(int code);         // libcuda's
SIM_API const char *code_text(int code);

SIM_API int exchange_capture_mode(int *mode);
SIM_API int begin_capture(int mode);
SIM_API int end_capture();

struct Context;

struct PointerInfo {
    int type; // 0 unknown, 1 host, 2 device
    int device;
    void *host;
    void *device_pointer;
    void *range;
    size_t range_length;
};

namespace cuda {

// The calling thread's contexts.
SIM_API Context *current();
SIM_API int set_current(Context *context);
SIM_API int push(Context *context);
SIM_API int pop(Context **context);
SIM_API int device_of(const Context *context); // -1: no such context

SIM_API int retain_primary(int device, Context **context);
SIM_API int release_primary(int device);
SIM_API int reset_primary(int device);
SIM_API int primary_active(int device, int *active);
SIM_API int create(int device, Context **context);
SIM_API int destroy(Context *context);

// The runtime's view: a current device, whose primary context is created and made current by the first call in need of it.
SIM_API int runtime_device();
SIM_API int set_runtime_device(int device, bool create_context);
SIM_API Context *runtime_context();

// Answers for a context that is null (201) or destroyed (709), else 0.
SIM_API int usable(const Context *context);

SIM_API int pin(Context *context, void *ptr, size_t length, unsigned flags);
SIM_API int unpin(const void *ptr);
SIM_API int device_pointer(const void *ptr, void **device_pointer);
SIM_API int flags(const void *ptr, unsigned *flags);
SIM_API PointerInfo describe(const void *ptr);

SIM_API int allocate_host(Context *context, size_t length, unsigned flags, void **ptr);
SIM_API int free_host(void *ptr);
SIM_API int allocate_device(Context *context, size_t length, void **ptr);
SIM_API int free_device(void *ptr);

// `whole`: a range must lie in one registration, as a batch copy demands.
SIM_API int copy(void *to, const void *from, size_t length, int kind, bool whole);

} // namespace cuda

namespace hip {

SIM_API int device();
SIM_API int set_device(int device);
SIM_API int pin(const Runtime &runtime, void *ptr, size_t length, unsigned flags);
SIM_API int unpin(const char *function, const void *ptr);
SIM_API int device_pointer(const void *ptr, void **device_pointer);
SIM_API PointerInfo describe(const void *ptr);

} // namespace hip

} // namespace sim
