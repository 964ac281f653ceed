#include "script.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace sim {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (;;) {
        size_t at = text.find(separator);
        parts.emplace_back(text.substr(0, at));
        if (at == text.npos) return parts;
        text.remove_prefix(at + 1);
    }
}

template <class Number> bool parse(std::string_view text, Number &out) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc{} && end == text.data() + text.size();
}

bool parse(std::string_view text, bool &out) {
    if (text != "0" && text != "1") return false;
    out = text == "1";
    return true;
}

// strtod accepts more than plain decimals ("inf", "nan"), hence the last test.
bool parse(const std::string &text, double &out) {
    char *end = nullptr;
    out = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && std::isfinite(out) && out >= 0;
}

bool parse_size(std::string_view text, uint64_t &out) {
    static constexpr std::string_view units = "KMGT";
    unsigned shift = 0;
    if (!text.empty() && units.find(text.back()) != units.npos) {
        shift = 10 * (static_cast<unsigned>(units.find(text.back())) + 1);
        text.remove_suffix(1);
    }
    bool hex = text.starts_with("0x");
    if (hex) text.remove_prefix(2);
    uint64_t number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, hex ? 16 : 10);
    if (error != std::errc{} || end != text.data() + text.size() || number > UINT64_MAX >> shift) return false;
    out = number << shift;
    return true;
}

bool parse_devices(std::string_view text, int &out) { return parse(text, out) && out >= 0 && out <= max_devices; }

bool parse_answer(std::string_view text, int &out) {
    if (text == "abort") {
        out = abort_call;
        return true;
    }
    return parse(text, out) && out > 0;
}

bool parse_overlap(std::string_view text, Settings::Overlap &out) {
    out = text == "accept" ? Settings::Overlap::accept : Settings::Overlap::refuse;
    return text == "accept" || text == "refuse";
}

bool parse_attribute(std::string_view text, Settings &settings) {
    auto parts = split(text, ':');
    int number = 0, value = 0, device = -1;
    if (parts.size() < 2 || parts.size() > 3 || !parse(parts[0], number) || !parse(parts[1], value)) return false;
    if (parts.size() == 3 && !parse(parts[2], device)) return false;
    settings.attributes[{device, number}] = value;
    return true;
}

// "3", "3-5", "3+" or "*"
bool parse_turns(std::string_view text, FailRule &rule) {
    rule.first = 1;
    rule.last = UINT64_MAX;
    if (text == "*") return true;
    if (text.ends_with('+')) return parse(text.substr(0, text.size() - 1), rule.first);
    size_t dash = text.find('-');
    if (!parse(text.substr(0, dash), rule.first)) return false;
    rule.last = rule.first;
    return dash == text.npos || parse(text.substr(dash + 1), rule.last);
}

bool parse_fail(std::string_view text, Settings &settings) {
    auto parts = split(text, ':');
    FailRule rule{};
    if (parts.size() != 3 || parts[0].empty() || !parse_turns(parts[1], rule) || !parse(parts[2], rule.code)) return false;
    rule.what = parts[0];
    settings.fail.push_back(rule);
    return true;
}

bool parse_random(std::string_view text, Settings &settings) {
    auto parts = split(text, ':');
    RandomRule rule{};
    if (parts.size() != 3 || parts[0].empty() || !parse(parts[1], rule.probability) || !parse(parts[2], rule.code)) return false;
    rule.what = parts[0];
    settings.random.push_back(rule);
    return rule.probability <= 1;
}

bool parse_delay(std::string_view text, Settings &settings) {
    auto parts = split(text, ':');
    DelayRule rule{};
    if (parts.size() < 2 || parts.size() > 3 || parts[0].empty() || !parse(parts[1], rule.ms)) return false;
    if (parts.size() == 3 && !parse(parts[2], rule.ms_per_gib)) return false;
    rule.what = parts[0];
    settings.delay.push_back(rule);
    return true;
}

bool parse_max_call(std::string_view text, Settings &settings) {
    if (!parse_size(text, settings.max_call_cuda)) return false;
    settings.max_call_hip = settings.max_call_cuda;
    return true;
}

bool parse_text(std::string_view text, std::string &out) {
    out = text;
    return true;
}

struct Key {
    const char *name;
    bool (*apply)(std::string_view value, Settings &settings);
};

constexpr Key keys[] = {
    {"devices", [](std::string_view v, Settings &s) { return parse_devices(v, s.devices); }},
    {"init", [](std::string_view v, Settings &s) { return parse(v, s.init); }},
    {"driver_version", [](std::string_view v, Settings &s) { return parse(v, s.driver_version); }},
    {"load_driver", [](std::string_view v, Settings &s) { return parse(v, s.load_driver); }},
    {"lost", [](std::string_view v, Settings &s) { return parse(v, s.lost); }},
    {"sticky", [](std::string_view v, Settings &s) { return parse(v, s.sticky); }},
    {"attribute", parse_attribute},
    {"device_offset", [](std::string_view v, Settings &s) { return parse_size(v, s.device_offset); }},
    {"fail", parse_fail},
    {"random", parse_random},
    {"seed", [](std::string_view v, Settings &s) { return parse(v, s.seed); }},
    {"delay", parse_delay},
    {"serial", [](std::string_view v, Settings &s) { return parse(v, s.serial); }},
    {"max_call", parse_max_call},
    {"max_pin", [](std::string_view v, Settings &s) { return parse_size(v, s.max_pin); }},
    {"max_total", [](std::string_view v, Settings &s) { return parse_size(v, s.max_total); }},
    {"maps", [](std::string_view v, Settings &s) { return parse(v, s.maps); }},
    {"file_lock", [](std::string_view v, Settings &s) { return parse_text(v, s.file_lock); }},
    {"after_destroy", [](std::string_view v, Settings &s) { return parse(v, s.after_destroy); }},
    {"hip_overlap", [](std::string_view v, Settings &s) { return parse_overlap(v, s.hip_overlap); }},
    {"hip_iomemory", [](std::string_view v, Settings &s) { return parse(v, s.hip_iomemory); }},
    {"fork", [](std::string_view v, Settings &s) { return parse_answer(v, s.fork); }},
    {"exit", [](std::string_view v, Settings &s) { return parse_answer(v, s.exit); }},
    {"trace", [](std::string_view v, Settings &s) { return parse(v, s.trace); }},
    {"log", [](std::string_view v, Settings &s) { return parse_text(v, s.log); }},
};

const Key *find_key(std::string_view name) {
    for (const Key &key : keys)
        if (name == key.name) return &key;
    return nullptr;
}

} // namespace

bool apply_script(std::string_view text, Settings &settings, std::string &problem) {
    for (const std::string &part : split(text, ',')) {
        if (part.empty()) continue;
        std::string_view pair = part;
        size_t equals = pair.find('=');
        const Key *key = equals == pair.npos ? nullptr : find_key(pair.substr(0, equals));
        if (!key) {
            problem = "no such key: \"" + part + "\"";
            return false;
        }
        if (!key->apply(pair.substr(equals + 1), settings)) {
            problem = "bad value: \"" + part + "\"";
            return false;
        }
    }
    return true;
}

} // namespace sim
