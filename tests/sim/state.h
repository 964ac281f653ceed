// The simulated drivers' state: one per process, whatever number of runtimes is loaded.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "driver.h"
#include "hostpin-sim.h"
#include "pages.h"
#include "script.h"

namespace sim {

struct Context {
    int device;
    bool primary;
    bool alive;
};

struct Device {
    Context *primary = nullptr; // null while inactive
    unsigned retained = 0;
    bool runtime_retained = false; // the runtimes hold one reference between them
    uint64_t created = 0;
};

struct Registration {
    uintptr_t base;
    size_t length;
    uintptr_t start, end; // whole pages
    unsigned flags;
    const Context *context;
    int kind; // HPS_REGISTERED and so on
};

// One vendor's registrations.
struct Table {
    std::map<uintptr_t, Registration> by_base;
    std::vector<Registration> leaked;
    std::set<uintptr_t> destroyed; // bases that went with their context
    Pages pages;

    const Registration *containing(uintptr_t address) const;
};

struct Capture {
    pid_t thread;
    int mode;
    bool broken;
};

struct State {
    std::mutex mutex; // of everything here that is not atomic
    std::condition_variable wake;
    std::mutex serial; // "the driver's own lock" of the key serial=1

    Settings settings;
    std::mt19937_64 random;
    std::atomic<uint64_t> generation{1};
    pid_t initialised_by = 0;
    bool initialised[2] = {};

    std::map<std::string, Function *, std::less<>> functions;
    std::set<std::string, std::less<>> blocked;
    hps_hook hook = nullptr;
    void *hook_user = nullptr;
    std::vector<hps_call> trace;
    std::vector<Runtime *> runtimes;
    std::set<std::string> paths; // of all runtimes ever loaded

    Table tables[2];
    Pages pages; // of both vendors
    std::vector<Device> devices{max_devices};
    std::vector<std::unique_ptr<Context>> contexts; // kept when destroyed, so that a stale handle is recognised
    std::vector<Capture> captures;
    std::map<uintptr_t, size_t> device_memory;

    Table &table(Vendor vendor) { return tables[static_cast<int>(vendor)]; }
};

// Leaked on purpose: runtimes may call until the very end of the process.
State &state();

// What each thread has of its own. Void after a reset.
struct Thread {
    static constexpr int max_depth = 16;

    uint64_t generation;
    Context *stack[max_depth];
    int depth;
    int device;
    int capture_mode;
};

Thread &this_thread();

void read_environment(State &state); // settings from HOSTPIN_SIM; aborts on a bad one
void take_settings(State &state, const Settings &settings);

// The rest wants state().mutex held.
struct PageRange {
    uintptr_t start, end;
};
PageRange pages_of(const void *ptr, size_t length);
uint64_t page_size();
bool wraps(const void *ptr, size_t length);

void insert(State &state, Vendor vendor, const Registration &registration);
void erase(State &state, Vendor vendor, uintptr_t base);
void change_pages(State &state, Vendor vendor, const Registration &registration, int change);
bool capture_forbids(State &state); // a potentially unsafe call of the calling thread; breaks the captures it collides with
Context *activate_primary(State &state, int device, bool count);
void destroy_context(State &state, Context *context);
int attribute_of(const State &state, int device, int number);

} // namespace sim
