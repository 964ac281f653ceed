#include "memory.h"

#include "behaviour.h"

#include <sys/statfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace gpu {

namespace {

constexpr int read_write = PROT_READ | PROT_WRITE;
constexpr long tmpfs_magic = 0x01021994, ramfs_magic = 0x858458f6L;

char *map(std::size_t bytes, int protection, int flags, int file, const char *problem) {
    void *memory = mmap(nullptr, bytes, protection, flags, file, 0);
    if (memory == MAP_FAILED) throw NotApplicable(problem);
    return static_cast<char *>(memory);
}

std::size_t available_memory() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::size_t kilobytes = 0;
    while (file >> key >> kilobytes) {
        if (key == "MemAvailable:") return kilobytes * kib;
        std::getline(file, unit);
    }
    return 0;
}

// A file of this size without a name, in the folder for temporary files or else in the current one.
int unnamed_file(std::size_t bytes) {
    const char *temporary = std::getenv("TMPDIR");
    for (const std::string folder : {temporary ? temporary : "/tmp", "/var/tmp", "."}) {
        std::string name = folder + "/hostpin-gpu-check-XXXXXX";
        const int file = mkstemp(name.data());
        if (file < 0) continue;
        unlink(name.c_str());
        struct statfs kind{};
        const bool in_memory = fstatfs(file, &kind) != 0 || kind.f_type == tmpfs_magic || kind.f_type == ramfs_magic;
        if (!in_memory && ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
        close(file);
    }
    throw NotApplicable("no folder on a disk");
}

} // namespace

std::size_t page_size() {
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

char *map_pages(std::size_t pages, int protection) {
    return map(pages * page_size(), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, "no memory");
}

char *map_large(std::size_t bytes, bool simulated) {
    if (!simulated && available_memory() < bytes + gib) throw NotApplicable("not enough free memory");
    return map(bytes, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, "no address space");
}

char *map_file(std::size_t pages, int protection, int sharing) {
    const std::size_t bytes = pages * page_size();
    const int file = unnamed_file(bytes);
    char *memory = map(bytes, protection, sharing, file, "file cannot be mapped");
    close(file);
    return memory;
}

char *map_memfd(std::size_t pages) {
    const std::size_t bytes = pages * page_size();
    const int file = memfd_create("hostpin-gpu-check", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw NotApplicable("no memfd");
    char *memory = map(bytes, read_write, MAP_SHARED, file, "no memfd");
    close(file);
    return memory;
}

char *map_huge_page(std::size_t &bytes) {
    bytes = 2 * mib;
    return map(bytes, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, "no huge pages");
}

char *map_before_hole(std::size_t pages) {
    // The kernel fills holes from the top. Only one far larger than what libraries reserve keeps its bottom empty.
    constexpr std::size_t hole = std::size_t{4} << 40;
    const std::size_t bytes = pages * page_size();
    char *memory = map(hole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, "no address space");
    munmap(memory + bytes, hole - bytes);
    mprotect(memory, bytes, read_write);
    return memory;
}

} // namespace gpu
