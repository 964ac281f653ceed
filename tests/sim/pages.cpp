#include "pages.h"

#include <algorithm>
#include <iterator>

namespace sim {

std::map<uintptr_t, int>::iterator Pages::split(uintptr_t at) {
    auto next = counts_.upper_bound(at);
    int count = next == counts_.begin() ? 0 : std::prev(next)->second;
    return counts_.try_emplace(at, count).first;
}

void Pages::merge(std::map<uintptr_t, int>::iterator border) {
    int before = border == counts_.begin() ? 0 : std::prev(border)->second;
    if (border->second == before) counts_.erase(border);
}

void Pages::add(uintptr_t start, uintptr_t end, int change) {
    if (start == end) return;
    auto first = split(start);
    auto last = split(end);
    for (auto it = first; it != last; ++it) {
        uint64_t length = std::next(it)->first - it->first;
        bytes_ -= it->second > 0 ? length : 0;
        it->second += change;
        bytes_ += it->second > 0 ? length : 0;
    }
    merge(last);
    merge(first);
}

uint64_t Pages::covered(uintptr_t start, uintptr_t end) const {
    auto it = counts_.upper_bound(start);
    if (it != counts_.begin()) --it;
    uint64_t bytes = 0;
    for (; it != counts_.end() && it->first < end; ++it) {
        auto next = std::next(it);
        uintptr_t to = next == counts_.end() ? end : std::min(end, next->first);
        uintptr_t from = std::max(start, it->first);
        if (it->second > 0 && to > from) bytes += to - from;
    }
    return bytes;
}

} // namespace sim
