// The script: settings by "key=value,key=value". Keys are documented in hostpin-sim.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sim {

constexpr int max_devices = 16;
constexpr int abort_call = -1;

struct FailRule {
    std::string what;
    uint64_t first, last;
    int code;
};

struct RandomRule {
    std::string what;
    double probability;
    int code;
};

struct DelayRule {
    std::string what;
    double ms, ms_per_gib;
};

struct Settings {
    int devices = 1;
    int init = 0;
    int driver_version = -1; // not scripted
    int lost = 0;
    bool sticky = false;
    bool load_driver = false;
    std::map<std::pair<int, int>, int> attributes; // by device (-1: all) and number
    uint64_t device_offset = 0;

    std::vector<FailRule> fail;
    std::vector<RandomRule> random;
    uint64_t seed = 1;
    std::vector<DelayRule> delay;
    bool serial = false;

    uint64_t max_call_cuda = uint64_t{512} << 30;
    uint64_t max_call_hip = UINT64_MAX;
    uint64_t max_pin = UINT64_MAX;
    uint64_t max_total = UINT64_MAX;
    bool maps = true;
    std::string file_lock;
    int after_destroy = 713;

    enum class Overlap { by_version, accept, refuse } hip_overlap = Overlap::by_version;
    bool hip_iomemory = false;

    int fork = abort_call;
    int exit = abort_call;
    bool trace = false;
    std::string log;
};

// Applies `text` to `settings`. On failure `problem` says what is wrong, and `settings` may be half changed.
bool apply_script(std::string_view text, Settings &settings, std::string &problem);

} // namespace sim
