#include "mappings.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace sim {

namespace {

struct Line {
    uintptr_t start, end;
    char permissions[5];
    char device[16];
    uint64_t inode;
};

bool parse(const char *text, Line &line) {
    return std::sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %15s %" SCNu64, &line.start, &line.end, line.permissions,
                       line.device, &line.inode) == 5;
}

} // namespace

Mapping mapping_of(uintptr_t start, uintptr_t end) {
    Mapping found{false, false, {}};
    std::FILE *maps = std::fopen("/proc/self/maps", "re");
    if (!maps) return found;
    uintptr_t reached = start;
    char text[4352]; // the fields and a path of PATH_MAX
    Line line;
    while (reached < end && std::fgets(text, sizeof text, maps)) {
        if (!parse(text, line) || line.end <= start) continue;
        if (line.start > reached) break;
        if (line.permissions[0] == 'r' && line.permissions[1] != 'w') found.read_only = true;
        bool shared_file = line.permissions[3] == 's' && line.inode != 0;
        if (reached == start && shared_file) found.file = std::string(line.device) + "-" + std::to_string(line.inode);
        reached = std::min(end, line.end);
    }
    std::fclose(maps);
    found.mapped = reached == end;
    return found;
}

} // namespace sim
