// libhostpin on this runtime: what is pinned when, asked of the library and of the runtime.
#include "access.h"
#include "behaviour.h"
#include "hostpin_calls.h"
#include "memory.h"

#include <cstdint>

namespace gpu {

namespace {

// Memory types of `pages` pages: 1 where the runtime sees pinned host memory, 0 where it does not.
std::string types(const Libraries &lib, const char *memory, std::size_t pages) {
    std::string all;
    for (std::size_t i = 0; i < pages; ++i) all += std::to_string(memory_type(lib, memory + i * page_size()));
    return all;
}

std::string round_trip(const Libraries &lib) {
    char *memory = map_pages(4);
    const std::size_t bytes = 4 * page_size();
    return answer({types(lib, memory, 4), lib.hostpin.pin(memory, bytes, 0), query(lib, memory, bytes),
                   types(lib, memory, 4), lib.hostpin.unpin(memory), query(lib, memory, bytes),
                   types(lib, memory, 4)});
}

std::string unaligned(const Libraries &lib) {
    char *memory = map_pages(2) + 100;
    return answer({lib.hostpin.pin(memory, page_size(), 0), query(lib, memory, page_size()),
                   copy_there_and_back(lib, memory, page_size()), lib.hostpin.unpin(memory)});
}

std::string counted(const Libraries &lib) {
    char *memory = map_pages(2);
    const std::size_t bytes = 2 * page_size();
    return answer({lib.hostpin.pin(memory, bytes, 0), lib.hostpin.pin(memory, bytes, 0), lib.hostpin.unpin(memory),
                   types(lib, memory, 2), lib.hostpin.unpin(memory), types(lib, memory, 2),
                   lib.hostpin.unpin(memory)});
}

std::string other_length(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), lib.hostpin.pin(memory, page_size(), 0),
                   lib.hostpin.unpin(memory)});
}

std::string interior(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), lib.hostpin.unpin(memory + page_size()),
                   types(lib, memory, 2), lib.hostpin.unpin(memory)});
}

// Two ranges of the same four pages, in pages: both registered, the first one ended, the second one ended.
std::string two_ranges(const Libraries &lib, std::size_t first, std::size_t first_pages, std::size_t second,
                       std::size_t second_pages) {
    const std::size_t page = page_size();
    char *memory = map_pages(4), *one = memory + first * page, *two = memory + second * page;
    return answer({lib.hostpin.pin(one, first_pages * page, 0), lib.hostpin.pin(two, second_pages * page, 0),
                   types(lib, memory, 4), lib.hostpin.unpin(one), types(lib, two, second_pages),
                   lib.hostpin.unpin(two), types(lib, memory, 4)});
}

std::string two_in_one_page(const Libraries &lib) {
    char *memory = map_pages(1);
    return answer({lib.hostpin.pin(memory + 64, 100, 0), lib.hostpin.pin(memory + 1024, 100, 0),
                   lib.hostpin.unpin(memory + 64), memory_type(lib, memory + 1024), query(lib, memory + 1024, 100),
                   lib.hostpin.unpin(memory + 1024), memory_type(lib, memory + 1024)});
}

std::string foreign(const Libraries &lib) {
    char *memory = map_pages(2);
    const std::size_t bytes = 2 * page_size();
    return answer({lib.runtime.host_register(memory, bytes, 0), lib.hostpin.pin(memory, bytes, 0),
                   query(lib, memory, bytes), lib.hostpin.unpin(memory), types(lib, memory, 2),
                   lib.runtime.host_unregister(memory)});
}

std::string foreign_allocation(const Libraries &lib) {
    void *memory = nullptr;
    return answer({lib.runtime.host_alloc(&memory, page_size(), 0), lib.hostpin.pin(memory, page_size(), 0),
                   lib.hostpin.unpin(memory), memory_type(lib, memory)});
}

std::string foreign_part(const Libraries &lib) {
    char *memory = map_pages(4);
    return answer({lib.runtime.host_register(memory + page_size(), page_size(), 0),
                   lib.hostpin.pin(memory, 4 * page_size(), 0), types(lib, memory, 4),
                   lib.hostpin.pin(memory, 4 * page_size(), HP_REGISTER_REQUIRED), types(lib, memory, 4),
                   lib.runtime.host_unregister(memory + page_size())});
}

std::string foreign_later(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), lib.runtime.host_register(memory, page_size(), 0),
                   lib.hostpin.unpin(memory), types(lib, memory, 2)});
}

std::string taken_away(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), lib.runtime.host_unregister(memory),
                   lib.hostpin.unpin(memory), lib.hostpin.pin(memory, 2 * page_size(), 0), types(lib, memory, 2)});
}

std::string read_only(const Libraries &lib) {
    char *memory = map_pages(2, PROT_READ);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), lib.hostpin.unpin(memory)});
}

std::string read_only_flag_on_writable(const Libraries &lib) {
    char *memory = map_pages(2);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), HP_REGISTER_READONLY), types(lib, memory, 2)});
}

std::string refused(const Libraries &lib) {
    char *memory = map_before_hole(1);
    return answer({lib.hostpin.pin(memory, 2 * page_size(), 0), types(lib, memory, 1),
                   lib.hostpin.pin(memory, 2 * page_size(), HP_REGISTER_REQUIRED), types(lib, memory, 1),
                   lib.hostpin.pin(memory, page_size(), 0), types(lib, memory, 1)});
}

std::string device_pointer(const Libraries &lib) {
    char *memory = map_pages(3) + 100;
    void *ours = nullptr, *inside = nullptr, *theirs = nullptr;
    const int pinned = lib.hostpin.pin(memory, page_size() + 1000, 0);
    const int code = lib.hostpin.device_pointer(memory, &ours);
    const int code_inside = lib.hostpin.device_pointer(memory + 1234, &inside);
    lib.runtime.host_get_device_pointer(&theirs, memory + 1234, 0);
    const int none = lib.hostpin.device_pointer(map_pages(1), &ours);
    return answer({pinned, code, code_inside, inside == theirs ? "as the runtime says" : "not as the runtime says",
                   none});
}

// Memory at a multiple of 2 MiB: there the library cuts in any case.
char *aligned(std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(map_pages((bytes + 2 * mib) / page_size()));
    return reinterpret_cast<char *>((address + 2 * mib - 1) / (2 * mib) * (2 * mib));
}

// Cut into segments of 64 KiB on purpose; a plain copy may go over all of them.
std::string segments(const Libraries &lib) {
    hp_config config{};
    config.struct_size = sizeof config;
    config.max_segment = 64 * kib;
    hp_region region{};
    region.struct_size = sizeof region;
    const std::size_t bytes = 256 * kib;
    char *memory = aligned(bytes);
    const int configured = lib.hostpin.configure(&config);
    const int pinned = lib.hostpin.pin(memory, bytes, 0);
    const int queried = lib.hostpin.query(memory, bytes, &region);
    return answer({configured, pinned, static_cast<int>(stats(lib).segments), queried,
                   static_cast<int>(region.one_segment), copy_there_and_back(lib, memory, bytes),
                   lib.hostpin.unpin(memory), types(lib, memory, 4)});
}

std::string large(const Libraries &lib, std::size_t bytes) {
    char *memory = map_large(bytes, lib.simulated);
    return answer({lib.hostpin.pin(memory, bytes, HP_REGISTER_REQUIRED), query(lib, memory, bytes),
                   lib.hostpin.unpin(memory), memory_type(lib, memory + bytes / 2)});
}

std::string unpin_all(const Libraries &lib) {
    char *memory = map_pages(4);
    return answer({lib.hostpin.pin(memory, page_size(), 0), lib.hostpin.pin(memory + 2 * page_size(), page_size(), 0),
                   lib.hostpin.unpin_all(UINT64_MAX), types(lib, memory, 4)});
}

constexpr Behaviour behaviours[] = {
    {"hp-register", "types of the pages, register, query, types, unregister, query, types",
     always("0000 0 0 1111 0 1 0000"), source::contract, round_trip},
    {"hp-unaligned", "unaligned: register, query, copy there and back, unregister", always("0 0 equal 0"),
     source::contract, unaligned},
    {"hp-counted", "register twice, unregister, types, unregister, types, unregister", always("0 0 0 11 0 00 -3"),
     source::contract, counted},
    {"hp-other-length", "register, register the same base with another length, unregister", always("0 -2 0"),
     source::contract, other_length},
    {"hp-interior", "register, unregister an interior page, types, unregister", always("0 -3 11 0"),
     source::contract, interior},
    {"hp-inside", "register pages 0-3 and 1-2, types; end the first, types of the second; end it, types",
     always("0 0 1111 0 11 0 0000"), source::contract,
     [](const Libraries &lib) { return two_ranges(lib, 0, 4, 1, 2); }},
    {"hp-around", "the same with pages 1-2 and 0-3", always("0 0 1111 0 1111 0 0000"), source::contract,
     [](const Libraries &lib) { return two_ranges(lib, 1, 2, 0, 4); }},
    {"hp-overlap-end", "the same with pages 0-2 and 1-3", always("0 0 1111 0 111 0 0000"), source::contract,
     [](const Libraries &lib) { return two_ranges(lib, 0, 3, 1, 3); }},
    {"hp-overlap-start", "the same with pages 1-3 and 0-2", always("0 0 1111 0 111 0 0000"), source::contract,
     [](const Libraries &lib) { return two_ranges(lib, 1, 3, 0, 3); }},
    {"hp-touching", "the same with pages 0-1 and 2-3", always("0 0 1111 0 11 0 0000"), source::contract,
     [](const Libraries &lib) { return two_ranges(lib, 0, 2, 2, 2); }},
    {"hp-shared-page", "two buffers in one page; end one, type, query; end the other, type", always("0 0 0 1 0 0 0"),
     source::contract, two_in_one_page},
    {"hp-foreign", "runtime registers; register, query, unregister, types; runtime unregisters",
     always("0 2 0 0 11 0"), source::contract, foreign},
    {"hp-foreign-allocation", "cudaHostAlloc; register, unregister, type", always("0 2 0 1"), source::contract,
     foreign_allocation},
    {"hp-foreign-part", "runtime registers page 1; register 0-3, types; the same REQUIRED, types; runtime unregisters",
     always("0 1 0100 -5 0100 0"), source::contract, foreign_part},
    {"hp-foreign-later", "register; runtime registers a page of it; unregister, types", always("0 712 0 00"),
     source::contract, foreign_later},
    {"hp-taken-away", "register; runtime unregisters it; unregister, register, types", always("0 0 0 0 11"),
     source::contract, taken_away},
    {"hp-read-only", "memory mapped read-only: register, unregister", depending(takes_read_only_flag, "0 0", "1 0"),
     source::contract, read_only},
    {"hp-read-only-flag", "writable memory with READONLY: register, types", always("0 11"), source::contract,
     read_only_flag_on_writable},
    {"hp-refused", "second half unmapped: register, type, REQUIRED, type; first half alone, type",
     always("1 0 -5 0 0 1"), source::contract, refused},
    {"hp-device-pointer", "register; device pointer of the base, of an interior address, of pageable memory",
     always("0 0 0 as the runtime says -3"), source::contract, device_pointer},
    {"hp-segments", "256 KiB in segments of 64 KiB: configure, register, segments, query, one segment, copy, "
                    "unregister, types",
     always("0 0 4 0 0 equal 0 0000"), source::contract, segments},
    {"hp-2g", "2 GiB and a page: register, query, unregister, type", always("0 0 0 0"), source::contract,
     [](const Libraries &lib) { return large(lib, 2 * gib + page_size()); }},
    {"hp-512g", "512 GiB: register, query, unregister, type", always("0 0 0 0"), source::contract,
     [](const Libraries &lib) { return large(lib, 512 * gib); }},
    {"hp-unregister-all", "register, register, unregister all, types", always("0 0 0 0000"), source::contract,
     unpin_all},
};

} // namespace

std::span<const Behaviour> pin_behaviours() { return behaviours; }

} // namespace gpu
