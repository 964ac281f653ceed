#include "state.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sim {

State &state() {
    static State *instance = [] {
        auto *created = new State;
        read_environment(*created);
        // A forked child may look at the state, so the lock must not be held at the moment of forking.
        pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, [] { state().mutex.unlock(); });
        return created;
    }();
    return *instance;
}

Thread &this_thread() {
    static thread_local Thread thread{};
    uint64_t now = state().generation.load();
    if (thread.generation != now) thread = Thread{now, {}, 0, 0, HPS_CAPTURE_GLOBAL};
    return thread;
}

void take_settings(State &state, const Settings &settings) {
    state.settings = settings;
    state.random.seed(settings.seed);
}

void read_environment(State &state) {
    Settings settings;
    std::string problem;
    const char *text = std::getenv("HOSTPIN_SIM");
    if (text && !apply_script(text, settings, problem)) {
        std::fprintf(stderr, "hostpin-sim: HOSTPIN_SIM: %s\n", problem.c_str());
        std::abort();
    }
    take_settings(state, settings);
}

uint64_t page_size() {
    static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}

bool wraps(const void *ptr, size_t length) {
    uint64_t room = UINTPTR_MAX - page_size();
    return length > room || reinterpret_cast<uintptr_t>(ptr) > room - length;
}

PageRange pages_of(const void *ptr, size_t length) {
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr), mask = page_size() - 1;
    return {address & ~mask, (address + length + mask) & ~mask};
}

const Registration *Table::containing(uintptr_t address) const {
    auto next = by_base.upper_bound(address);
    // An unaligned base leaves the beginning of its first page to the entry that follows.
    if (next != by_base.end() && next->second.start <= address) return &next->second;
    if (next == by_base.begin()) return nullptr;
    const Registration &found = std::prev(next)->second;
    return address < found.end ? &found : nullptr;
}

void change_pages(State &state, Vendor vendor, const Registration &registration, int change) {
    state.table(vendor).pages.add(registration.start, registration.end, change);
    state.pages.add(registration.start, registration.end, change);
}

void insert(State &state, Vendor vendor, const Registration &registration) {
    Table &table = state.table(vendor);
    change_pages(state, vendor, registration, 1);
    table.destroyed.erase(registration.base);
    if (!table.by_base.try_emplace(registration.base, registration).second) {
        table.leaked.push_back(registration);
        table.leaked.back().kind = HPS_LEAKED;
    }
}

void erase(State &state, Vendor vendor, uintptr_t base) {
    Table &table = state.table(vendor);
    auto found = table.by_base.find(base);
    change_pages(state, vendor, found->second, -1);
    table.by_base.erase(found);
}

bool capture_forbids(State &state) {
    int mode = this_thread().capture_mode;
    pid_t thread = gettid();
    bool forbidden = false;
    for (Capture &capture : state.captures) {
        bool own = capture.thread == thread;
        bool collides =
            own ? capture.mode != HPS_CAPTURE_RELAXED : capture.mode == HPS_CAPTURE_GLOBAL && mode == HPS_CAPTURE_GLOBAL;
        if (mode == HPS_CAPTURE_RELAXED || !collides) continue;
        capture.broken = forbidden = true;
    }
    return forbidden;
}

Context *activate_primary(State &state, int device, bool count) {
    Device &d = state.devices[device];
    if (!d.primary) {
        d.primary = state.contexts.emplace_back(new Context{device, true, true}).get();
        d.retained = 0;
        d.runtime_retained = false;
        if (count) ++d.created;
    }
    return d.primary;
}

void destroy_context(State &state, Context *context) {
    context->alive = false;
    Device &device = state.devices[context->device];
    if (device.primary == context) device.primary = nullptr;
    Table &table = state.table(Vendor::cuda);
    for (auto it = table.by_base.begin(); it != table.by_base.end();) {
        const Registration &registration = (it++)->second;
        if (registration.context != context) continue;
        table.destroyed.insert(registration.base);
        erase(state, Vendor::cuda, registration.base);
    }
}

int attribute_of(const State &state, int device, int number) {
    const auto &scripted = state.settings.attributes;
    for (int which : {device, -1}) {
        auto found = scripted.find({which, number});
        if (found != scripted.end()) return found->second;
    }
    if (number == 91) return state.settings.device_offset == 0;
    return number == 19 || number == 41 || number == 99; // CanMapHostMemory, UnifiedAddressing, HostRegisterSupported
}

} // namespace sim
