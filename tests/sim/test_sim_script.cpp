// The script and the controls: failures on demand, delays, blocks, hooks, records.
#include <chrono>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "script.h"
#include "sim_test.h"

namespace {

struct Scripted : Fresh {
    Library cudart{"cudart12", "libcudart.so.12"};
    Library hip{"amdhip7", "libamdhip64.so.7"};
    Memory memory{mib};

    int add(size_t at = 0) { return cudart("cudaHostRegister", memory.at(at), page, 0u); }
    int remove(size_t at = 0) { return cudart("cudaHostUnregister", memory.at(at)); }
};

std::string problem_with(const char *text) {
    sim::Settings settings;
    std::string problem;
    return apply_script(text, settings, problem) ? "" : problem;
}

double milliseconds(auto body) {
    auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

} // namespace

TEST_CASE_METHOD(Scripted, "the Nth call fails, and does nothing") {
    REQUIRE(hps_script("fail=register:2:2,fail=cudaHostRegister:4-5:1,fail=unregister:1:999") == 0);
    CHECK(add() == 0);
    CHECK(add(page) == 2);
    CHECK(hps_pinned(memory.at(page), page) == HPS_NONE);
    CHECK(add(page) == 0);
    CHECK(add(2 * page) == 1);
    CHECK(add(2 * page) == 1);
    CHECK(add(2 * page) == 0);
    CHECK(remove() == 999);
    CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
    CHECK(remove() == 0);
    CHECK(cudart("cudaPeekAtLastError") == 999);
}

TEST_CASE_METHOD(Scripted, "\"register\" counts the calls of all runtimes, a name its own") {
    REQUIRE(hps_script("fail=register:2:2") == 0);
    CHECK(hip("hipHostRegister", memory.at(), page, 0u) == 0);
    CHECK(add() == 2);
    REQUIRE(hps_script("fail=hipHostRegister:2:1") == 0);
    CHECK(add() == 0);
    CHECK(hip("hipHostRegister", memory.at(page), page, 0u) == 1);
    CHECK(hps_calls("register") == 4);
    CHECK(hps_calls("cudaHostRegister") == 2);
    CHECK(hps_calls("hipHostRegister") == 2);
    CHECK(hps_calls("unregister") == 0);
    CHECK(hps_calls("*") == 4);
    CHECK(hps_calls("cudaNoSuchFunction") == 0);
}

TEST_CASE_METHOD(Scripted, "failing from some call on, always, and every function") {
    REQUIRE(hps_script("fail=register:2+:4") == 0);
    CHECK(add() == 0);
    for (int i = 1; i < 4; ++i) CHECK(add(page * i) == 4);
    hps_reset();
    REQUIRE(hps_script("fail=*:*:4") == 0);
    int count = 5;
    CHECK(cudart("cudaGetDeviceCount", &count) == 4);
    CHECK(remove() == 4);
    CHECK(count == 5);
}

TEST_CASE_METHOD(Scripted, "random failures depend on the seed alone") {
    auto pattern = [&](const char *script) {
        hps_reset();
        REQUIRE(hps_script(script) == 0);
        std::string codes;
        for (int i = 0; i < 200; ++i) codes += add() == 0 ? (remove(), '.') : 'x';
        return codes;
    };
    std::string first = pattern("random=register:0.3:2,seed=5");
    CHECK(pattern("random=register:0.3:2,seed=5") == first);
    CHECK(pattern("random=register:0.3:2,seed=6") != first);
    auto failed = std::count(first.begin(), first.end(), 'x');
    CHECK(failed > 30);
    CHECK(failed < 90);
    CHECK(pattern("random=register:0:2") == std::string(200, '.'));
    CHECK(pattern("random=register:1:2") == std::string(200, 'x'));
}

TEST_CASE_METHOD(Scripted, "delays hold a call up by call and by size") {
    REQUIRE(hps_script("delay=register:20:100,maps=0") == 0);
    Memory big(gib, PROT_NONE);
    CHECK(milliseconds([&] { CHECK(cudart("cudaHostRegister", big.at(), gib, 0u) == 0); }) >= 120);
    REQUIRE(hps_script("delay=unregister:30") == 0);
    CHECK(milliseconds([&] { CHECK(cudart("cudaHostUnregister", big.at()) == 0); }) >= 30);
}

TEST_CASE_METHOD(Scripted, "serial=1: delays exclude each other") {
    REQUIRE(hps_script("delay=register:50,serial=1") == 0);
    double elapsed = milliseconds([&] {
        std::thread first([&] { add(page); }), second([&] { add(); });
        first.join();
        second.join();
    });
    CHECK(elapsed >= 100);
    CHECK(hps_pinned(memory.at(), 2 * page) == HPS_ALL);
}

TEST_CASE_METHOD(Scripted, "a blocked call waits, while others go on") {
    hps_block("cudaHostRegister");
    CHECK(hps_wait_blocked("cudaHostRegister", 1, 1) == -1);
    std::thread caller([&] { add(); });
    CHECK(hps_wait_blocked("cudaHostRegister", 1, 10000) == 0);
    CHECK(hps_wait_blocked("register", 1, 10000) == 0);
    CHECK(hps_pinned(memory.at(), page) == HPS_NONE);
    CHECK(remove(page) == 713);
    CHECK(hip("hipHostRegister", memory.at(page), page, 0u) == 0);
    hps_unblock("cudaHostRegister");
    caller.join();
    CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
    CHECK(add(2 * page) == 0);
}

TEST_CASE_METHOD(Scripted, "a reset lets blocked calls go") {
    hps_block("unregister");
    int code = -1;
    std::thread caller([&] { code = remove(); });
    CHECK(hps_wait_blocked("unregister", 1, 10000) == 0);
    hps_reset();
    caller.join();
    CHECK(code == 713);
}

TEST_CASE_METHOD(Scripted, "the hook runs on the calling thread before the effect, with no lock held") {
    struct Seen {
        Scripted *self;
        std::vector<std::string> functions;
        std::thread::id thread;
    } seen{this, {}, {}};
    hps_on_call(
        [](const char *function, const void *ptr, size_t length, void *user) {
            auto *seen = static_cast<Seen *>(user);
            seen->functions.push_back(function);
            seen->thread = std::this_thread::get_id();
            if (std::string(function) != "cudaHostRegister") return;
            CHECK(ptr == seen->self->memory.at());
            CHECK(length == page);
            CHECK(hps_pinned(ptr, length) == HPS_NONE);
            CHECK(hps_script("fail=cudaHostRegister:1:2") == 0); // still counts for the call that is under way
            std::thread([&] { CHECK(seen->self->remove() == 713); }).join();
        },
        &seen);
    CHECK(add() == 2);
    CHECK(seen.functions == std::vector<std::string>{"cudaHostRegister", "cudaHostUnregister"});
    hps_on_call(nullptr, nullptr);
    CHECK(add() == 0);
    CHECK(seen.functions.size() == 2);
}

TEST_CASE_METHOD(Scripted, "trace keeps every call with its arguments and answer") {
    CHECK(add() == 0);
    CHECK(hps_trace(nullptr, 0) == 0);
    REQUIRE(hps_script("trace=1") == 0);
    CHECK(cudart("cudaHostRegister", memory.at(page), 2 * page, 3u) == 0);
    CHECK(remove(5 * page) == 713);
    hps_call calls[3] = {};
    REQUIRE(hps_trace(calls, 3) == 2);
    CHECK(std::string(calls[0].function) == "cudaHostRegister");
    CHECK(std::string(calls[0].runtime).ends_with("libcudart.so.12"));
    CHECK(calls[0].ptr == memory.at(page));
    CHECK(calls[0].length == 2 * page);
    CHECK(calls[0].flags == 3);
    CHECK(calls[0].code == 0);
    CHECK(calls[0].thread == gettid());
    CHECK(std::string(calls[1].function) == "cudaHostUnregister");
    CHECK(calls[1].code == 713);
    CHECK(calls[2].function == nullptr);
    hps_reset();
    CHECK(hps_trace(nullptr, 0) == 0);
}

TEST_CASE_METHOD(Scripted, "log writes a line for every call, from every process") {
    std::string file = "sim-log-" + std::to_string(getpid());
    REQUIRE(hps_script(("log=" + file).c_str()) == 0);
    CHECK(remove() == 713);
    CHECK(hps_script(("fork=3,log=" + file).c_str()) == 0);
    pid_t child = 0;
    CHECK(returned(in_child([&] { return remove(); }), 3));
    std::ifstream log(file);
    pid_t pid = 0;
    long thread = 0;
    std::string function, address, path;
    size_t length = 0;
    unsigned flags = 9;
    int code = 0;
    REQUIRE(log >> pid >> thread >> function >> address >> length >> flags >> code >> path);
    CHECK(pid == getpid());
    CHECK(thread == gettid());
    CHECK(function == "cudaHostUnregister");
    CHECK(reinterpret_cast<void *>(std::stoull(address, nullptr, 16)) == memory.at());
    CHECK(length == 0);
    CHECK(flags == 0);
    CHECK(code == 713);
    CHECK(path == runtime_file("cudart12", "libcudart.so.12"));
    REQUIRE(log >> child);
    CHECK(child != getpid());
    std::remove(file.c_str());
}

TEST_CASE_METHOD(Scripted, "file_lock: one process at a time is inside a register call for a shared file") {
    char folder[] = "/tmp/hostpin-sim-XXXXXX";
    REQUIRE(mkdtemp(folder));
    std::string script = std::string("file_lock=") + folder;
    int file = memfd_create("shared", 0);
    REQUIRE(ftruncate(file, mib) == 0);
    Memory shared(mib, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    REQUIRE(hps_script(script.c_str()) == 0);
    auto add_shared = [&] { return cudart("cudaHostRegister", shared.at(), page, 0u); };

    struct Gate {
        int inside[2], go[2];
    } gate;
    REQUIRE(pipe(gate.inside) == 0);
    REQUIRE(pipe(gate.go) == 0);
    pid_t other = fork();
    if (other == 0) {
        hps_on_call(
            [](const char *, const void *, size_t, void *user) {
                auto *gate = static_cast<Gate *>(user);
                char byte = 1;
                if (write(gate->inside[1], &byte, 1) != 1 || read(gate->go[0], &byte, 1) != 1) _exit(99);
            },
            &gate);
        _exit(add_shared());
    }
    char byte = 0;
    REQUIRE(read(gate.inside[0], &byte, 1) == 1);
    CHECK(add_shared() == 1);
    CHECK(hps_pinned(shared.at(), page) == HPS_NONE);
    CHECK(add() == 0); // private memory is nobody else's business
    REQUIRE(write(gate.go[1], &byte, 1) == 1);
    int status = -1;
    REQUIRE(waitpid(other, &status, 0) == other);
    CHECK(status == 0);
    CHECK(add_shared() == 0);

    for (int fd : {file, gate.inside[0], gate.inside[1], gate.go[0], gate.go[1]}) close(fd);
    std::filesystem::remove_all(folder);
}

TEST_CASE_METHOD(Scripted, "a reset forgets everything that a test may have done") {
    REQUIRE(hps_script("devices=2,trace=1,maps=0") == 0);
    int hook_calls = 0;
    hps_on_call([](const char *, const void *, size_t, void *user) { ++*static_cast<int *>(user); }, &hook_calls);
    hps_capture_begin(HPS_CAPTURE_RELAXED);
    hps_set_current_context(1);
    CHECK(add() == 0);
    CHECK(remove(page) == 713);
    CHECK(hps_pin_foreign(HPS_HIP, memory.at(), page) == 0);
    CHECK(hook_calls == 2);

    hps_reset();
    CHECK(hps_calls("*") == 0);
    CHECK(hps_trace(nullptr, 0) == 0);
    CHECK(hps_registrations(nullptr, 0) == 0);
    CHECK(hps_pinned_pages(nullptr, 0) == 0);
    CHECK(hps_capture_end() == 1); // none is under way
    CHECK(hps_current_context() == -1);
    CHECK(hps_context_active(1) == 0);
    CHECK(hps_last_error("cudart12") == 0);
    int value = 0;
    CHECK(cudart("cudaGetDeviceCount", &value) == 0);
    CHECK(value == 1);
    CHECK(cudart("cudaGetDevice", &value) == 0);
    CHECK(value == 0);
    CHECK(hook_calls == 2);
    CHECK(hps_trace(nullptr, 0) == 0);
}

TEST_CASE_METHOD(Scripted, "a script applies on top of the one before, all of it or nothing") {
    REQUIRE(hps_script("devices=3") == 0);
    REQUIRE(hps_script("fail=register:1:2") == 0);
    CHECK(hps_script("devices=5,no_such_key=1") == -1);
    int count = 0;
    CHECK(cudart("cudaGetDeviceCount", &count) == 0);
    CHECK(count == 3);
    CHECK(add() == 2);
    CHECK(hps_script("") == 0);
}

TEST_CASE("every key takes what it should and refuses the rest, naming it") {
    for (const char *good : {"",
                             "devices=0",
                             "devices=16",
                             "init=35",
                             "driver_version=12040",
                             "load_driver=1",
                             "lost=700",
                             "sticky=1",
                             "attribute=113:1",
                             "attribute=113:1:0",
                             "device_offset=0x1000",
                             "device_offset=1G",
                             "fail=register:1:2",
                             "fail=x:1-3:2",
                             "fail=x:4+:2",
                             "fail=*:*:4",
                             "random=register:0.5:2",
                             "seed=7",
                             "delay=register:5",
                             "delay=register:0.5:2.5",
                             "serial=1",
                             "max_call=512G",
                             "max_pin=2G",
                             "max_total=1T",
                             "maps=0",
                             "file_lock=/tmp",
                             "after_destroy=709",
                             "hip_overlap=accept",
                             "hip_overlap=refuse",
                             "hip_iomemory=1",
                             "fork=abort",
                             "fork=3",
                             "exit=abort",
                             "exit=4",
                             "trace=1",
                             "log=file",
                             "devices=1,,devices=2"}) {
        INFO(good);
        CHECK(problem_with(good) == "");
    }
    for (const char *bad : {"devices=17",
                            "devices=-1",
                            "devices=",
                            "init=x",
                            "driver_version=1.2",
                            "load_driver=2",
                            "sticky=yes",
                            "attribute=113",
                            "attribute=a:1",
                            "attribute=1:2:3:4",
                            "device_offset=1X",
                            "device_offset=20000000T",
                            "fail=register:1",
                            "fail=register:x:2",
                            "fail=register:1-:2",
                            "fail=:1:2",
                            "random=register:1.5:2",
                            "random=register:-1:2",
                            "random=register:nan:2",
                            "seed=-1",
                            "delay=register",
                            "delay=register:x",
                            "delay=register:1:2:3",
                            "serial=2",
                            "max_call=-1",
                            "max_pin=G",
                            "max_total=0x",
                            "maps=x",
                            "hip_overlap=maybe",
                            "fork=0",
                            "exit=no",
                            "trace=7"}) {
        INFO(bad);
        CHECK(problem_with(bad) == "bad value: \"" + std::string(bad) + "\"");
    }
    CHECK(problem_with("nonsense") == "no such key: \"nonsense\"");
    CHECK(problem_with("Devices=1") == "no such key: \"Devices=1\"");
    CHECK(problem_with("=1") == "no such key: \"=1\"");
}
