// The vendor's libraries and libhostpin as this program sees them: found at run time, with prototypes of its own.
#pragma once

#include <hostpin.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpu {

// Of CUDA 11, 12 and 13 alike; 13 writes more than 11 does, so there is room behind it.
struct PointerAttributes {
    int type; // 0 unregistered, 1 host, 2 device
    int device;
    void *device_pointer;
    void *host_pointer;
    char room[232];
};

constexpr int host_to_device = 1, device_to_host = 2, by_address = 4; // cudaMemcpyKind
constexpr int capture_global = 0, capture_thread_local = 1, capture_relaxed = 2;

// Attributes of a device that pinning depends on.
constexpr int attribute_pageable_access = 88, attribute_host_address = 91, attribute_register = 99,
              attribute_host_tables = 100, attribute_read_only = 113;

struct CudaRuntime {
    int (*host_register)(void *, std::size_t, unsigned);
    int (*host_unregister)(void *);
    int (*host_get_device_pointer)(void **, void *, unsigned);
    int (*host_get_flags)(unsigned *, void *);
    int (*host_alloc)(void **, std::size_t, unsigned);
    int (*malloc)(void **, std::size_t);
    int (*free)(void *);
    int (*pointer_get_attributes)(PointerAttributes *, const void *);
    int (*get_last_error)();
    int (*peek_at_last_error)();
    const char *(*get_error_name)(int);
    int (*get_device_count)(int *);
    int (*get_device)(int *);
    int (*set_device)(int);
    int (*device_get_attribute)(int *, int, int);
    int (*device_reset)();
    int (*runtime_get_version)(int *);
    int (*driver_get_version)(int *);
    int (*memcpy)(void *, const void *, std::size_t, int);
    int (*memcpy_async)(void *, const void *, std::size_t, int, void *);
    int (*stream_create)(void **);
    int (*stream_destroy)(void *);
    int (*stream_synchronize)(void *);
    int (*stream_begin_capture)(void *, int);
    int (*stream_end_capture)(void *, void **);
    int (*thread_exchange_stream_capture_mode)(int *);
    void *memcpy_batch_async; // null before 12.8; its parameters changed with 13
};

struct CudaDriver {
    int (*init)(unsigned);
    int (*device_get_count)(int *);
    int (*device_get_name)(char *, int, int); // null in the simulation
    int (*mem_host_register)(void *, std::size_t, unsigned);
    int (*mem_host_unregister)(void *);
    int (*device_primary_ctx_retain)(void **, int);
    int (*device_primary_ctx_release)(int);
    int (*device_primary_ctx_get_state)(int, unsigned *, int *);
    int (*ctx_get_current)(void **);
    int (*ctx_set_current)(void *);
    int (*get_error_name)(int, const char **);
};

struct Hostpin {
    decltype(&::hp_configure) configure;
    decltype(&::hp_device_pointer) device_pointer;
    decltype(&::hp_get_backend) get_backend;
    decltype(&::hp_get_stats) get_stats;
    decltype(&::hp_last_error) last_error;
    decltype(&::hp_query) query;
    decltype(&::hp_register) pin;
    decltype(&::hp_unregister) unpin;
    decltype(&::hp_unregister_all) unpin_all;
};

// Where the libraries are: a path, or a name that the loader looks for.
struct Files {
    std::string runtime; // libcudart.so.N
    std::string driver;  // libcuda.so.1
    std::string hostpin; // libhostpin.so.1; may be empty
};

struct Libraries {
    CudaRuntime runtime{};
    CudaDriver driver{};
    Hostpin hostpin{};
    bool simulated = false;
};

// Throws std::runtime_error that names what is missing. libhostpin is left out where its file is empty.
Libraries load(const Files &files);

// The path of the libcudart that was loaded.
std::string runtime_file(const Libraries &lib);

int runtime_version(const Libraries &lib);

} // namespace gpu
