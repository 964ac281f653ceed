// The frame of one simulated runtime library: its place on the driver's list and its threads' last errors.
// Include once per library, after defining SIM_VENDOR, SIM_MAJOR, SIM_VERSION and, for a stub, SIM_INIT.
#pragma once

#include <cstdlib>

#include "driver.h"

#ifndef SIM_INIT
#define SIM_INIT 0
#endif

#define VENDOR_API extern "C" __attribute__((visibility("default")))

namespace {

sim::ErrorSlot &error_slot() {
    static thread_local sim::ErrorSlot slot{};
    uint64_t now = sim::generation();
    if (slot.generation != now) slot = {now, 0, 0};
    return slot;
}

constinit sim::Runtime runtime{sim::Vendor::SIM_VENDOR, SIM_MAJOR, SIM_VERSION, SIM_INIT, error_slot, nullptr, false};

// As in the real ones, a static object's destructor is the teardown: exit() runs it early, before those of the program.
struct Presence {
    Presence() {
        sim::attach(runtime);
        std::at_quick_exit([] { sim::detach(runtime); });
    }
    ~Presence() { sim::detach(runtime); }
} presence;

// One exported call: `body` runs unless the script has another answer, `record` keeps the code as the last error.
template <class Body, class Record> int course(const char *name, const sim::Arguments &arguments, Body body, Record record) {
    static sim::Function &function = sim::function(name); // one per call site: Body is a type of its own
    sim::Call call(runtime, function, arguments);
    int code = call.scripted();
    if (code == sim::success) code = body();
    record(code);
    call.answered(code);
    return code;
}

constexpr auto unrecorded = [](int) {};

} // namespace
