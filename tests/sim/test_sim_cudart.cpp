// The simulated CUDA runtimes: what registering answers, and what stays behind in the thread.
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "sim_test.h"

namespace {

struct Cudart : Fresh, Library {
    Cudart() : Library("cudart12", "libcudart.so.12") {}

    int add(const void *ptr, size_t length, unsigned flags = 0) const {
        return (*this)("cudaHostRegister", const_cast<void *>(ptr), length, flags);
    }
    int remove(const void *ptr) const { return (*this)("cudaHostUnregister", const_cast<void *>(ptr)); }
    int last() const { return (*this)("cudaGetLastError"); }
    int peek() const { return (*this)("cudaPeekAtLastError"); }
};

// As the version in question lays it out, with room behind it to see what was written.
struct Attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    unsigned char beyond[128];
};

} // namespace

TEST_CASE_METHOD(Cudart, "registered pages are pinned until the base is unregistered") {
    Memory memory(mib);
    CHECK(hps_pinned(memory.at(), mib) == HPS_NONE);
    CHECK(add(memory.at(), mib / 2) == 0);
    CHECK(hps_pinned(memory.at(), mib / 2) == HPS_ALL);
    CHECK(hps_pinned(memory.at(), mib) == HPS_PARTIAL);
    CHECK(hps_pinned_pages(memory.at(), mib) == 128);
    CHECK(hps_live_registrations() == 1);
    CHECK(remove(memory.at()) == 0);
    CHECK(hps_pinned(memory.at(), mib) == HPS_NONE);
    CHECK(hps_pinned_pages(nullptr, 0) == 0);
}

TEST_CASE_METHOD(Cudart, "a page can be registered once: 712") {
    Memory memory(mib);
    REQUIRE(add(memory.at(4 * page), 4 * page) == 0);
    CHECK(add(memory.at(4 * page), 4 * page) == 712); // the same
    CHECK(add(memory.at(5 * page), page) == 712);     // inside
    CHECK(add(memory.at(2 * page), 3 * page) == 712); // overlapping from below
    CHECK(add(memory.at(7 * page), 3 * page) == 712); // and from above
    CHECK(add(memory.at(), 16 * page) == 712);        // enclosing
    CHECK(hps_pinned_pages(nullptr, 0) == 4);
    CHECK(add(memory.at(), 4 * page) == 0);     // touching below
    CHECK(add(memory.at(8 * page), page) == 0); // and above
}

TEST_CASE_METHOD(Cudart, "unaligned memory is taken and covers whole pages") {
    Memory memory(mib);
    CHECK(add(memory.at(100), 5000) == 0);
    CHECK(hps_pinned_pages(memory.at(), mib) == 2);
    CHECK(add(memory.at(5200), 10) == 712); // another buffer in the second page
    CHECK(remove(memory.at()) == 1);        // the page's start is not the base
    CHECK(remove(memory.at(100)) == 0);
}

TEST_CASE_METHOD(Cudart, "unregister wants the base: 1 for an interior pointer, 713 for an unknown one") {
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib / 2) == 0);
    CHECK(remove(memory.at(page)) == 1);
    CHECK(remove(memory.at(mib / 2)) == 713);
    CHECK(remove(nullptr) == 1);
    CHECK(remove(memory.at()) == 0);
    CHECK(remove(memory.at()) == 713);
}

TEST_CASE_METHOD(Cudart, "null, size 0, wrap-around and unknown flags: 1") {
    Memory memory(mib);
    CHECK(add(nullptr, page) == 1);
    CHECK(add(memory.at(), 0) == 1);
    CHECK(add(memory.at(), SIZE_MAX) == 1);
    CHECK(add(reinterpret_cast<void *>(UINTPTR_MAX - 10), 100) == 1);
    CHECK(add(memory.at(), page, 0x10) == 1);
    CHECK(add(memory.at(), page, 1 | 2) == 0);
    CHECK(hps_calls("cudaHostRegister") == 6);
}

TEST_CASE_METHOD(Cudart, "memory from cudaHostAlloc is not for registering or unregistering") {
    void *memory = nullptr;
    REQUIRE((*this)("cudaHostAlloc", &memory, mib, 0u) == 0);
    CHECK(hps_pinned(memory, mib) == HPS_ALL);
    CHECK(add(memory, page) == 712);
    CHECK(remove(memory) == 1);
    CHECK(hps_live_registrations() == 0);
    CHECK((*this)("cudaFreeHost", memory) == 0);
    CHECK((*this)("cudaFreeHost", memory) == 1);
    CHECK(hps_pinned(memory, mib) == HPS_NONE);
}

TEST_CASE_METHOD(Cudart, "the last error stays until it is read, per thread and per copy") {
    Memory memory(mib);
    Library other("cudart11", "libcudart.so.11.0");
    CHECK(remove(memory.at()) == 713);
    CHECK(add(memory.at(), page) == 0); // a success leaves it
    CHECK(peek() == 713);
    CHECK(peek() == 713);
    CHECK(other("cudaPeekAtLastError") == 0);
    std::thread([&] { CHECK(peek() == 0); }).join();
    CHECK(last() == 713);
    CHECK(last() == 0);
}

TEST_CASE_METHOD(Cudart, "a test can put and see a pending error without a call") {
    Library other("cudart11", "libcudart.so.11.0");
    CHECK(hps_set_last_error("libcudart.so.12", 700) == 1);
    CHECK(hps_last_error("libcudart.so.12") == 700);
    CHECK(hps_last_error("libcudart.so.11") == 0);
    CHECK(hps_last_error("no such file") == -1);
    CHECK(hps_calls("*") == 0);
    std::thread([] { CHECK(hps_last_error("libcudart.so.12") == 0); }).join();
    CHECK(last() == 700);
    CHECK(last() == 0);
    CHECK(hps_set_last_error(nullptr, 2) >= 2);
    CHECK(other("cudaGetLastError") == 2);
    CHECK(last() == 2);
}

TEST_CASE_METHOD(Cudart, "sticky=1: a last error that no reading clears") {
    REQUIRE(hps_script("sticky=1,fail=register:1:2") == 0);
    Memory memory(mib);
    CHECK(last() == 0);
    CHECK(add(memory.at(), page) == 2);
    CHECK(last() == 2);
    CHECK(last() == 2);
}

TEST_CASE_METHOD(Cudart, "without a usable driver every call answers the same, for ever, and outputs are left alone") {
    auto [script, code] =
        GENERATE(table<const char *, int>({{"devices=0", 100}, {"init=35", 35}, {"init=34", 34}, {"lost=700", 700}}));
    REQUIRE(hps_script(script) == 0);
    Memory memory(mib);
    int count = 77, version = 77;
    CHECK((*this)("cudaGetDeviceCount", &count) == code);
    CHECK(count == 77);
    CHECK(add(memory.at(), page) == code);
    CHECK(remove(memory.at()) == code);
    for (int i = 0; i < 3; ++i) {
        CHECK(last() == code);
        CHECK(peek() == code);
    }
    CHECK((*this)("cudaRuntimeGetVersion", &version) == 0);
    CHECK(version == 12080);
    CHECK((*this)("cudaDriverGetVersion", &version) == 0);
    CHECK(version == (code == 35 ? 0 : 13000));
    CHECK(std::string(text("cudaGetErrorName", 100)) == "cudaErrorNoDevice");
}

TEST_CASE_METHOD(Cudart, "a driver older than the runtime: 35") {
    Library newer("cudart13", "libcudart.so.13"), older("cudart11", "libcudart.so.11.0");
    REQUIRE(hps_script("driver_version=12040") == 0);
    int count = 0;
    CHECK(newer("cudaGetDeviceCount", &count) == 35);
    CHECK((*this)("cudaGetDeviceCount", &count) == 0);
    CHECK(older("cudaGetDeviceCount", &count) == 0);
    CHECK(count == 1);
    CHECK(newer("cudaDriverGetVersion", &count) == 0);
    CHECK(count == 12040);
}

TEST_CASE_METHOD(Cudart, "sizes: 512 GiB in one call is refused, 600 GiB in two cost nothing") {
    Memory memory(600 * gib, PROT_NONE);
    CHECK(add(memory.at(), 512 * gib) == 2);
    CHECK(add(memory.at(), 512 * gib - 1) == 2); // rounded to pages it is as much
    CHECK(add(memory.at(), 512 * gib - page) == 0);
    CHECK(add(memory.at(512 * gib - page), 88 * gib + page) == 0);
    CHECK(hps_pinned(memory.at(), 600 * gib) == HPS_ALL);
    REQUIRE(hps_script("max_call=1G") == 0);
    CHECK(remove(memory.at()) == 0);
    CHECK(add(memory.at(), gib) == 2);
    CHECK(add(memory.at(), gib - page) == 0);
}

TEST_CASE_METHOD(Cudart, "sizes: the kernel's rule and a cumulative limit") {
    Memory memory(8 * gib, PROT_NONE);
    REQUIRE(hps_script("max_pin=2G") == 0);
    CHECK(add(memory.at(), 2 * gib + page) == 1);
    CHECK(add(memory.at(), 2 * gib) == 0);
    REQUIRE(hps_script("max_pin=16G,max_total=3G") == 0);
    CHECK(add(memory.at(2 * gib), gib + page) == 2);
    CHECK(add(memory.at(2 * gib), gib) == 0);
    CHECK(add(memory.at(4 * gib), page) == 2);
    CHECK(remove(memory.at()) == 0);
    CHECK(add(memory.at(4 * gib), page) == 0);
}

TEST_CASE_METHOD(Cudart, "read-only memory needs the ReadOnly flag, and the flag a device that knows it") {
    Memory writable(mib), read_only(mib, PROT_READ);
    CHECK(add(read_only.at(), mib) == 1);
    CHECK(add(read_only.at(), mib, 8) == 801);
    CHECK(add(writable.at(), mib, 8) == 801);
    REQUIRE(hps_script("attribute=113:1") == 0);
    CHECK(add(read_only.at(), mib) == 1);
    CHECK(add(read_only.at(), mib, 8) == 0);
    CHECK(add(writable.at(), mib, 8) == 0);
    CHECK(remove(read_only.at()) == 0);
    REQUIRE(hps_script("attribute=113:0,attribute=100:1") == 0); // host page tables
    CHECK(add(read_only.at(), mib) == 0);
}

TEST_CASE_METHOD(Cudart, "one read-only page in the middle is enough, and so is a hole") {
    Memory memory(mib);
    REQUIRE(mprotect(memory.at(8 * page), page, PROT_READ) == 0);
    CHECK(add(memory.at(), mib) == 1);
    CHECK(add(memory.at(), 8 * page) == 0);
    REQUIRE(munmap(memory.at(32 * page), page) == 0);
    CHECK(add(memory.at(16 * page), 32 * page) == 1);
    CHECK(add(memory.at(16 * page), 16 * page) == 0);
    REQUIRE(hps_script("maps=0") == 0);
    CHECK(add(memory.at(32 * page), page) == 0); // nobody looked
}

TEST_CASE_METHOD(Cudart, "a device without host registration: 801") {
    REQUIRE(hps_script("devices=2,attribute=99:0:1") == 0);
    Memory memory(mib);
    int value = 7;
    CHECK((*this)("cudaDeviceGetAttribute", &value, 99, 0) == 0);
    CHECK(value == 1);
    CHECK((*this)("cudaDeviceGetAttribute", &value, 99, 1) == 0);
    CHECK(value == 0);
    CHECK((*this)("cudaDeviceGetAttribute", &value, 99, 2) == 101);
    CHECK(add(memory.at(), page) == 0);
    REQUIRE((*this)("cudaSetDevice", 1) == 0);
    CHECK(add(memory.at(page), page) == 801);
}

TEST_CASE_METHOD(Cudart, "default attributes") {
    auto value_of = [&](int number) {
        int value = -1;
        CHECK((*this)("cudaDeviceGetAttribute", &value, number, 0) == 0);
        return value;
    };
    CHECK(value_of(88) == 0);
    CHECK(value_of(91) == 1);
    CHECK(value_of(99) == 1);
    CHECK(value_of(100) == 0);
    CHECK(value_of(113) == 0);
    REQUIRE(hps_script("device_offset=1G") == 0);
    CHECK(value_of(91) == 0);
}

TEST_CASE_METHOD(Cudart, "device pointer: the host pointer, or an offset from it, interior addresses too") {
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib) == 0);
    void *device = nullptr;
    CHECK((*this)("cudaHostGetDevicePointer", &device, memory.at(12345), 0u) == 0);
    CHECK(device == memory.at(12345));
    CHECK((*this)("cudaHostGetDevicePointer", &device, memory.at(), 1u) == 1);
    REQUIRE(hps_script("device_offset=0x1000000") == 0);
    CHECK((*this)("cudaHostGetDevicePointer", &device, memory.at(12345), 0u) == 0);
    CHECK(device == memory.at(12345 + 0x1000000));
    REQUIRE(remove(memory.at()) == 0);
    CHECK((*this)("cudaHostGetDevicePointer", &device, memory.at(), 0u) == 1);
}

TEST_CASE_METHOD(Cudart, "flags of registered memory include portable and mapped") {
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib) == 0);
    unsigned flags = 99;
    CHECK((*this)("cudaHostGetFlags", &flags, memory.at()) == 0);
    CHECK(flags == 3);
    flags = 99;
    CHECK((*this)("cudaHostGetFlags", &flags, static_cast<void *>(&flags)) == 1);
    CHECK(flags == 99);
}

TEST_CASE_METHOD(Cudart, "pointer attributes tell registered, unregistered and device memory apart, in each version's layout") {
    auto [folder, file, size] = GENERATE(table<const char *, const char *, size_t>(
        {{"cudart11", "libcudart.so.11.0", 24}, {"cudart12", "libcudart.so.12", 24}, {"cudart13", "libcudart.so.13", 88}}));
    Library runtime(folder, file);
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib / 2) == 0);
    Attributes attributes;
    auto ask = [&, &library = runtime](const void *ptr) {
        std::memset(&attributes, 0xee, sizeof attributes);
        REQUIRE(library("cudaPointerGetAttributes", &attributes, ptr) == 0);
    };
    ask(memory.at(777));
    CHECK(attributes.type == 1);
    CHECK(attributes.device == 0);
    CHECK(attributes.device_pointer == memory.at(777));
    CHECK(attributes.host_pointer == memory.at(777));
    const auto *bytes = reinterpret_cast<const unsigned char *>(&attributes);
    CHECK(bytes[size] == 0xee);
    CHECK(bytes[size - 1] != 0xee);

    ask(memory.at(mib / 2));
    CHECK(attributes.type == 0);
    CHECK(attributes.device == -2);
    CHECK(attributes.device_pointer == nullptr);

    void *device = nullptr;
    REQUIRE(runtime("cudaMalloc", &device, size_t{100}) == 0);
    ask(device);
    CHECK(attributes.type == 2);
    CHECK(runtime("cudaFree", device) == 0);
    CHECK(runtime("cudaPointerGetAttributes", &attributes, static_cast<void *>(nullptr)) == 1);
}

TEST_CASE_METHOD(Cudart, "copies: a range is registered as a whole or not at all") {
    Memory memory(mib);
    std::memset(memory.at(), 5, mib);
    void *device = nullptr;
    REQUIRE((*this)("cudaMalloc", &device, mib) == 0);
    CHECK((*this)("cudaMemcpy", device, memory.at(), mib, 1) == 0); // pageable
    REQUIRE(add(memory.at(), mib / 2) == 0);
    CHECK((*this)("cudaMemcpy", device, memory.at(), mib, 1) == 1);
    CHECK((*this)("cudaMemcpy", device, memory.at(), mib / 2, 1) == 0);
    REQUIRE(add(memory.at(mib / 2), mib / 2) == 0);
    CHECK((*this)("cudaMemcpyAsync", device, memory.at(), mib, 1, static_cast<void *>(nullptr)) == 0);
    std::memset(memory.at(), 0, mib);
    CHECK((*this)("cudaMemcpy", memory.at(), device, mib, 2) == 0);
    CHECK(static_cast<char *>(memory.at())[mib - 1] == 5);
    CHECK((*this)("cudaMemcpy", memory.at(), device, mib, 9) == 1);
    CHECK((*this)("cudaMemcpy", memory.at(), device, mib + 1, 2) == 1); // more than was allocated
    CHECK((*this)("cudaFree", device) == 0);
}

TEST_CASE_METHOD(Cudart, "copies: device addresses of host memory lead back to it") {
    REQUIRE(hps_script("device_offset=1T") == 0);
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib) == 0);
    void *device = nullptr;
    REQUIRE((*this)("cudaHostGetDevicePointer", &device, memory.at(), 0u) == 0);
    int value = 42;
    CHECK((*this)("cudaMemcpy", device, &value, sizeof value, 4) == 0);
    CHECK(*static_cast<int *>(memory.at()) == 42);
}

TEST_CASE_METHOD(Cudart, "a batch copy fails where one copy crosses from one registration into the next") {
    Memory memory(mib);
    REQUIRE(add(memory.at(), mib / 2) == 0);
    REQUIRE(add(memory.at(mib / 2), mib / 2) == 0);
    void *device = nullptr, *stream = nullptr;
    REQUIRE((*this)("cudaMalloc", &device, mib) == 0);
    REQUIRE((*this)("cudaStreamCreate", &stream) == 0);
    auto *none = static_cast<void *>(nullptr);
    auto *no_sizes = static_cast<size_t *>(nullptr);
    Library newer("cudart13", "libcudart.so.13");

    void *to[] = {device, device}, *from[] = {memory.at(), memory.at(mib / 2 - page)};
    size_t sizes[] = {page, 2 * page}, failed = 77;
    auto batch12 = [&](size_t count, void *on) {
        return (*this)("cudaMemcpyBatchAsync", &to[0], &from[0], &sizes[0], count, none, no_sizes, size_t{0}, &failed, on);
    };
    auto batch13 = [&](size_t count) {
        return newer("cudaMemcpyBatchAsync", &to[0], &from[0], &sizes[0], count, none, no_sizes, size_t{0}, stream);
    };
    CHECK(batch12(1, stream) == 0);
    CHECK(failed == 77);
    CHECK(batch12(2, stream) == 1);
    CHECK(failed == 1);
    CHECK(batch12(1, nullptr) == 1); // the default stream is not allowed
    CHECK(batch13(1) == 0);
    CHECK(batch13(2) == 1);
    sizes[1] = page;
    CHECK(batch13(2) == 0);
    CHECK(!Library("cudart11", "libcudart.so.11.0").has("cudaMemcpyBatchAsync"));
    CHECK((*this)("cudaStreamDestroy", stream) == 0);
    CHECK((*this)("cudaFree", device) == 0);
}

TEST_CASE_METHOD(Cudart, "while another thread captures in global mode, only relaxed threads may register") {
    Memory memory(mib);
    REQUIRE(add(memory.at(mib / 2), page) == 0);
    int mode = HPS_CAPTURE_RELAXED;
    std::thread([&] { hps_capture_begin(HPS_CAPTURE_GLOBAL); }).join();
    CHECK(add(memory.at(), page) == 900);
    CHECK(remove(memory.at(mib / 2)) == 900);
    CHECK((*this)("cudaThreadExchangeStreamCaptureMode", &mode) == 0);
    CHECK(mode == HPS_CAPTURE_GLOBAL);
    CHECK(add(memory.at(), page) == 0);
    CHECK(remove(memory.at(mib / 2)) == 0);
    CHECK((*this)("cudaThreadExchangeStreamCaptureMode", &mode) == 0);
    CHECK(mode == HPS_CAPTURE_RELAXED);
    CHECK(add(memory.at(page), page) == 900);
    mode = 3;
    CHECK((*this)("cudaThreadExchangeStreamCaptureMode", &mode) == 1);
}

TEST_CASE_METHOD(Cudart, "which captures forbid which calls, and that a forbidden call breaks the capture") {
    Memory memory(mib);
    auto own = [&](int mode) {
        hps_capture_begin(mode);
        int code = add(memory.at(), page);
        if (code == 0) remove(memory.at());
        return std::pair(code, hps_capture_end());
    };
    CHECK(own(HPS_CAPTURE_GLOBAL) == std::pair(900, 901));
    CHECK(own(HPS_CAPTURE_THREAD_LOCAL) == std::pair(900, 901));
    CHECK(own(HPS_CAPTURE_RELAXED) == std::pair(0, 0));

    auto of_another_thread = [&](int mode) {
        int code = 0;
        hps_capture_begin(mode);
        std::thread([&] {
            code = add(memory.at(), page);
            if (code == 0) remove(memory.at());
        }).join();
        return std::pair(code, hps_capture_end());
    };
    CHECK(of_another_thread(HPS_CAPTURE_GLOBAL) == std::pair(900, 901));
    CHECK(of_another_thread(HPS_CAPTURE_THREAD_LOCAL) == std::pair(0, 0));
    CHECK(of_another_thread(HPS_CAPTURE_RELAXED) == std::pair(0, 0));
}

TEST_CASE_METHOD(Cudart, "a capture through the runtime's own functions") {
    Memory memory(mib);
    void *stream = nullptr, *graph = nullptr;
    REQUIRE((*this)("cudaStreamCreate", &stream) == 0);
    CHECK((*this)("cudaStreamBeginCapture", static_cast<void *>(nullptr), 0) == 900);
    CHECK((*this)("cudaStreamBeginCapture", stream, 0) == 0);
    std::thread([&] { CHECK(add(memory.at(), page) == 900); }).join();
    CHECK((*this)("cudaStreamEndCapture", stream, &graph) == 901);
    CHECK((*this)("cudaStreamDestroy", stream) == 0);
}

TEST_CASE_METHOD(Cudart, "names of CUDA codes") {
    CHECK(std::string(text("cudaGetErrorName", 712)) == "cudaErrorHostMemoryAlreadyRegistered");
    CHECK(std::string(text("cudaGetErrorName", 12345)) == "unrecognized error code");
    CHECK(std::string(text("cudaGetErrorString", 0)) == "no error");
    CHECK(std::string(text("cudaGetErrorString", 12345)) == "unrecognized error code");
}

TEST_CASE_METHOD(Cudart, "somebody else's pins are seen, and are not ours") {
    Memory memory(mib);
    CHECK(hps_pin_foreign(HPS_CUDA, memory.at(), mib / 2) == 0);
    CHECK(hps_pin_foreign(HPS_CUDA, memory.at(), page) == 712);
    CHECK(add(memory.at(page), page) == 712);
    CHECK(add(memory.at(mib / 2), page) == 0);
    CHECK(hps_live_registrations() == 1);
    hps_registration all[4] = {};
    REQUIRE(hps_registrations(all, 4) == 2);
    CHECK(all[0].kind == HPS_FOREIGN);
    CHECK(all[0].ptr == memory.at());
    CHECK(all[0].length == mib / 2);
    CHECK(all[1].kind == HPS_REGISTERED);
    CHECK(all[1].device == 0);
    CHECK(all[1].vendor == HPS_CUDA);
    CHECK(hps_registrations(nullptr, 0) == 2);
    CHECK(hps_unpin_foreign(HPS_CUDA, memory.at(mib / 2)) == 713);
    CHECK(hps_unpin_foreign(HPS_CUDA, memory.at()) == 0);
    CHECK(hps_pinned(memory.at(), mib / 2) == HPS_NONE);
    CHECK(hps_calls("*") == 2);
}

TEST_CASE("all three versions share one driver and know their own version") {
    Fresh fresh;
    Library v11("cudart11", "libcudart.so.11.0"), v12("cudart12", "libcudart.so.12"), v13("cudart13", "libcudart.so.13");
    Memory memory(mib);
    int version = 0;
    CHECK(v11("cudaRuntimeGetVersion", &version) == 0);
    CHECK(version == 11080);
    CHECK(v12("cudaRuntimeGetVersion", &version) == 0);
    CHECK(version == 12080);
    CHECK(v13("cudaRuntimeGetVersion", &version) == 0);
    CHECK(version == 13000);
    CHECK(v11("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 712);
    CHECK(v13("cudaHostUnregister", memory.at()) == 0);
}
