// Kinds of memory: which of them the driver registers.
#include "behaviour.h"
#include "memory.h"

#include <unistd.h>

#include <cstdlib>

namespace gpu {

namespace {

constexpr unsigned read_only_flag = 8;
constexpr int read_write = PROT_READ | PROT_WRITE;

std::string registered(const Libraries &lib, void *memory, std::size_t bytes, unsigned flags = 0) {
    return answer({lib.runtime.host_register(memory, bytes, flags)});
}

std::string pages(const Libraries &lib, void *memory, unsigned flags = 0) {
    return registered(lib, memory, 2 * page_size(), flags);
}

// Not in the pool of small blocks, whose page may hold memory of the runtime itself.
std::string heap(const Libraries &lib) {
    static void *memory = std::malloc(300'000);
    return registered(lib, memory, 300'000);
}

std::string stack(const Libraries &lib) {
    int variable = 0;
    return registered(lib, &variable, sizeof variable);
}

std::string static_data(const Libraries &lib) {
    static char data[100];
    return registered(lib, data, sizeof data);
}

std::string huge_page(const Libraries &lib) {
    std::size_t bytes = 0;
    char *memory = map_huge_page(bytes);
    return registered(lib, memory, bytes);
}

std::string half_unmapped(const Libraries &lib) { return pages(lib, map_before_hole(1)); }

std::string half_read_only(const Libraries &lib) {
    char *memory = map_pages(2);
    mprotect(memory + page_size(), page_size(), PROT_READ);
    return pages(lib, memory);
}

std::string device_memory(const Libraries &lib) {
    void *memory = nullptr;
    return answer({lib.runtime.malloc(&memory, mib), lib.runtime.host_register(memory, mib, 0)});
}

// The half that could be registered must not stay behind.
std::string after_refusal(const Libraries &lib) {
    char *memory = map_before_hole(1);
    return answer({lib.runtime.host_register(memory, 2 * page_size(), 0),
                   lib.runtime.host_register(memory, page_size(), 0)});
}

constexpr Behaviour behaviours[] = {
    {"heap", "memory of malloc", always("0"), source::documentation, heap},
    {"stack", "a variable on the stack", always("0"), source::report, stack},
    {"static", "static data", always("0"), source::assumed, static_data},
    {"memfd", "memfd, shared", always("0"), source::report,
     [](const Libraries &lib) { return pages(lib, map_memfd(2)); }},
    {"huge-page", "a huge page (MAP_HUGETLB)", always("0"), source::report, huge_page},
    {"file-private", "file on a disk, MAP_PRIVATE, writable", always("0"), source::report,
     [](const Libraries &lib) { return pages(lib, map_file(2, read_write, MAP_PRIVATE)); }},
    {"file-shared", "file on a disk, MAP_SHARED, writable (Linux 6.5 and later)",
     unlike_simulation(always("1"), always("0"), "the simulation does not look at filesystems"), source::report,
     [](const Libraries &lib) { return pages(lib, map_file(2, read_write, MAP_SHARED)); }},
    {"file-private-read-only", "file on a disk, MAP_PRIVATE, read-only, no flag",
     depending(uses_host_page_tables, "0", "1"), source::report,
     [](const Libraries &lib) { return pages(lib, map_file(2, PROT_READ, MAP_PRIVATE)); }},
    {"file-private-read-only-flag", "file on a disk, MAP_PRIVATE, read-only, flag ReadOnly",
     depending(takes_read_only_flag, "0", "801"), source::report,
     [](const Libraries &lib) { return pages(lib, map_file(2, PROT_READ, MAP_PRIVATE), read_only_flag); }},
    {"file-shared-read-only-flag", "file on a disk, MAP_SHARED, read-only, flag ReadOnly",
     depending(takes_read_only_flag, "0", "801"), source::assumed,
     [](const Libraries &lib) { return pages(lib, map_file(2, PROT_READ, MAP_SHARED), read_only_flag); }},
    {"read-only", "anonymous memory, read-only, no flag", depending(uses_host_page_tables, "0", "1"),
     source::documentation, [](const Libraries &lib) { return pages(lib, map_pages(2, PROT_READ)); }},
    {"read-only-flag", "anonymous memory, read-only, flag ReadOnly", depending(takes_read_only_flag, "0", "801"),
     source::documentation, [](const Libraries &lib) { return pages(lib, map_pages(2, PROT_READ), read_only_flag); }},
    {"half-read-only", "writable and read-only memory in one range, no flag",
     depending(uses_host_page_tables, "0", "1"), source::assumed, half_read_only},
    {"no-access", "memory mapped PROT_NONE",
     unlike_simulation(always("1"), always("0"), "the simulation takes reservations, so that huge ranges cost nothing"),
     source::assumed, [](const Libraries &lib) { return pages(lib, map_pages(2, PROT_NONE)); }},
    {"unmapped", "nothing mapped there", always("1"), source::assumed,
     [](const Libraries &lib) { return pages(lib, map_before_hole(0)); }},
    {"half-unmapped", "nothing mapped in the second half", always("1"), source::assumed, half_unmapped},
    {"after-refusal", "nothing mapped in the second half, then the first half alone", always("1 0"), source::assumed,
     after_refusal},
    {"device-memory", "an address of cudaMalloc",
     unlike_simulation(always("0 1"), always("0 0"), "device memory of the simulation is host memory"), source::report,
     device_memory},
};

} // namespace

std::span<const Behaviour> mapping_behaviours() { return behaviours; }

} // namespace gpu
