// What can be done with registered memory: device pointers, attributes, copies and where they may not cross.
#include "access.h"

#include "behaviour.h"
#include "memory.h"
#include "stream.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace gpu {

int memory_type(const Libraries &lib, const void *address) {
    PointerAttributes attributes{};
    const int code = lib.runtime.pointer_get_attributes(&attributes, address);
    return code ? -code : attributes.type;
}

std::string copy_there_and_back(const Libraries &lib, const char *memory, std::size_t bytes) {
    void *device = nullptr;
    std::vector<char> back(bytes);
    if (const int code = lib.runtime.malloc(&device, bytes)) return std::to_string(code);
    if (const int code = lib.runtime.memcpy_async(device, memory, bytes, host_to_device, nullptr))
        return std::to_string(code);
    if (const int code = lib.runtime.memcpy(back.data(), device, bytes, device_to_host)) return std::to_string(code);
    return std::memcmp(back.data(), memory, bytes) == 0 ? "equal" : "different";
}

namespace {

constexpr unsigned portable = 1, mapped = 2;

char *filled_pages(std::size_t pages) {
    char *memory = map_pages(pages);
    for (std::size_t i = 0; i < pages * page_size(); ++i) memory[i] = static_cast<char>(i * 31 >> 5);
    return memory;
}

// ---- Device pointers and attributes

std::string device_pointer(const Libraries &lib) {
    char *memory = map_pages(2);
    void *device = nullptr;
    const int registered = lib.runtime.host_register(memory, 2 * page_size(), 0);
    const int code = lib.runtime.host_get_device_pointer(&device, memory, 0);
    return answer({registered, code, device == memory ? "same" : "other"});
}

std::string interior_device_pointer(const Libraries &lib) {
    char *memory = map_pages(3) + 100; // unaligned, so that the offset in the page must be kept too
    void *base = nullptr, *inside = nullptr;
    const int registered = lib.runtime.host_register(memory, page_size() + 1000, 0);
    const int code = lib.runtime.host_get_device_pointer(&base, memory, 0);
    const int code_inside = lib.runtime.host_get_device_pointer(&inside, memory + 1234, 0);
    return answer({registered, code, code_inside, static_cast<char *>(inside) - static_cast<char *>(base) == 1234
                                                      ? "offset kept" : "offset lost"});
}

std::string no_device_pointer(const Libraries &lib) {
    void *device = nullptr;
    return answer({lib.runtime.host_get_device_pointer(&device, map_pages(1), 0)});
}

std::string device_pointer_with_flags(const Libraries &lib) {
    char *memory = map_pages(1);
    void *device = nullptr;
    return answer({lib.runtime.host_register(memory, page_size(), 0),
                   lib.runtime.host_get_device_pointer(&device, memory, 1)});
}

std::string attributes(const Libraries &lib) {
    char *memory = map_pages(2);
    const int before = memory_type(lib, memory + page_size());
    const int registered = lib.runtime.host_register(memory, 2 * page_size(), 0);
    const int during = memory_type(lib, memory + page_size());
    const int unregistered = lib.runtime.host_unregister(memory);
    return answer({before, registered, during, unregistered, memory_type(lib, memory + page_size())});
}

std::string attribute_pointers(const Libraries &lib) {
    char *memory = map_pages(2);
    PointerAttributes attributes{};
    void *device = nullptr;
    const int registered = lib.runtime.host_register(memory, 2 * page_size(), 0);
    lib.runtime.pointer_get_attributes(&attributes, memory + 100);
    lib.runtime.host_get_device_pointer(&device, memory + 100, 0);
    return answer({registered, attributes.device, attributes.host_pointer == memory + 100 ? "same host" : "other host",
                   attributes.device_pointer == device ? "same device" : "other device"});
}

std::string unregistered_attributes(const Libraries &lib) {
    PointerAttributes attributes{};
    const int code = lib.runtime.pointer_get_attributes(&attributes, map_pages(1));
    return answer({code, attributes.type, attributes.device_pointer ? "some" : "none"});
}

// The page is pinned as a whole; whether the runtime says so of the bytes around the range is another question.
std::string attributes_around(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory + 1000, 1000, 0), memory_type(lib, memory + 10),
                   memory_type(lib, memory + 1500), memory_type(lib, memory + 4000)});
}

std::string flags(const Libraries &lib, unsigned given) {
    char *memory = map_pages(1);
    unsigned flags = 0;
    const int registered = lib.runtime.host_register(memory, page_size(), given);
    const int code = lib.runtime.host_get_flags(&flags, memory);
    return answer({registered, code, static_cast<int>(flags)});
}

std::string no_flags(const Libraries &lib) {
    unsigned flags = 0;
    return answer({lib.runtime.host_get_flags(&flags, map_pages(1))});
}

// ---- Copies

std::string copy_registered(const Libraries &lib) {
    char *memory = filled_pages(4);
    const int registered = lib.runtime.host_register(memory, 4 * page_size(), 0);
    return answer({registered, copy_there_and_back(lib, memory, 4 * page_size())});
}

// Two registrations that touch, and one copy over both.
std::string copy_over_border(const Libraries &lib) {
    char *memory = filled_pages(4);
    const int first = lib.runtime.host_register(memory, 2 * page_size(), 0);
    const int second = lib.runtime.host_register(memory + 2 * page_size(), 2 * page_size(), 0);
    return answer({first, second, copy_there_and_back(lib, memory, 4 * page_size())});
}

std::string copy_half_registered(const Libraries &lib) {
    char *memory = filled_pages(4);
    const int registered = lib.runtime.host_register(memory, 2 * page_size(), 0);
    return answer({registered, copy_there_and_back(lib, memory, 4 * page_size())});
}

// cudaMemcpyAttributes: only the order of access (1: of the stream) matters here; the hints are "no location".
struct CopyAttributes {
    int source_access_order;
    int source_location[2];
    int destination_location[2];
    unsigned flags;
};

int copy_batch(const Libraries &lib, void *to, void *from, std::size_t bytes) {
    using Batch12 = int (*)(void **, void **, std::size_t *, std::size_t, CopyAttributes *, std::size_t *, std::size_t,
                            std::size_t *, void *);
    using Batch13 = int (*)(void **, void **, std::size_t *, std::size_t, CopyAttributes *, std::size_t *, std::size_t,
                            void *);
    CopyAttributes attributes{1, {0, 0}, {0, 0}, 0};
    std::size_t first_with_attributes = 0, failed = 0;
    const Stream stream(lib);
    void *function = lib.runtime.memcpy_batch_async;
    const int code = runtime_version(lib) < 13000
                         ? reinterpret_cast<Batch12>(function)(&to, &from, &bytes, 1, &attributes,
                                                               &first_with_attributes, 1, &failed, stream.get())
                         : reinterpret_cast<Batch13>(function)(&to, &from, &bytes, 1, &attributes,
                                                               &first_with_attributes, 1, stream.get());
    const int done = lib.runtime.stream_synchronize(stream.get());
    return code ? code : done;
}

// `second` is the number of pages in a second registration behind the first one of two pages.
std::string batch(const Libraries &lib, std::size_t pages_registered, std::size_t second, std::size_t pages_copied) {
    int driver = 0;
    lib.runtime.driver_get_version(&driver);
    if (!lib.runtime.memcpy_batch_async) throw NotApplicable("no batches before CUDA 12.8");
    if (driver < 12080) throw NotApplicable("the driver has no batches");
    char *memory = filled_pages(4);
    void *device = nullptr;
    if (pages_registered) lib.runtime.host_register(memory, pages_registered * page_size(), 0);
    if (second) lib.runtime.host_register(memory + pages_registered * page_size(), second * page_size(), 0);
    return answer({lib.runtime.malloc(&device, 4 * page_size()),
                   copy_batch(lib, device, memory, pages_copied * page_size())});
}

constexpr Behaviour behaviours[] = {
    {"device-pointer", "register, device pointer against host pointer",
     depending(uses_host_address, "0 0 same", "0 0 other"), source::documentation, device_pointer},
    {"device-pointer-interior", "device pointer of an interior address", always("0 0 0 offset kept"), source::report,
     interior_device_pointer},
    {"device-pointer-none", "device pointer of pageable memory", always("1"), source::documentation,
     no_device_pointer},
    {"device-pointer-flags", "device pointer with flags 1", always("0 1"), source::documentation,
     device_pointer_with_flags},
    {"attributes", "memory type of an interior page; register; type; unregister; type", always("0 0 1 0 0"),
     source::documentation, attributes},
    {"attributes-pointers", "attributes of an interior address: device, host and device pointer",
     always("0 0 same host same device"), source::assumed, attribute_pointers},
    {"attributes-none", "attributes of pageable memory: code, type, device pointer", always("0 0 none"),
     source::documentation, unregistered_attributes},
    {"attributes-around", "1000 bytes in a page: types of the bytes before, in and behind", always("0 1 1 1"),
     source::assumed, attributes_around},
    {"get-flags", "cudaHostGetFlags of registered memory, no flag", always("0 0 3"), source::assumed,
     [](const Libraries &lib) { return flags(lib, 0); }},
    {"get-flags-both", "cudaHostGetFlags of registered memory, Portable and Mapped", always("0 0 3"),
     source::assumed, [](const Libraries &lib) { return flags(lib, portable | mapped); }},
    {"get-flags-none", "cudaHostGetFlags of pageable memory", always("1"), source::documentation, no_flags},
    {"copy-pageable", "copy pageable memory there and back", always("equal"), source::documentation,
     [](const Libraries &lib) { return copy_there_and_back(lib, filled_pages(4), 4 * page_size()); }},
    {"copy-registered", "copy registered memory there and back", always("0 equal"), source::documentation,
     copy_registered},
    {"copy-border", "copy over the border of two registrations", always("0 0 equal"), source::documentation,
     copy_over_border},
    {"copy-half", "copy registered and unregistered memory in one", always("0 1"), source::documentation,
     copy_half_registered},
    {"batch", "batch copy inside one registration", always("0 0"), source::documentation,
     [](const Libraries &lib) { return batch(lib, 4, 0, 4); }},
    {"batch-pageable", "batch copy of pageable memory", always("0 0"), source::assumed,
     [](const Libraries &lib) { return batch(lib, 0, 0, 4); }},
    {"batch-border", "batch copy over the border of two registrations", always("0 1"), source::report,
     [](const Libraries &lib) { return batch(lib, 2, 2, 4); }},
    {"batch-half", "batch copy of registered and unregistered memory in one", always("0 1"), source::documentation,
     [](const Libraries &lib) { return batch(lib, 2, 0, 4); }},
};

} // namespace

std::span<const Behaviour> access_behaviours() { return behaviours; }

} // namespace gpu
