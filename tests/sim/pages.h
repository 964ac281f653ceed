// How often each page is pinned, as intervals: the cost depends on the number of registrations, not on their size.
#pragma once

#include <cstdint>
#include <map>

namespace sim {

class Pages {
  public:
    void add(uintptr_t start, uintptr_t end, int change);
    uint64_t covered(uintptr_t start, uintptr_t end) const; // bytes
    uint64_t bytes() const { return bytes_; }               // all that is pinned

  private:
    std::map<uintptr_t, int>::iterator split(uintptr_t at);
    void merge(std::map<uintptr_t, int>::iterator border);

    std::map<uintptr_t, int> counts_; // each count holds from its key to the next key
    uint64_t bytes_ = 0;
};

} // namespace sim
