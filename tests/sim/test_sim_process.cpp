// Copies of a runtime in one process, forks, and the end of the process.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "sim_test.h"

namespace fs = std::filesystem;

namespace {

std::vector<std::string> loaded_runtimes() {
    std::array<const char *, 64> paths{};
    size_t count = hps_runtimes(paths.data(), paths.size());
    return {paths.begin(), paths.begin() + static_cast<long>(std::min(count, paths.size()))};
}

size_t loaded_from(const std::string &part) {
    auto paths = loaded_runtimes();
    return static_cast<size_t>(std::ranges::count_if(paths, [&](const auto &path) { return path.find(part) != path.npos; }));
}

// A copy of a runtime's file in a folder of its own.
struct Copy {
    fs::path folder, file;

    Copy(const std::string &runtime, const std::string &name, const std::string &as) {
        char pattern[] = "/tmp/hostpin-sim-XXXXXX";
        REQUIRE(mkdtemp(pattern));
        folder = pattern;
        file = folder / as;
        fs::copy_file(runtime_file(runtime, name), file);
    }
    ~Copy() { fs::remove_all(folder); }
};

// Runs the program that lives one scenario, and gives its end and what it said on stderr.
Outcome scenario(const std::string &name, const char *script = "") {
    return in_child([&] {
        setenv("HOSTPIN_SIM", script, 1);
        execl(SIM_SCENARIO, SIM_SCENARIO, name.c_str(), static_cast<char *>(nullptr));
        return 127;
    });
}

} // namespace

TEST_CASE("a copy under another name, deleted after loading, is a runtime of its own over the same driver") {
    Fresh fresh;
    Library original("cudart12", "libcudart.so.12");
    Copy copy("cudart12", "libcudart.so.12", "libcudart-99ffaa00.so.12");
    Library renamed(copy.file.string());
    fs::remove(copy.file);
    CHECK(loaded_from("libcudart-99ffaa00.so.12") == 1);
    Memory memory(mib);
    CHECK(original("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(renamed("cudaHostRegister", memory.at(), page, 0u) == 712);
    CHECK(renamed("cudaPeekAtLastError") == 712);
    CHECK(original("cudaPeekAtLastError") == 0);
    CHECK(renamed("cudaHostUnregister", memory.at()) == 0);
    renamed.close();
    CHECK(loaded_from("libcudart-99ffaa00.so.12") == 0);
    CHECK(original("cudaGetLastError") == 0);
}

TEST_CASE("loading and unloading leaves nothing behind") {
    Fresh fresh;
    auto before = loaded_runtimes();
    Copy copy("amdhip7", "libamdhip64.so.7", "libamdhip64.so.7");
    for (int i = 0; i < 50; ++i) {
        Library library(copy.file.string());
        int count = 0;
        REQUIRE(library("hipGetDeviceCount", &count) == 0);
        REQUIRE(loaded_from(copy.folder.string()) == 1);
        library.close();
    }
    CHECK(loaded_runtimes() == before);
}

TEST_CASE("the hashed copy has the hash in its soname, as wheels have it") {
    Fresh fresh;
    Library hashed("cudart12-hashed", "libcudart-1a2b3c4d.so.12");
    void *by_soname = dlopen("libcudart-1a2b3c4d.so.12", RTLD_NOW | RTLD_NOLOAD);
    CHECK(by_soname != nullptr);
    Memory memory(mib);
    CHECK(hashed("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
}

TEST_CASE("the half runtime lacks what pinning needs") {
    Library half("cudart12-half", "libcudart.so.12");
    CHECK(half.has("cudaHostRegister"));
    CHECK(half.has("cudaGetLastError"));
    CHECK(!half.has("cudaHostUnregister"));
    CHECK(!half.has("cudaHostGetDevicePointer"));
}

TEST_CASE("the stubs answer 34") {
    Fresh fresh;
    Library runtime("cudart12-stub", "libcudart.so.12"), driver("cuda-stub", "libcuda.so.1");
    int value = 7;
    Memory memory(mib);
    CHECK(runtime("cudaGetDeviceCount", &value) == 34);
    CHECK(runtime("cudaHostRegister", memory.at(), page, 0u) == 34);
    CHECK(runtime("cudaGetLastError") == 34);
    CHECK(runtime("cudaGetLastError") == 34);
    CHECK(driver("cuInit", 0u) == 34);
    CHECK(driver("cuDriverGetVersion", &value) == 34);
    CHECK(driver("cuDeviceGetCount", &value) == 34);
    CHECK(value == 7);
}

TEST_CASE("the lookalike stops whoever takes it for a runtime") {
    Library lookalike("cudart-lookalike", "libcudart_stub.so");
    CHECK(loaded_from("libcudart_stub.so") == 0);
    Outcome outcome = in_child([&] { return lookalike("cudaGetDeviceCount"); });
    CHECK(aborted(outcome));
    CHECK(outcome.output.find("libcudart_stub.so is not a runtime") != std::string::npos);
}

TEST_CASE("load_driver: the runtime looks for libcuda.so.1, and answers 35 without it") {
    CHECK(returned(scenario("load-driver", "load_driver=1"), 35));
    CHECK(returned(scenario("load-driver-found", "load_driver=1"), 0));
}

TEST_CASE("only the vendors' names are exported") {
    struct Row {
        const char *folder, *file, *prefix;
    };
    for (Row row : {Row{"cudart11", "libcudart.so.11.0", "cuda"},
                    {"cudart12", "libcudart.so.12", "cuda"},
                    {"cudart13", "libcudart.so.13", "cuda"},
                    {"cuda", "libcuda.so.1", "cu"},
                    {"amdhip5", "libamdhip64.so.5", "hip"},
                    {"amdhip6", "libamdhip64.so.6", "hip"},
                    {"amdhip7", "libamdhip64.so.7", "hip"}}) {
        std::string command = "nm -D --defined-only '" + runtime_file(row.folder, row.file) + "' | awk '{print $3}'";
        std::FILE *names = popen(command.c_str(), "r");
        REQUIRE(names);
        char name[256];
        int count = 0;
        while (std::fscanf(names, "%255s", name) == 1) {
            ++count;
            CHECK(std::string(name).starts_with(row.prefix));
        }
        CHECK(pclose(names) == 0);
        CHECK(count > 15);
    }
}

TEST_CASE("a call in a forked child aborts it once the parent has initialised the driver") {
    Fresh fresh;
    Library cudart("cudart12", "libcudart.so.12");
    int count = 0;
    auto ask = [&] { return cudart("cudaGetDeviceCount", &count); };

    CHECK(returned(in_child(ask), 0)); // nobody has used the driver yet
    REQUIRE(ask() == 0);
    Outcome outcome = in_child(ask);
    CHECK(aborted(outcome));
    CHECK(outcome.output.find("hostpin-sim: cudaGetDeviceCount (pid ") == 0);
    CHECK(outcome.output.find("forked child") != std::string::npos);
    CHECK(aborted(in_child([&] { return cudart("cudaGetLastError"); })));
    CHECK(ask() == 0);

    REQUIRE(hps_script("fork=3") == 0);
    CHECK(returned(in_child(ask), 3));
}

TEST_CASE("a process without a driver may fork and ask again") {
    Fresh fresh;
    REQUIRE(hps_script("devices=0") == 0);
    Library cudart("cudart12", "libcudart.so.12");
    int count = 0;
    auto ask = [&] { return cudart("cudaGetDeviceCount", &count); };
    CHECK(ask() == 100);
    CHECK(returned(in_child(ask), 100));
}

TEST_CASE("a call after exit has begun aborts") {
    for (const char *name : {"call-after-return", "call-after-exit", "call-after-quick-exit", "hip-call-after-exit"}) {
        INFO(name);
        Outcome outcome = scenario(name);
        CHECK(aborted(outcome));
        CHECK(outcome.output.find("called after exit had torn the runtime down") != std::string::npos);
        CHECK(std::ranges::count(outcome.output, '\n') == 1);
    }
    CHECK(returned(scenario("call-after-exit", "exit=4"), 4));
}

TEST_CASE("ending with live registrations and no call is quiet") {
    for (const char *name : {"return", "exit", "quick-exit", "unload-then-quick-exit"}) {
        INFO(name);
        Outcome outcome = scenario(name);
        CHECK(returned(outcome, 0));
        CHECK(outcome.output == "");
    }
}

TEST_CASE("HOSTPIN_SIM is the first script, and a bad one ends the process") {
    CHECK(returned(scenario("device-count", "devices=5"), 5));
    CHECK(returned(scenario("device-count-after-reset", "devices=5"), 5));
    Outcome outcome = scenario("device-count", "devices=5,nonsense=1");
    CHECK(aborted(outcome));
    CHECK(outcome.output == "hostpin-sim: HOSTPIN_SIM: no such key: \"nonsense=1\"\n");
}
