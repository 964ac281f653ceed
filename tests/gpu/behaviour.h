// What a behaviour is: something that the vendor's runtime or libhostpin does, with the answer that is expected of it.
#pragma once

#include "libraries.h"

#include <initializer_list>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

namespace gpu {

// What an answer may depend on.
struct Device {
    int count = 0;
    int runtime_version = 0; // 1000 * major + 10 * minor, like the next
    int driver_version = 0;
    std::string name;
    std::map<int, int> attributes;

    int attribute(int number) const;
};

using Condition = bool (*)(const Device &);

// Memory that is mapped read-only can be registered with the flag for it.
bool takes_read_only_flag(const Device &device);
// The device walks the process's page tables: registering only makes pages present (Grace Hopper).
bool uses_host_page_tables(const Device &device);
// Device code may use the host address of registered memory.
bool uses_host_address(const Device &device);
// The driver keeps 16 bytes for each page of a registration in one allocation of 2 GiB at most.
bool refuses_512_gib(const Device &device);
// cudaSetDevice creates the context at once.
bool set_device_creates_context(const Device &device);

// An answer, and another for devices of which a condition does not hold.
struct Answer {
    const char *value;
    Condition condition = nullptr;
    const char *otherwise = nullptr;

    const char *on(const Device &device) const { return !condition || condition(device) ? value : otherwise; }
};

struct Expected {
    Answer real;
    Answer simulated;
    const char *difference = nullptr; // why the simulation answers otherwise on purpose; null where it does not
};

constexpr Expected always(const char *value) { return {{value}, {value}}; }

constexpr Expected depending(Condition condition, const char *value, const char *otherwise) {
    return {{value, condition, otherwise}, {value, condition, otherwise}};
}

constexpr Expected unlike_simulation(Expected real, Expected simulated, const char *why) {
    return {real.real, simulated.real, why};
}

// Where an expected answer comes from. `assumed` is what nobody has said or measured yet: a device settles it.
namespace source {
constexpr const char *documentation = "vendor documentation", *report = "public report",
                     *driver_source = "driver's public source", *measured = "measured", *contract = "hostpin.h",
                     *assumed = "assumed";
}

struct Behaviour {
    const char *id;
    const char *what;
    Expected expected;
    const char *source;
    std::string (*run)(const Libraries &);
};

std::span<const Behaviour> registering_behaviours(); // codes of register and unregister, flags, sizes
std::span<const Behaviour> mapping_behaviours();     // kinds of memory
std::span<const Behaviour> error_behaviours();       // the runtime's last error
std::span<const Behaviour> context_behaviours();     // contexts, devices, runtime beside driver, fork
std::span<const Behaviour> capture_behaviours();     // stream capture
std::span<const Behaviour> access_behaviours();      // device pointers, attributes, copies
std::span<const Behaviour> pin_behaviours();         // libhostpin: what is pinned
std::span<const Behaviour> process_behaviours();     // libhostpin: what happens around it

// Thrown by a behaviour that cannot be tried here.
struct NotApplicable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One part of an answer.
struct Word {
    std::string text;
    Word(int code) : text(std::to_string(code)) {}
    Word(const char *word) : text(word) {}
    Word(std::string word) : text(std::move(word)) {}
};

// The parts in a row. In braces they are evaluated from left to right, so vendor calls may stand there.
std::string answer(std::initializer_list<Word> words);

} // namespace gpu
