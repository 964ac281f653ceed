// NVIDIA's driver as libcuda and every libcudart of a process see it: contexts, registrations, allocations, copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "mappings.h"
#include "state.h"

namespace sim::cuda {

namespace {

constexpr unsigned portable = 1, mapped = 2, known_flags = 15, read_only = 8;

const Context *find(const State &state, const Context *context) {
    for (const auto &known : state.contexts)
        if (known.get() == context) return known.get();
    return nullptr;
}

bool has_device(const State &state, int device) { return device >= 0 && device < state.settings.devices; }

Context *top(const Thread &thread) { return thread.depth ? thread.stack[thread.depth - 1] : nullptr; }

void replace_top(Thread &thread, Context *context) {
    if (thread.depth == 0 && context) thread.depth = 1;
    if (thread.depth == 0) return;
    if (context)
        thread.stack[thread.depth - 1] = context;
    else
        --thread.depth;
}

// The runtimes' own reference keeps the context alive until it is reset.
Context *activate_for_runtime(State &state, int device) {
    Context *context = activate_primary(state, device, true);
    Device &d = state.devices[device];
    if (!d.runtime_retained) ++d.retained;
    d.runtime_retained = true;
    return context;
}

int refuse_flags(const State &state, int device, unsigned flags) {
    if (flags & ~known_flags) return invalid_value;
    if (!attribute_of(state, device, 99)) return not_supported;
    bool knows_read_only = attribute_of(state, device, 113) || attribute_of(state, device, 100);
    return (flags & read_only) && !knows_read_only ? not_supported : success;
}

int refuse_size(State &state, const PageRange &range) {
    const Settings &settings = state.settings;
    uint64_t bytes = range.end - range.start;
    if (bytes >= settings.max_call_cuda) return out_of_memory;
    if (bytes > settings.max_pin) return invalid_value;
    uint64_t pinned = state.table(Vendor::cuda).pages.bytes();
    return pinned + bytes > settings.max_total ? out_of_memory : success;
}

void add_registration(State &state, const Context *context, const void *ptr, size_t length, unsigned flags, int kind) {
    PageRange range = pages_of(ptr, length);
    insert(state, Vendor::cuda, {reinterpret_cast<uintptr_t>(ptr), length, range.start, range.end, flags, context, kind});
}

// The device memory block that holds the address.
std::pair<uintptr_t, size_t> device_block(const State &state, uintptr_t address) {
    auto next = state.device_memory.upper_bound(address);
    if (next == state.device_memory.begin()) return {0, 0};
    auto [start, length] = *std::prev(next);
    return address < start + length ? std::pair{start, length} : std::pair{uintptr_t{0}, size_t{0}};
}

// Memory that the simulation can really read or write for an address as device code would use it.
uintptr_t host_address(const State &state, uintptr_t address) {
    uint64_t offset = state.settings.device_offset;
    bool shifted = offset && address >= offset && state.tables[0].pages.covered(address - offset, address - offset + 1);
    return shifted ? address - offset : address;
}

bool may_copy(const State &state, uintptr_t address, size_t length, bool whole) {
    auto [start, size] = device_block(state, address);
    if (size) return length <= start + size - address;
    const Table &table = state.tables[0];
    uint64_t pinned = table.pages.covered(address, address + length);
    if (pinned == 0) return true;
    if (pinned != length) return false;
    return !whole || address + length <= table.containing(address)->end;
}

} // namespace

Context *current() { return top(this_thread()); }

int usable(const Context *context) {
    if (!context) return invalid_context;
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    const Context *known = find(state, context);
    if (!known) return invalid_context;
    return known->alive ? success : context_destroyed;
}

int set_current(Context *context) {
    if (context)
        if (int code = usable(context)) return code;
    replace_top(this_thread(), context);
    return success;
}

int push(Context *context) {
    if (int code = usable(context)) return code;
    Thread &thread = this_thread();
    if (thread.depth == Thread::max_depth) return out_of_memory;
    thread.stack[thread.depth++] = context;
    return success;
}

int pop(Context **context) {
    Thread &thread = this_thread();
    if (thread.depth == 0) return invalid_context;
    --thread.depth;
    if (context) *context = thread.stack[thread.depth];
    return success;
}

int device_of(const Context *context) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    const Context *known = find(state, context);
    return known ? known->device : -1;
}

int retain_primary(int device, Context **context) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    *context = activate_primary(state, device, true);
    ++state.devices[device].retained;
    return success;
}

int release_primary(int device) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    Device &d = state.devices[device];
    if (!d.primary || d.retained == 0) return invalid_context;
    if (--d.retained == 0) destroy_context(state, d.primary);
    return success;
}

int reset_primary(int device) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    if (state.devices[device].primary) destroy_context(state, state.devices[device].primary);
    return success;
}

int primary_active(int device, int *active) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    *active = state.devices[device].primary != nullptr;
    return success;
}

int create(int device, Context **context) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    *context = state.contexts.emplace_back(new Context{device, false, true}).get();
    lock.unlock();
    return push(*context);
}

int destroy(Context *context) {
    if (int code = usable(context)) return code;
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (context->primary) return invalid_context;
    destroy_context(state, context);
    Thread &thread = this_thread();
    if (top(thread) == context) --thread.depth;
    return success;
}

int runtime_device() {
    std::unique_lock lock(sim::state().mutex);
    const Thread &thread = this_thread();
    const Context *context = top(thread);
    return context && context->alive ? context->device : thread.device;
}

int set_runtime_device(int device, bool create_context) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!has_device(state, device)) return invalid_device;
    Thread &thread = this_thread();
    thread.device = device;
    if (create_context) activate_for_runtime(state, device);
    replace_top(thread, state.devices[device].primary);
    return success;
}

Context *runtime_context() {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    Thread &thread = this_thread();
    if (Context *context = top(thread); context && context->alive) return context;
    Context *context = activate_for_runtime(state, thread.device);
    replace_top(thread, context);
    return context;
}

int pin(Context *context, void *ptr, size_t length, unsigned flags) {
    if (!ptr || length == 0 || wraps(ptr, length)) return invalid_value;
    PageRange range = pages_of(ptr, length);
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (capture_forbids(state)) return capture_unsupported;
    if (int code = refuse_flags(state, context->device, flags)) return code;
    if (int code = refuse_size(state, range)) return code;
    bool look_at_maps = state.settings.maps, host_tables = attribute_of(state, context->device, 100);
    lock.unlock();

    Mapping mapping = look_at_maps ? mapping_of(range.start, range.end) : Mapping{true, false, {}};
    if (!mapping.mapped || (mapping.read_only && !(flags & read_only) && !host_tables)) return invalid_value;

    lock.lock();
    if (state.table(Vendor::cuda).pages.covered(range.start, range.end)) return already_registered;
    if (int code = refuse_size(state, range)) return code;
    add_registration(state, context, ptr, length, flags, HPS_REGISTERED);
    return success;
}

int unpin(const void *ptr) {
    if (!ptr) return invalid_value;
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (capture_forbids(state)) return capture_unsupported;
    Table &table = state.table(Vendor::cuda);
    auto found = table.by_base.find(address);
    if (found == table.by_base.end()) {
        if (table.containing(address)) return invalid_value;
        return table.destroyed.contains(address) ? state.settings.after_destroy : not_registered;
    }
    if (found->second.kind == HPS_ALLOCATED) return invalid_value;
    erase(state, Vendor::cuda, address);
    return success;
}

int device_pointer(const void *ptr, void **device_pointer) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    if (!device_pointer || !state.table(Vendor::cuda).containing(address)) return invalid_value;
    *device_pointer = reinterpret_cast<void *>(address + state.settings.device_offset);
    return success;
}

int flags(const void *ptr, unsigned *flags) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    const Registration *found = state.table(Vendor::cuda).containing(reinterpret_cast<uintptr_t>(ptr));
    if (!flags || !found) return invalid_value;
    *flags = found->flags | portable | mapped;
    return success;
}

PointerInfo describe(const void *ptr) {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    void *same = reinterpret_cast<void *>(address);
    if (auto [start, length] = device_block(state, address); length)
        return {2, 0, nullptr, same, reinterpret_cast<void *>(start), length};
    const Registration *found = state.table(Vendor::cuda).containing(address);
    if (!found) return {0, -2, same, nullptr, nullptr, 0};
    int device = found->context ? found->context->device : 0;
    void *shifted = reinterpret_cast<void *>(address + state.settings.device_offset);
    return {1, device, same, shifted, reinterpret_cast<void *>(found->base), found->length};
}

int allocate_host(Context *context, size_t length, unsigned flags, void **ptr) {
    if (!ptr || length == 0 || wraps(nullptr, length)) return invalid_value;
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    PageRange range = pages_of(nullptr, length);
    if (int code = refuse_size(state, range)) return code;
    void *memory = std::aligned_alloc(page_size(), range.end);
    if (!memory) return out_of_memory;
    add_registration(state, context, memory, length, flags, HPS_ALLOCATED);
    *ptr = memory;
    return success;
}

int free_host(void *ptr) {
    if (!ptr) return success;
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    Table &table = state.table(Vendor::cuda);
    auto found = table.by_base.find(reinterpret_cast<uintptr_t>(ptr));
    if (found == table.by_base.end() || found->second.kind != HPS_ALLOCATED) return invalid_value;
    erase(state, Vendor::cuda, found->first);
    std::free(ptr);
    return success;
}

int allocate_device(Context *, size_t length, void **ptr) {
    if (!ptr || length == 0) return invalid_value;
    void *memory = std::malloc(length);
    if (!memory) return out_of_memory;
    std::unique_lock lock(sim::state().mutex);
    sim::state().device_memory[reinterpret_cast<uintptr_t>(memory)] = length;
    *ptr = memory;
    return success;
}

int free_device(void *ptr) {
    if (!ptr) return success;
    std::unique_lock lock(sim::state().mutex);
    if (!sim::state().device_memory.erase(reinterpret_cast<uintptr_t>(ptr))) return invalid_value;
    std::free(ptr);
    return success;
}

int copy(void *to, const void *from, size_t length, int kind, bool whole) {
    if (length == 0) return success;
    if (!to || !from || kind < 0 || kind > 4) return invalid_value;
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    uintptr_t target = host_address(state, reinterpret_cast<uintptr_t>(to));
    uintptr_t source = host_address(state, reinterpret_cast<uintptr_t>(from));
    if (!may_copy(state, target, length, whole) || !may_copy(state, source, length, whole)) return invalid_value;
    lock.unlock();
    std::memmove(reinterpret_cast<void *>(target), reinterpret_cast<void *>(source), length);
    return success;
}

} // namespace sim::cuda
