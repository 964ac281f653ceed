#include "rates.h"

#include "memory.h"
#include "stream.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace gpu {

namespace {

using nlohmann::json;

constexpr std::size_t copy_sizes[] = {64 * kib, mib, 16 * mib, 256 * mib, gib};
constexpr std::size_t register_sizes[] = {4 * kib, mib, 64 * mib, gib, 4 * gib};
constexpr int repetitions = 7;

void check(int code, const char *call) {
    if (code) throw std::runtime_error(std::string(call) + " answers " + std::to_string(code));
}

double seconds(const std::function<void()> &work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

char *fresh(std::size_t bytes) {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory");
    return static_cast<char *>(memory);
}

char *touched(std::size_t bytes) {
    char *memory = fresh(bytes);
    std::memset(memory, 1, bytes);
    return memory;
}

// ---- Copies

class Copies {
public:
    Copies(const Libraries &lib, std::size_t bytes) : lib_(lib), bytes_(bytes), streams_{Stream(lib), Stream(lib)} {
        check(lib.runtime.malloc(&device_, 2 * bytes), "cudaMalloc");
        for (const Stream &stream : streams_) check(stream.code(), "cudaStreamCreate");
    }
    ~Copies() { lib_.runtime.free(device_); }
    Copies(const Copies &) = delete;
    Copies &operator=(const Copies &) = delete;

    // GB/s to the device, back, and both at once, between `host` (two buffers of the size) and the device.
    json rates(char *host) const {
        const auto to = [&] { start(0, device_, host, host_to_device); };
        const auto back = [&] { start(1, host + bytes_, static_cast<char *>(device_) + bytes_, device_to_host); };
        return {{"to_device", rate(1, to)}, {"to_host", rate(1, back)}, {"both", rate(2, [&] { to(), back(); })}};
    }

private:
    void start(int stream, void *to, const void *from, int kind) const {
        check(lib_.runtime.memcpy_async(to, from, bytes_, kind, streams_[stream].get()), "cudaMemcpyAsync");
    }

    double rate(int directions, const std::function<void()> &copies) const {
        // Small copies are repeated in one measurement: a clock and a synchronisation would otherwise count.
        const std::size_t rounds = std::max<std::size_t>(1, 16 * mib / bytes_);
        const auto work = [&] {
            for (std::size_t i = 0; i < rounds; ++i) copies();
            for (const Stream &stream : streams_)
                check(lib_.runtime.stream_synchronize(stream.get()), "cudaStreamSynchronize");
        };
        work();
        std::vector<double> times;
        for (int i = 0; i < repetitions; ++i) times.push_back(seconds(work));
        return static_cast<double>(bytes_ * rounds) * directions / median(times) / 1e9;
    }

    const Libraries &lib_;
    std::size_t bytes_;
    void *device_ = nullptr;
    Stream streams_[2];
};

json copy_rates(const Libraries &lib, std::size_t bytes) {
    const Copies copies(lib, bytes);
    json result{{"bytes", bytes}};

    char *memory = touched(2 * bytes);
    result["pageable"] = copies.rates(memory);
    check(lib.hostpin.pin(memory, 2 * bytes, HP_REGISTER_REQUIRED), "hp_register");
    result["hp_register"] = copies.rates(memory);
    check(lib.hostpin.unpin(memory), "hp_unregister");
    munmap(memory, 2 * bytes);

    void *allocated = nullptr;
    check(lib.runtime.host_alloc(&allocated, 2 * bytes, 0), "cudaHostAlloc");
    std::memset(allocated, 1, 2 * bytes);
    result["cudaHostAlloc"] = copies.rates(static_cast<char *>(allocated));
    return result;
}

// ---- Registering

struct Calls {
    const char *name;
    std::function<void(char *, std::size_t)> pin;
    std::function<void(char *)> unpin;
};

// Milliseconds to register memory that was never touched, memory that was, and to unregister it.
json register_times(const Calls &calls, std::size_t bytes) {
    std::vector<double> cold, warm, end;
    for (int i = 0; i < repetitions; ++i) {
        char *memory = fresh(bytes);
        cold.push_back(seconds([&] { calls.pin(memory, bytes); }));
        calls.unpin(memory);
        munmap(memory, bytes);

        memory = touched(bytes);
        warm.push_back(seconds([&] { calls.pin(memory, bytes); }));
        end.push_back(seconds([&] { calls.unpin(memory); }));
        munmap(memory, bytes);
    }
    return {{"cold_ms", median(cold) * 1e3}, {"warm_ms", median(warm) * 1e3}, {"unregister_ms", median(end) * 1e3}};
}

json registering(const Libraries &lib, std::size_t bytes) {
    const Calls all[] = {
        {"cudaHostRegister",
         [&](char *memory, std::size_t length) { check(lib.runtime.host_register(memory, length, 1), "cudaHostRegister"); },
         [&](char *memory) { check(lib.runtime.host_unregister(memory), "cudaHostUnregister"); }},
        {"hp_register",
         [&](char *memory, std::size_t length) { check(lib.hostpin.pin(memory, length, HP_REGISTER_REQUIRED), "hp_register"); },
         [&](char *memory) { check(lib.hostpin.unpin(memory), "hp_unregister"); }}};
    json result{{"bytes", bytes}};
    for (const Calls &calls : all) result[calls.name] = register_times(calls, bytes);
    return result;
}

// ---- Tables

std::string size_text(std::size_t bytes) {
    if (bytes >= gib) return std::to_string(bytes / gib) + " GiB";
    if (bytes >= mib) return std::to_string(bytes / mib) + " MiB";
    return std::to_string(bytes / kib) + " KiB";
}

std::string number(double value) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(value < 10 ? 3 : 1) << value;
    return text.str();
}

using Table = std::vector<std::vector<std::string>>; // the first row is the heading

Table copy_table(const json &rates) {
    Table table{{"GB/s", "memory", "to device", "to host", "both at once"}};
    for (const json &size : rates["copies"])
        for (const char *kind : {"pageable", "cudaHostAlloc", "hp_register"})
            table.push_back({size_text(size["bytes"]), kind, number(size[kind]["to_device"]),
                             number(size[kind]["to_host"]), number(size[kind]["both"])});
    return table;
}

Table register_table(const json &rates) {
    Table table{{"ms", "call", "untouched memory", "touched memory", "unregister"}};
    for (const json &size : rates["registering"])
        for (const char *call : {"cudaHostRegister", "hp_register"})
            table.push_back({size_text(size["bytes"]), call, number(size[call]["cold_ms"]),
                             number(size[call]["warm_ms"]), number(size[call]["unregister_ms"])});
    return table;
}

void print(std::ostream &out, const Table &table) {
    std::vector<std::size_t> widths(table[0].size());
    for (const auto &row : table)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto &row : table) {
        for (std::size_t i = 0; i < row.size(); ++i)
            out << std::left << std::setw(static_cast<int>(widths[i] + 2)) << row[i];
        out << '\n';
    }
}

void print_markdown(std::ostream &out, const Table &table) {
    for (const auto &row : table) {
        for (const std::string &text : row) out << "| " << text << ' ';
        out << "|\n";
        if (&row != &table.front()) continue;
        for (std::size_t i = 0; i < row.size(); ++i) out << "| --- ";
        out << "|\n";
    }
}

} // namespace

std::string measure(const Libraries &lib, std::size_t largest) try {
    check(lib.runtime.free(nullptr), "cudaFree(0)");
    json result{{"repetitions", repetitions}, {"copies", json::array()}, {"registering", json::array()}};
    for (const std::size_t bytes : copy_sizes)
        if (bytes <= largest) result["copies"].push_back(copy_rates(lib, bytes));
    for (const std::size_t bytes : register_sizes)
        if (bytes <= largest) result["registering"].push_back(registering(lib, bytes));
    return result.dump();
} catch (const std::runtime_error &problem) {
    return json{{"problem", problem.what()}}.dump();
}

std::string problem_of(const std::string &text) {
    const json rates = json::parse(text, nullptr, false);
    if (rates.is_discarded()) return text.empty() ? "no answer" : text;
    return rates.value("problem", "");
}

void print_rates(std::ostream &out, const std::string &text) {
    const json rates = json::parse(text);
    out << "\nmedians of " << rates["repetitions"] << "\n\n";
    print(out, copy_table(rates));
    out << '\n';
    print(out, register_table(rates));
}

void print_rates_markdown(std::ostream &out, const std::string &text) {
    const json rates = json::parse(text);
    out << "\nMedians of " << rates["repetitions"] << ". Copies:\n\n";
    print_markdown(out, copy_table(rates));
    out << "\nRegistering and unregistering:\n\n";
    print_markdown(out, register_table(rates));
}

} // namespace gpu
