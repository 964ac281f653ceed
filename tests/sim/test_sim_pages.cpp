// The interval counts against a plain array of pages.
#include <array>
#include <random>

#include "pages.h"
#include "sim_test.h"

TEST_CASE("interval counts agree with counting page by page") {
    constexpr unsigned pages = 64;
    std::mt19937 random(7);
    sim::Pages intervals;
    std::array<int, pages> counts{};
    struct Range {
        unsigned start, end;
    };
    std::vector<Range> live;
    auto any = [&](unsigned n) { return static_cast<unsigned>(random() % n); };

    for (int step = 0; step < 20000; ++step) {
        int change = live.empty() || any(2) ? 1 : -1;
        size_t which = live.empty() ? 0 : any(static_cast<unsigned>(live.size()));
        unsigned a = any(pages), b = any(pages) + 1;
        Range range = change > 0 ? Range{std::min(a, b), std::max(a, b)} : live[which];
        if (live.size() > 12 && change > 0) continue;
        if (change > 0)
            live.push_back(range);
        else
            live.erase(live.begin() + static_cast<long>(which));
        intervals.add(range.start * page, range.end * page, change);
        for (unsigned i = range.start; i < range.end; ++i) counts[i] += change;

        unsigned from = any(pages), to = from + any(pages - from) + 1;
        uint64_t expected = 0, all = 0;
        for (unsigned i = 0; i < pages; ++i) {
            expected += counts[i] > 0 && i >= from && i < to;
            all += counts[i] > 0;
        }
        REQUIRE(intervals.covered(from * page, to * page) == expected * page);
        REQUIRE(intervals.bytes() == all * page);
    }
    for (Range range : live) intervals.add(range.start * page, range.end * page, -1);
    CHECK(intervals.bytes() == 0);
    CHECK(intervals.covered(0, UINTPTR_MAX) == 0);
}
