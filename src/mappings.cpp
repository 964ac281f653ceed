#include "mappings.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "lines.h"
#include "system.h"

namespace hp {

namespace {

struct Area {
  uint64_t start = 0;
  uint64_t end = 0;
  bool readable = false;
  bool writable = false;
  bool shared = false;
  uint64_t page = 0;  // 0: not told
  SharedObject object;
  char name[64] = "";  // as much of it as is needed

  void set_name(const char *text) noexcept { std::memcpy(name, text, std::min(std::strlen(text), sizeof(name) - 1)); }
};

// The kernel's own words for one mapping (Linux 6.11 and later), which is far less work than the list of all.
struct Query {
  uint64_t size = sizeof(Query);
  uint64_t flags = 0x10;  // the mapping that covers the address, or the next one
  uint64_t address = 0;
  uint64_t start = 0, end = 0;
  uint64_t vma_flags = 0;  // 1 readable, 2 writable, 4 executable, 8 shared
  uint64_t page = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  uint32_t major = 0, minor = 0;
  uint32_t name_size = 0, build_id_size = 0;
  uint64_t name = 0, build_id = 0;
};
#define HOSTPIN_PROCMAP_QUERY _IOWR('f', 17, Query)

bool query(int maps, uint64_t address, Area &out) noexcept {
  char name[4096] = "";
  Query q;
  q.address = address;
  q.name = reinterpret_cast<uintptr_t>(name);
  q.name_size = sizeof(name);
  if (ioctl(maps, HOSTPIN_PROCMAP_QUERY, &q) != 0) return false;
  out = {q.start, q.end, (q.vma_flags & 1) != 0, (q.vma_flags & 2) != 0, (q.vma_flags & 8) != 0, q.page,
         {uint64_t{q.major} << 32 | q.minor, q.inode}, ""};
  out.set_name(name);
  return true;
}

bool parse(const char *line, Area &out) noexcept {
  unsigned long long from = 0;
  unsigned long long to = 0;
  unsigned long long inode = 0;
  unsigned major = 0;
  unsigned minor = 0;
  char mode[5] = "";
  int name = 0;
  if (std::sscanf(line, "%llx-%llx %4s %*s %x:%x %llu %n", &from, &to, mode, &major, &minor, &inode, &name) < 6)
    return false;
  out = {from, to, mode[0] == 'r', mode[1] == 'w', mode[3] == 's', 0, {uint64_t{major} << 32 | minor, inode}, ""};
  out.set_name(name ? line + name : "");
  return true;
}

// Hands over the mappings that [start, end) lies in, in order; false where there is a hole or the kernel was not asked.
template <class Visit>
bool each_area(uint64_t start, uint64_t end, bool &asked, Visit visit) noexcept {
  uint64_t at = start;
  Area area;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  asked = maps >= 0;
  if (!asked) return false;
  const bool can_query = query(maps, at, area);
  while (can_query && at < end && area.start <= at) {
    visit(area);
    at = area.end;
    if (at < end && !query(maps, at, area)) break;
  }
  close(maps);
  if (can_query || at >= end) return at >= end;
  Lines lines("/proc/self/maps");
  while (at < end) {
    const char *line = lines.next();
    if (!line) return false;
    if (!parse(line, area) || area.end <= at) continue;
    if (area.start > at) return false;
    visit(area);
    at = area.end;
  }
  return true;
}

// As smaps says, for kernels that do not tell it with the mapping.
uint64_t page_in_smaps(uint64_t start, uint64_t end) noexcept {
  Lines lines("/proc/self/smaps");
  Area area;
  uint64_t largest = page_size();
  while (const char *line = lines.next()) {
    unsigned long long kib = 0;
    if (parse(line, area) && area.start >= end) break;
    if (area.end > start && std::sscanf(line, "KernelPageSize: %llu kB", &kib) == 1)
      largest = std::max<uint64_t>(largest, kib << 10);
  }
  return largest;
}

bool starts_with(const char *text, const char *prefix) noexcept {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

bool starts_with_any(const char *text, std::span<const char *const> prefixes) noexcept {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char *prefix) { return starts_with(text, prefix); });
}

enum class Source { memory, file, device, unclear };

// What the filesystem on that device holds. What the kernel has for itself, like the objects of drivers, is on none.
Source source_by_filesystem(uint64_t device) noexcept {
  static constexpr const char *kMemory[] = {"tmpfs ", "hugetlbfs ", "ramfs "};
  static constexpr const char *kInterfaces[] = {"sysfs ", "proc "};  // a PCI device's memory, for one
  Lines lines("/proc/self/mountinfo");
  while (const char *line = lines.next()) {
    unsigned major = 0;
    unsigned minor = 0;
    if (std::sscanf(line, "%*u %*u %u:%u", &major, &minor) != 2 || (uint64_t{major} << 32 | minor) != device) continue;
    const char *type = std::strstr(line, " - ");
    if (!type) continue;  // a long line, which was cut
    if (starts_with_any(type + 3, kMemory)) return Source::memory;
    return starts_with_any(type + 3, kInterfaces) ? Source::unclear : Source::file;
  }
  return Source::unclear;
}

// By the name where it tells: of ordinary memory nothing more shall be read.
Source source_of(const Area &area) noexcept {
  static constexpr const char *kMemory[] = {"[heap]", "[stack",    "[anon",          "/dev/shm/", "/memfd:",
                                            "/SYSV",  "/dev/zero", "/anon_hugepage", "/dev/hugepages"};
  if (!area.name[0] || starts_with_any(area.name, kMemory)) return Source::memory;
  if (starts_with(area.name, "/dev/")) return Source::device;
  if (area.name[0] != '/') return Source::unclear;  // "[vvar]", "anon_inode:[vfio-device]"
  return area.object.device >> 32 ? Source::file : source_by_filesystem(area.object.device);  // no major: not on a disk
}

// The kernel may look at every page of the process for the answer.
bool device_in_smaps(uint64_t start, uint64_t end) noexcept {
  Lines lines("/proc/self/smaps");
  Area area;
  while (const char *line = lines.next()) {
    if (parse(line, area) && area.start >= end) return false;
    const bool device = starts_with(line, "VmFlags:") && (std::strstr(line, " pf ") || std::strstr(line, " io "));
    if (device && area.end > start) return true;
  }
  return false;
}

}  // namespace

Mapping mapping_of(uint64_t start, uint64_t end) noexcept {
  Mapping m{false, true, true, true, true, false, false};
  bool asked = false;
  bool unclear = false;
  m.mapped = each_area(start, end, asked, [&](const Area &area) {
    const Source source = source_of(area);
    m.readable = m.readable && area.readable;
    m.writable = m.writable && area.writable;
    m.anonymous = m.anonymous && source == Source::memory && area.name[0] != '/' && area.object.inode == 0;
    m.device = m.device || source == Source::device;
    m.file = m.file || source == Source::file;
    unclear = unclear || source == Source::unclear;
  });
  if (!m.mapped) m = {};
  if (m.mapped && unclear) m.device = m.device || device_in_smaps(start, end);
  m.unknown = !asked;
  return m;
}

uint64_t largest_page(uint64_t start, uint64_t end) noexcept {
  uint64_t largest = page_size();
  bool told = true;
  bool asked = false;
  each_area(start, end, asked, [&](const Area &area) {
    largest = std::max(largest, area.page);
    const bool file = area.name[0] == '/' && !starts_with(area.name, "/dev/shm/");
    told = told && (area.page || !file);  // what has no name has no huge pages of its own
  });
  return told ? largest : page_in_smaps(start, end);
}

size_t shared_objects(uint64_t start, uint64_t end, std::span<SharedObject> out) noexcept {
  size_t n = 0;
  bool asked = false;
  each_area(start, end, asked, [&](const Area &area) {
    if (!area.shared || n == out.size()) return;  // the first segment of System V has inode 0
    const auto known = std::find_if(out.begin(), out.begin() + static_cast<ptrdiff_t>(n), [&](const SharedObject &o) {
      return o.device == area.object.device && o.inode == area.object.inode;
    });
    if (known == out.begin() + static_cast<ptrdiff_t>(n)) out[n++] = area.object;
  });
  return n;
}

}  // namespace hp
