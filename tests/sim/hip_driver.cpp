// AMD's runtime: its table is by base address and byte, and it trusts its caller.
#include "mappings.h"
#include "state.h"

namespace sim::hip {

namespace {

constexpr unsigned io_memory = 4;

bool known_flags(const Settings &settings, int major, unsigned flags) {
    if (major <= 5) return true;
    if (major == 6) return flags <= 15;
    unsigned known = 1u | 2u | 8u | 0x80000000u | (settings.hip_iomemory ? io_memory : 0u);
    return !(flags & ~known);
}

int lock_refused(int major) { return major <= 5 ? out_of_memory : invalid_value; }

bool refuses_size(State &state, const PageRange &range) {
    const Settings &settings = state.settings;
    uint64_t bytes = range.end - range.start;
    uint64_t pinned = state.table(Vendor::hip).pages.bytes();
    return bytes >= settings.max_call_hip || bytes > settings.max_pin || pinned + bytes > settings.max_total;
}

// The registration that has the byte, by the nearest base at or below it.
const Registration *holding(const Table &table, uintptr_t address) {
    auto next = table.by_base.upper_bound(address);
    if (next == table.by_base.begin()) return nullptr;
    const Registration &found = std::prev(next)->second;
    return address - found.base < found.length ? &found : nullptr;
}

// Newer versions look at the new base only: a range that encloses an older one passes.
bool refuses_overlap(State &state, int major, const void *ptr) {
    auto rule = state.settings.hip_overlap;
    bool refuse = rule == Settings::Overlap::refuse || (rule == Settings::Overlap::by_version && major >= 7);
    return refuse && holding(state.table(Vendor::hip), reinterpret_cast<uintptr_t>(ptr));
}

} // namespace

int device() { return this_thread().device; }

int set_device(int device) {
    if (device < 0 || device >= device_count()) return invalid_device;
    this_thread().device = device;
    return success;
}

int pin(const Runtime &runtime, void *ptr, size_t length, unsigned flags) {
    if (!ptr || length == 0 || wraps(ptr, length)) return invalid_value;
    PageRange range = pages_of(ptr, length);
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (capture_forbids(state)) return capture_unsupported;
    if (!known_flags(state.settings, runtime.major, flags)) return invalid_value;
    if (refuses_overlap(state, runtime.major, ptr)) return already_registered;
    bool look_at_maps = state.settings.maps;
    lock.unlock();

    Mapping mapping = look_at_maps ? mapping_of(range.start, range.end) : Mapping{true, false, {}};
    if (!mapping.mapped || mapping.read_only) return lock_refused(runtime.major);

    lock.lock();
    if (refuses_size(state, range)) return lock_refused(runtime.major);
    if (refuses_overlap(state, runtime.major, ptr)) return already_registered;
    insert(state, Vendor::hip,
           {reinterpret_cast<uintptr_t>(ptr), length, range.start, range.end, flags, nullptr, HPS_REGISTERED});
    return success;
}

int unpin(const char *function, const void *ptr) {
    if (!ptr) return invalid_value;
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (capture_forbids(state)) return capture_unsupported;
    const Registration *found = holding(state.table(Vendor::hip), address);
    if (!found) return not_registered;
    if (found->base != address) punish(function, "interior pointer of a registration: the real runtime aborts the process");
    erase(state, Vendor::hip, address);
    return success;
}

int device_pointer(const void *ptr, void **device_pointer) {
    State &state = sim::state();
    std::lock_guard lock(state.mutex);
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    if (!device_pointer || !holding(state.table(Vendor::hip), address)) return invalid_value;
    *device_pointer = reinterpret_cast<void *>(address + state.settings.device_offset);
    return success;
}

PointerInfo describe(const void *ptr) {
    State &state = sim::state();
    std::lock_guard lock(state.mutex);
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    const Registration *found = holding(state.table(Vendor::hip), address);
    if (!found) return {};
    void *shifted = reinterpret_cast<void *>(address + state.settings.device_offset);
    return {1, 0, reinterpret_cast<void *>(address), shifted, reinterpret_cast<void *>(found->base), found->length};
}

} // namespace sim::hip
