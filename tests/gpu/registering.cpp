// Registering and unregistering: the codes, who overlaps whom, flags, sizes.
#include "behaviour.h"
#include "memory.h"

#include <cstdint>
#include <thread>

namespace gpu {

namespace {

constexpr unsigned io_memory = 4, read_only = 8;

// The codes of registering two ranges of the same four pages, given in pages.
std::string two_ranges(const Libraries &lib, std::size_t first, std::size_t first_pages, std::size_t second,
                       std::size_t second_pages) {
    const std::size_t page = page_size();
    char *memory = map_pages(4);
    return answer({lib.runtime.host_register(memory + first * page, first_pages * page, 0),
                   lib.runtime.host_register(memory + second * page, second_pages * page, 0)});
}

std::string with_flags(const Libraries &lib, unsigned flags) {
    return answer({lib.runtime.host_register(map_pages(2), 2 * page_size(), flags)});
}

std::string with_size(const Libraries &lib, std::size_t bytes) {
    char *memory = map_large(bytes, lib.simulated);
    return answer({lib.runtime.host_register(memory, bytes, 0)});
}

std::string round_trip(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.runtime.host_register(memory, 2 * page_size(), 0), lib.runtime.host_unregister(memory)});
}

std::string unaligned(const Libraries &lib) {
    char *memory = map_pages(3) + 100;
    return answer({lib.runtime.host_register(memory, page_size() + 1, 0), lib.runtime.host_unregister(memory)});
}

std::string two_in_one_page(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory + 64, 100, 0), lib.runtime.host_register(memory + 1024, 100, 0)});
}

std::string interior(const Libraries &lib) {
    char *memory = map_pages(4);
    return answer({lib.runtime.host_register(memory, 4 * page_size(), 0),
                   lib.runtime.host_unregister(memory + page_size()), lib.runtime.host_unregister(memory)});
}

std::string twice(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 0), lib.runtime.host_unregister(memory),
                   lib.runtime.host_unregister(memory)});
}

std::string again(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 0), lib.runtime.host_unregister(memory),
                   lib.runtime.host_register(memory, page_size(), 0)});
}

std::string in_another_thread(const Libraries &lib) {
    char *memory = map_pages(1);
    int code = 0;
    const int registered = lib.runtime.host_register(memory, page_size(), 0);
    std::thread([&] { code = lib.runtime.host_unregister(memory); }).join();
    return answer({registered, code});
}

// The address is used again after munmap, as an allocator would.
std::string stale(const Libraries &lib) {
    char *memory = map_pages(2);
    const int first = lib.runtime.host_register(memory, 2 * page_size(), 0);
    munmap(memory, 2 * page_size());
    void *same = mmap(memory, 2 * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return answer({first, lib.runtime.host_register(same, 2 * page_size(), 0)});
}

std::string wrap_around(const Libraries &lib) {
    return answer({lib.runtime.host_register(map_pages(1), SIZE_MAX - page_size(), 0)});
}

std::string register_allocated(const Libraries &lib) {
    void *memory = nullptr;
    return answer({lib.runtime.host_alloc(&memory, page_size(), 0), lib.runtime.host_register(memory, page_size(), 0)});
}

std::string unregister_allocated(const Libraries &lib) {
    void *memory = nullptr;
    return answer({lib.runtime.host_alloc(&memory, page_size(), 0), lib.runtime.host_unregister(memory)});
}

std::string unknown_flags(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.runtime.host_register(memory, page_size(), 16),
                   lib.runtime.host_register(memory, page_size(), 0x80000000u)});
}

constexpr const char *any_io_memory = "the simulation takes any memory for I/O memory";

constexpr Behaviour behaviours[] = {
    {"register", "register, unregister", always("0 0"), source::documentation, round_trip},
    {"again", "register, unregister, register again", always("0 0 0"), source::documentation, again},
    {"other-thread", "register here, unregister in another thread", always("0 0"), source::report, in_another_thread},
    {"unaligned", "unaligned base and length", always("0 0"), source::report, unaligned},
    {"duplicate", "the same range again", always("0 712"), source::documentation,
     [](const Libraries &lib) { return two_ranges(lib, 0, 4, 0, 4); }},
    {"inside", "a range inside a registered one", always("0 712"), source::report,
     [](const Libraries &lib) { return two_ranges(lib, 0, 4, 1, 2); }},
    {"around", "a range around a registered one", always("0 712"), source::assumed,
     [](const Libraries &lib) { return two_ranges(lib, 1, 2, 0, 4); }},
    {"overlap-end", "a range over the end of a registered one", always("0 712"), source::assumed,
     [](const Libraries &lib) { return two_ranges(lib, 0, 2, 1, 3); }},
    {"overlap-start", "a range over the start of a registered one", always("0 712"), source::assumed,
     [](const Libraries &lib) { return two_ranges(lib, 2, 2, 0, 3); }},
    {"touching", "two ranges that touch", always("0 0"), source::assumed,
     [](const Libraries &lib) { return two_ranges(lib, 0, 2, 2, 2); }},
    {"shared-page", "two buffers in one page", always("0 712"), source::report, two_in_one_page},
    {"stale", "registered memory is unmapped, its address registered again", always("0 712"), source::report, stale},
    {"register-allocated", "register memory of cudaHostAlloc", always("0 712"), source::assumed, register_allocated},
    {"unregister-allocated", "unregister memory of cudaHostAlloc", always("0 1"), source::report, unregister_allocated},
    {"unregister-unknown", "unregister what is not registered", always("713"), source::report,
     [](const Libraries &lib) { return answer({lib.runtime.host_unregister(map_pages(1))}); }},
    {"unregister-interior", "unregister an interior page, then the base", always("0 1 0"), source::report, interior},
    {"unregister-twice", "register, unregister twice", always("0 0 713"), source::report, twice},
    {"unregister-null", "unregister NULL", always("1"), source::assumed,
     [](const Libraries &lib) { return answer({lib.runtime.host_unregister(nullptr)}); }},
    {"null", "register NULL", always("1"), source::assumed,
     [](const Libraries &lib) { return answer({lib.runtime.host_register(nullptr, page_size(), 0)}); }},
    {"size-0", "register 0 bytes", always("1"), source::report,
     [](const Libraries &lib) { return answer({lib.runtime.host_register(map_pages(1), 0, 0)}); }},
    {"wrap-around", "a range that wraps around", always("1"), source::assumed, wrap_around},

    {"flags-1", "flag Portable", always("0"), source::documentation,
     [](const Libraries &lib) { return with_flags(lib, 1); }},
    {"flags-2", "flag Mapped", always("0"), source::documentation,
     [](const Libraries &lib) { return with_flags(lib, 2); }},
    {"flags-3", "flags Portable and Mapped", always("0"), source::documentation,
     [](const Libraries &lib) { return with_flags(lib, 3); }},
    {"flags-4", "flag IoMemory for ordinary memory", unlike_simulation(always("1"), always("0"), any_io_memory),
     source::driver_source, [](const Libraries &lib) { return with_flags(lib, io_memory); }},
    {"flags-8", "flag ReadOnly for writable memory", depending(takes_read_only_flag, "0", "801"),
     source::documentation, [](const Libraries &lib) { return with_flags(lib, read_only); }},
    {"flags-15", "all four flags for ordinary memory",
     unlike_simulation(depending(takes_read_only_flag, "1", "801"), depending(takes_read_only_flag, "0", "801"),
                       any_io_memory),
     source::assumed, [](const Libraries &lib) { return with_flags(lib, 15); }},
    {"flags-unknown", "unknown flags 0x10 and 0x80000000", always("1 1"), source::assumed, unknown_flags},

    {"size-below-2g", "2 GiB less a page in one call", always("0"), source::report,
     [](const Libraries &lib) { return with_size(lib, 2 * gib - page_size()); }},
    {"size-2g", "2 GiB in one call (Linux 6.11 to 6.13 may refuse)", always("0"), source::report,
     [](const Libraries &lib) { return with_size(lib, 2 * gib); }},
    {"size-above-2g", "2 GiB and a page in one call (Linux 6.11 to 6.13 may refuse)", always("0"), source::report,
     [](const Libraries &lib) { return with_size(lib, 2 * gib + page_size()); }},
    {"size-below-512g", "512 GiB less a page in one call", always("0"), source::report,
     [](const Libraries &lib) { return with_size(lib, 512 * gib - page_size()); }},
    {"size-512g", "512 GiB in one call", depending(refuses_512_gib, "2", "0"), source::report,
     [](const Libraries &lib) { return with_size(lib, 512 * gib); }},
};

} // namespace

std::span<const Behaviour> registering_behaviours() { return behaviours; }

} // namespace gpu
