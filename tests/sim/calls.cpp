// The course that every vendor call shares: is it allowed at all, count it, let the test interfere, keep a record.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "mappings.h"
#include "state.h"

namespace sim {

namespace {

// A rule for WHAT applies to a function by its name, by its group's, or always.
bool applies(std::string_view what, const Function &function) {
    return what == "*" || what == function.name || (function.group && what == function.group->name);
}

const char *group_of(std::string_view name) {
    static constexpr std::string_view registering[] = {"cudaHostRegister", "cuMemHostRegister_v2", "hipHostRegister"};
    static constexpr std::string_view unregistering[] = {"cudaHostUnregister", "cuMemHostUnregister", "hipHostUnregister"};
    if (std::ranges::count(registering, name)) return "register";
    if (std::ranges::count(unregistering, name)) return "unregister";
    return nullptr;
}

Function &function_locked(State &state, const char *name) {
    auto found = state.functions.find(name);
    if (found != state.functions.end()) return *found->second;
    const char *group = group_of(name);
    auto *created = new Function{name, group ? &function_locked(state, group) : nullptr, 0, 0};
    state.functions.emplace(name, created);
    return *created;
}

// 0, or what a call answers that must not be made any more.
int answer_out_of_time(State &state, const Runtime &runtime, const char *function) {
    std::lock_guard lock(state.mutex);
    if (runtime.ended) {
        if (state.settings.exit == abort_call) punish(function, "called after exit had torn the runtime down");
        return state.settings.exit;
    }
    if (state.initialised_by != 0 && state.initialised_by != getpid()) {
        if (state.settings.fork == abort_call)
            punish(function, "called in a forked child, whose parent had initialised the driver");
        return state.settings.fork;
    }
    return 0;
}

// Takes the lock of the shared file behind a range that is to be registered, if the script asks for it. False: another process
// has it.
bool lock_file(State &state, const Function &function, const Arguments &arguments, int &fd) {
    std::unique_lock lock(state.mutex);
    std::string folder = state.settings.file_lock;
    lock.unlock();
    bool registers = function.group && std::string_view(function.group->name) == "register";
    if (folder.empty() || !registers || wraps(arguments.ptr, arguments.length)) return true;
    auto [start, end] = pages_of(arguments.ptr, arguments.length);
    std::string file = mapping_of(start, end).file;
    if (file.empty()) return true;
    fd = open((folder + "/hostpin-sim-" + file + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void run_hook(State &state, const Function &function, const Arguments &arguments) {
    std::unique_lock lock(state.mutex);
    hps_hook hook = state.hook;
    void *user = state.hook_user;
    lock.unlock();
    if (hook) hook(function.name, arguments.ptr, arguments.length, user);
}

bool is_blocked(const State &state, const Function &function) {
    return state.blocked.contains(std::string_view(function.name)) ||
           (function.group && state.blocked.contains(std::string_view(function.group->name)));
}

void wait_while_blocked(State &state, Function &function) {
    std::unique_lock lock(state.mutex);
    if (!is_blocked(state, function)) return;
    auto count = [&](int change) {
        function.waiting += change;
        if (function.group) function.group->waiting += change;
        state.wake.notify_all();
    };
    count(1);
    state.wake.wait(lock, [&] { return !is_blocked(state, function); });
    count(-1);
}

void sleep_as_scripted(State &state, const Function &function, size_t length) {
    std::unique_lock lock(state.mutex);
    double ms = 0;
    for (const DelayRule &rule : state.settings.delay)
        if (applies(rule.what, function)) ms += rule.ms + rule.ms_per_gib * static_cast<double>(length) / (1 << 30);
    bool serial = state.settings.serial;
    lock.unlock();
    if (ms <= 0) return;
    std::unique_lock one_at_a_time(state.serial, std::defer_lock);
    if (serial) one_at_a_time.lock();
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

int scripted_code(State &state, const Function &function, uint64_t turn, uint64_t group_turn) {
    std::lock_guard lock(state.mutex);
    for (const FailRule &rule : state.settings.fail) {
        if (!applies(rule.what, function)) continue;
        uint64_t n = function.group && rule.what == function.group->name ? group_turn : turn;
        if (n >= rule.first && n <= rule.last) return rule.code;
    }
    for (const RandomRule &rule : state.settings.random)
        if (applies(rule.what, function) && std::uniform_real_distribution<>()(state.random) < rule.probability) return rule.code;
    return 0;
}

void write_log_line(const std::string &file, const hps_call &call) {
    std::FILE *log = std::fopen(file.c_str(), "ae");
    if (!log) return;
    std::fprintf(log, "%d %" PRId64 " %s %p %zu %" PRIu32 " %d %s\n", getpid(), call.thread, call.function, call.ptr, call.length,
                 call.flags, call.code, call.runtime);
    std::fclose(log);
}

} // namespace

void punish(const char *function, const char *why) {
    char line[256];
    int length = std::snprintf(line, sizeof line, "hostpin-sim: %s (pid %d): %s\n", function, getpid(), why);
    if (write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) std::abort();
    std::abort();
}

void attach(Runtime &runtime) {
    Dl_info info{};
    dladdr(&runtime, &info);
    std::lock_guard lock(state().mutex);
    runtime.path = state().paths.emplace(info.dli_fname ? info.dli_fname : "").first->c_str();
    state().runtimes.push_back(&runtime);
}

void detach(Runtime &runtime) {
    runtime.ended = true;
    std::lock_guard lock(state().mutex);
    std::erase(state().runtimes, &runtime);
}

Function &function(const char *name) {
    std::lock_guard lock(state().mutex);
    return function_locked(state(), name);
}

Call::Call(const Runtime &runtime, Function &function, const Arguments &arguments)
    : runtime_(runtime), function_(function), arguments_(arguments) {
    State &state = sim::state();
    uint64_t turn = ++function.calls;
    uint64_t group_turn = function.group ? ++function.group->calls : 0;
    scripted_ = answer_out_of_time(state, runtime, function.name);
    if (scripted_) return;
    bool exclusive = lock_file(state, function, arguments, file_lock_);
    run_hook(state, function, arguments);
    wait_while_blocked(state, function);
    sleep_as_scripted(state, function, arguments.length);
    scripted_ = exclusive ? scripted_code(state, function, turn, group_turn) : int{invalid_value};
}

Call::~Call() {
    if (file_lock_ >= 0) close(file_lock_);
}

void Call::answered(int code) const {
    State &state = sim::state();
    std::unique_lock lock(state.mutex);
    if (!state.settings.trace && state.settings.log.empty()) return;
    hps_call call{function_.name, runtime_.path, arguments_.ptr, arguments_.length, gettid(), arguments_.flags, code};
    if (state.settings.trace) state.trace.push_back(call);
    std::string log = state.settings.log;
    lock.unlock();
    if (!log.empty()) write_log_line(log, call);
}

int initialise(const Runtime &runtime) {
    State &state = sim::state();
    std::lock_guard lock(state.mutex);
    const Settings &settings = state.settings;
    if (settings.lost) return settings.lost;
    if (runtime.init) return runtime.init;
    if (settings.init) return settings.init;
    bool too_old =
        runtime.vendor == Vendor::cuda && settings.driver_version >= 0 && settings.driver_version / 1000 < runtime.major;
    if (too_old) return insufficient_driver;
    if (settings.devices == 0) return no_device;
    state.initialised[static_cast<int>(runtime.vendor)] = true;
    state.initialised_by = getpid();
    return success;
}

bool initialised(Vendor vendor) {
    std::lock_guard lock(state().mutex);
    return state().initialised[static_cast<int>(vendor)];
}

int lost_code() {
    std::lock_guard lock(state().mutex);
    return state().settings.lost;
}

int take_error(int &pending) {
    std::lock_guard lock(state().mutex);
    return state().settings.sticky ? pending : std::exchange(pending, 0);
}

bool loads_driver() {
    std::lock_guard lock(state().mutex);
    return state().settings.load_driver;
}

int driver_version() {
    std::lock_guard lock(state().mutex);
    const Settings &settings = state().settings;
    if (settings.driver_version >= 0) return settings.driver_version;
    return settings.init == insufficient_driver ? 0 : 13000;
}

uint64_t generation() { return state().generation; }

int device_count() {
    std::lock_guard lock(state().mutex);
    return state().settings.devices;
}

int attribute(int device, int number) {
    std::lock_guard lock(state().mutex);
    return attribute_of(state(), device, number);
}

int exchange_capture_mode(int *mode) {
    if (!mode || *mode < HPS_CAPTURE_GLOBAL || *mode > HPS_CAPTURE_RELAXED) return invalid_value;
    std::swap(this_thread().capture_mode, *mode);
    return success;
}

int begin_capture(int mode) {
    if (mode < HPS_CAPTURE_GLOBAL || mode > HPS_CAPTURE_RELAXED) return invalid_value;
    std::lock_guard lock(state().mutex);
    state().captures.push_back({gettid(), mode, false});
    return success;
}

int end_capture() {
    std::lock_guard lock(state().mutex);
    auto &captures = state().captures;
    pid_t thread = gettid();
    auto found = std::ranges::find_if(captures, [&](const Capture &c) { return c.thread == thread; });
    if (found == captures.end()) return invalid_value;
    bool broken = found->broken;
    captures.erase(found);
    return broken ? capture_invalidated : success;
}

} // namespace sim
