// The control functions of hostpin-sim.h.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

using sim::State;
using sim::state;
using sim::Vendor;

namespace {

bool valid_vendor(int32_t vendor) { return vendor == HPS_CUDA || vendor == HPS_HIP; }

bool valid_device(int32_t device) { return device >= 0 && device < sim::max_devices; }

bool matches(const sim::Runtime &runtime, const char *part) { return !part || std::strstr(runtime.path, part); }

hps_registration public_form(Vendor vendor, const sim::Registration &r) {
    return {reinterpret_cast<const void *>(r.base), r.length, r.flags,
            static_cast<int32_t>(vendor),           r.kind,   r.context ? r.context->device : -1};
}

// Every registration, by vendor and address.
template <class Visit> void for_each_registration(State &s, Visit visit) {
    for (Vendor vendor : {Vendor::cuda, Vendor::hip}) {
        for (const auto &[base, registration] : s.table(vendor).by_base) visit(vendor, registration);
        for (const auto &registration : s.table(vendor).leaked) visit(vendor, registration);
    }
}

void free_memory(State &s) {
    for (const auto &[start, length] : s.device_memory) std::free(reinterpret_cast<void *>(start));
    for (const auto &[base, registration] : s.table(Vendor::cuda).by_base)
        if (registration.kind == HPS_ALLOCATED) std::free(reinterpret_cast<void *>(base));
}

} // namespace

int32_t hps_script(const char *text) {
    std::lock_guard lock(state().mutex);
    sim::Settings settings = state().settings;
    std::string problem;
    if (!sim::apply_script(text, settings, problem)) {
        std::fprintf(stderr, "hostpin-sim: hps_script: %s\n", problem.c_str());
        return -1;
    }
    take_settings(state(), settings);
    return 0;
}

void hps_reset(void) {
    State &s = state();
    std::lock_guard lock(s.mutex);
    free_memory(s);
    s.device_memory.clear();
    for (sim::Table &table : s.tables) table = {};
    s.pages = {};
    s.devices.assign(sim::max_devices, {});
    for (auto &context : s.contexts) context->alive = false;
    s.captures.clear();
    s.trace.clear();
    s.blocked.clear();
    s.hook = nullptr;
    for (auto &[name, function] : s.functions) function->calls = 0;
    std::ranges::fill(s.initialised, false);
    s.initialised_by = 0;
    ++s.generation;
    sim::read_environment(s);
    s.wake.notify_all();
}

uint64_t hps_calls(const char *what) {
    std::lock_guard lock(state().mutex);
    bool all = std::strcmp(what, "*") == 0;
    uint64_t calls = 0;
    for (const auto &[name, function] : state().functions) {
        bool is_group = name == "register" || name == "unregister";
        if (all ? !is_group : name == what) calls += function->calls;
    }
    return calls;
}

size_t hps_trace(hps_call *calls, size_t capacity) {
    std::lock_guard lock(state().mutex);
    const auto &trace = state().trace;
    std::copy_n(trace.begin(), std::min(capacity, trace.size()), calls);
    return trace.size();
}

void hps_on_call(hps_hook hook, void *user) {
    std::lock_guard lock(state().mutex);
    state().hook = hook;
    state().hook_user = user;
}

void hps_block(const char *what) {
    std::lock_guard lock(state().mutex);
    state().blocked.emplace(what);
}

void hps_unblock(const char *what) {
    std::lock_guard lock(state().mutex);
    state().blocked.erase(what);
    state().wake.notify_all();
}

int32_t hps_wait_blocked(const char *what, uint32_t count, uint32_t timeout_ms) {
    std::unique_lock lock(state().mutex);
    auto enough = [&] {
        auto found = state().functions.find(what);
        return found != state().functions.end() && found->second->waiting >= count;
    };
    return state().wake.wait_for(lock, std::chrono::milliseconds(timeout_ms), enough) ? 0 : -1;
}

int32_t hps_pinned(const void *ptr, size_t length) {
    std::lock_guard lock(state().mutex);
    auto [start, end] = sim::pages_of(ptr, length);
    uint64_t covered = state().pages.covered(start, end);
    if (covered == 0) return HPS_NONE;
    return covered == end - start ? HPS_ALL : HPS_PARTIAL;
}

uint64_t hps_pinned_pages(const void *ptr, size_t length) {
    std::lock_guard lock(state().mutex);
    auto [start, end] = sim::pages_of(ptr, length);
    bool everything = !ptr && length == 0;
    return (everything ? state().pages.bytes() : state().pages.covered(start, end)) / sim::page_size();
}

size_t hps_registrations(hps_registration *out, size_t capacity) {
    std::lock_guard lock(state().mutex);
    size_t count = 0;
    for_each_registration(state(), [&](Vendor vendor, const sim::Registration &registration) {
        if (count < capacity) out[count] = public_form(vendor, registration);
        ++count;
    });
    return count;
}

size_t hps_live_registrations(void) {
    std::lock_guard lock(state().mutex);
    size_t count = 0;
    for_each_registration(state(), [&](Vendor, const sim::Registration &registration) {
        count += registration.kind == HPS_REGISTERED || registration.kind == HPS_LEAKED;
    });
    return count;
}

int32_t hps_pin_foreign(int32_t vendor, const void *ptr, size_t length) {
    if (!valid_vendor(vendor) || !ptr || length == 0 || sim::wraps(ptr, length)) return sim::invalid_value;
    std::lock_guard lock(state().mutex);
    auto [start, end] = sim::pages_of(ptr, length);
    if (state().tables[vendor].pages.covered(start, end)) return sim::already_registered;
    insert(state(), static_cast<Vendor>(vendor), {reinterpret_cast<uintptr_t>(ptr), length, start, end, 0, nullptr, HPS_FOREIGN});
    return sim::success;
}

int32_t hps_unpin_foreign(int32_t vendor, const void *ptr) {
    if (!valid_vendor(vendor)) return sim::invalid_value;
    std::lock_guard lock(state().mutex);
    auto &by_base = state().tables[vendor].by_base;
    auto found = by_base.find(reinterpret_cast<uintptr_t>(ptr));
    if (found == by_base.end() || found->second.kind != HPS_FOREIGN) return sim::not_registered;
    erase(state(), static_cast<Vendor>(vendor), found->first);
    return sim::success;
}

size_t hps_runtimes(const char **paths, size_t capacity) {
    std::lock_guard lock(state().mutex);
    const auto &runtimes = state().runtimes;
    for (size_t i = 0; i < std::min(capacity, runtimes.size()); ++i) paths[i] = runtimes[i]->path;
    return runtimes.size();
}

int32_t hps_set_last_error(const char *runtime, int32_t code) {
    std::lock_guard lock(state().mutex);
    int32_t matched = 0;
    for (const sim::Runtime *copy : state().runtimes) {
        if (!matches(*copy, runtime)) continue;
        copy->slot().last = code;
        ++matched;
    }
    return matched;
}

int32_t hps_last_error(const char *runtime) {
    std::lock_guard lock(state().mutex);
    for (const sim::Runtime *copy : state().runtimes)
        if (matches(*copy, runtime)) return copy->slot().last;
    return -1;
}

uint64_t hps_contexts_created(int32_t device) {
    std::lock_guard lock(state().mutex);
    uint64_t created = 0;
    for (int32_t i = 0; i < sim::max_devices; ++i)
        if (device == -1 || device == i) created += state().devices[i].created;
    return created;
}

int32_t hps_context_active(int32_t device) {
    std::lock_guard lock(state().mutex);
    return valid_device(device) && state().devices[device].primary;
}

void hps_activate_context(int32_t device) {
    if (!valid_device(device)) return;
    std::lock_guard lock(state().mutex);
    activate_primary(state(), device, false);
    ++state().devices[device].retained;
}

void hps_destroy_context(int32_t device) {
    std::lock_guard lock(state().mutex);
    if (valid_device(device) && state().devices[device].primary) destroy_context(state(), state().devices[device].primary);
}

int32_t hps_current_context(void) {
    const sim::Context *context = sim::cuda::current();
    return context ? sim::cuda::device_of(context) : -1;
}

void hps_set_current_context(int32_t device) {
    sim::Thread &thread = sim::this_thread();
    thread.depth = 0;
    if (!valid_device(device)) return;
    std::lock_guard lock(state().mutex);
    thread.device = device;
    thread.stack[thread.depth++] = activate_primary(state(), device, false);
}

void hps_capture_begin(int32_t mode) { sim::begin_capture(mode); }

int32_t hps_capture_end(void) { return sim::end_capture(); }
