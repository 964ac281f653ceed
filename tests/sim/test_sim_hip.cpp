// The simulated HIP runtimes and where their versions differ.
#include <string>
#include <thread>

#include "sim_test.h"

namespace {

struct Hip : Fresh {
    Library v5{"amdhip5", "libamdhip64.so.5"};
    Library v6{"amdhip6", "libamdhip64.so.6"};
    Library v7{"amdhip7", "libamdhip64.so.7"};
    Memory memory{mib};

    int add(const Library &hip, size_t at, size_t length = page, unsigned flags = 0) {
        return hip("hipHostRegister", memory.at(at), length, flags);
    }
    int remove(const Library &hip, size_t at) { return hip("hipHostUnregister", memory.at(at)); }
};

struct Attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    int is_managed;
    unsigned flags;
};

} // namespace

TEST_CASE_METHOD(Hip, "register and unregister, all versions") {
    for (const Library *hip : {&v5, &v6, &v7}) {
        CHECK(add(*hip, 100, 5000) == 0);
        CHECK(hps_pinned_pages(memory.at(), mib) == 2);
        CHECK(remove(*hip, 100) == 0);
        CHECK(remove(*hip, 100) == 713);
        CHECK(remove(*hip, mib / 2) == 713);
        CHECK((*hip)("hipHostUnregister", static_cast<void *>(nullptr)) == 1);
        CHECK(add(*hip, 0, 0) == 1);
        CHECK((*hip)("hipHostRegister", static_cast<void *>(nullptr), page, 0u) == 1);
        CHECK(hps_pinned_pages(nullptr, 0) == 0);
    }
}

TEST_CASE_METHOD(Hip, "HIP 5 and 6 take duplicates silently, and the second one leaks") {
    for (const Library *hip : {&v5, &v6}) {
        hps_reset();
        CHECK(add(*hip, 0) == 0);
        CHECK(add(*hip, 0) == 0);
        CHECK(hps_live_registrations() == 2);
        CHECK(remove(*hip, 0) == 0);
        CHECK(remove(*hip, 0) == 713);
        CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
        hps_registration left{};
        REQUIRE(hps_registrations(&left, 1) == 1);
        CHECK(left.kind == HPS_LEAKED);
        CHECK(left.vendor == HPS_HIP);
    }
}

TEST_CASE_METHOD(Hip, "HIP 5 and 6 take every overlap, and two buffers in one page") {
    for (const Library *hip : {&v5, &v6}) {
        hps_reset();
        CHECK(add(*hip, 4 * page, 4 * page) == 0);
        CHECK(add(*hip, 5 * page, page) == 0);
        CHECK(add(*hip, 6 * page, 4 * page) == 0);
        CHECK(add(*hip, 0, 16 * page) == 0);
        for (size_t at : {0, 4, 5, 6}) CHECK(remove(*hip, at * page) == 0);
        CHECK(hps_pinned_pages(nullptr, 0) == 0);
        CHECK(add(*hip, 0, 100) == 0);
        CHECK(add(*hip, 100, 100) == 0);
        CHECK(remove(*hip, 0) == 0);
        CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
        CHECK(remove(*hip, 100) == 0);
        CHECK(hps_pinned(memory.at(), page) == HPS_NONE);
    }
}

TEST_CASE_METHOD(Hip, "HIP 7 refuses a base that lies in a registration, but not one that encloses it") {
    CHECK(add(v7, 4 * page, 4 * page) == 0);
    CHECK(add(v7, 4 * page, 4 * page) == 712);
    CHECK(add(v7, 5 * page, 9 * page) == 712);
    CHECK(add(v7, 8 * page, page) == 0);
    CHECK(add(v7, 0, 16 * page) == 0);
    CHECK(hps_live_registrations() == 3);
    CHECK(add(v7, 20 * page, 100) == 0);
    CHECK(add(v7, 20 * page + 100, 100) == 0); // another buffer in the same page
}

TEST_CASE_METHOD(Hip, "hip_overlap makes any version old or new") {
    REQUIRE(hps_script("hip_overlap=refuse") == 0);
    CHECK(add(v5, 0) == 0);
    CHECK(add(v5, 0) == 712);
    REQUIRE(hps_script("hip_overlap=accept") == 0);
    CHECK(add(v7, 0) == 0);
}

TEST_CASE_METHOD(Hip, "an interior unregister aborts the process with a message") {
    CHECK(add(v6, 0, 4 * page) == 0);
    for (const Library *hip : {&v5, &v6, &v7}) {
        REQUIRE(hps_script("fork=3") == 0);
        Outcome outcome = in_child([&] {
            hps_reset(); // this process now is the driver's own
            add(*hip, 0, 4 * page);
            return remove(*hip, page);
        });
        CHECK(aborted(outcome));
        CHECK(outcome.output.find("hostpin-sim: hipHostUnregister (pid ") == 0);
        CHECK(outcome.output.find("interior pointer") != std::string::npos);
        CHECK(outcome.output.find('\n') == outcome.output.size() - 1);
    }
}

TEST_CASE_METHOD(Hip, "which register flags each version knows") {
    struct Row {
        unsigned flags;
        int v5, v6, v7;
    };
    for (Row row : {Row{0, 0, 0, 0},
                    {1, 0, 0, 0},
                    {2, 0, 0, 0},
                    {3, 0, 0, 0},
                    {4, 0, 0, 1},
                    {8, 0, 0, 0},
                    {15, 0, 0, 1},
                    {16, 0, 1, 1},
                    {0x40000000, 0, 1, 1},
                    {0x80000000, 0, 1, 0}}) {
        INFO("flags " << row.flags);
        auto answer = [&](const Library &hip) {
            int code = add(hip, 0, page, row.flags);
            if (code == 0) remove(hip, 0);
            return code;
        };
        CHECK(answer(v5) == row.v5);
        CHECK(answer(v6) == row.v6);
        CHECK(answer(v7) == row.v7);
    }
    REQUIRE(hps_script("hip_iomemory=1") == 0);
    CHECK(add(v7, 0, page, 4) == 0);
}

TEST_CASE_METHOD(Hip, "a lock that is refused: 2 from HIP 5, 1 from 6 and 7") {
    REQUIRE(hps_script(GENERATE("max_call=8K", "max_pin=4K", "max_total=4K")) == 0);
    CHECK(add(v5, 0, 2 * page) == 2);
    CHECK(add(v6, 0, 2 * page) == 1);
    CHECK(add(v7, 0, 2 * page) == 1);
    CHECK(add(v7, 0, page) == 0);
}

TEST_CASE_METHOD(Hip, "read-only and unmapped memory cannot be locked") {
    Memory read_only(mib, PROT_READ);
    CHECK(v5("hipHostRegister", read_only.at(), page, 0u) == 2);
    CHECK(v6("hipHostRegister", read_only.at(), page, 0u) == 1);
    REQUIRE(munmap(memory.at(), page) == 0);
    CHECK(add(v7, 0, 2 * page) == 1);
    CHECK(add(v7, page, page) == 0);
}

TEST_CASE_METHOD(Hip, "there is no limit of 512 GiB") {
    Memory big(600 * gib, PROT_NONE);
    CHECK(v7("hipHostRegister", big.at(), 600 * gib, 0u) == 0);
    CHECK(hps_pinned(big.at(), 600 * gib) == HPS_ALL);
}

TEST_CASE_METHOD(Hip, "last error: overwritten by each call before 7, kept from 7 on") {
    for (const Library *hip : {&v5, &v6}) {
        CHECK(remove(*hip, 0) == 713);
        CHECK((*hip)("hipPeekAtLastError") == 713);
        CHECK((*hip)("hipPeekAtLastError") == 713);
        CHECK(add(*hip, 0) == 0);
        CHECK((*hip)("hipGetLastError") == 0);
        CHECK(remove(*hip, 0) == 0);
        CHECK(remove(*hip, 0) == 713);
        CHECK((*hip)("hipGetLastError") == 713);
        CHECK((*hip)("hipGetLastError") == 0);
    }
    CHECK(remove(v7, 0) == 713);
    CHECK(add(v7, 0) == 0);
    CHECK(v7("hipPeekAtLastError") == 713);
    std::thread([&] { CHECK(v7("hipPeekAtLastError") == 0); }).join();
    CHECK(v7("hipExtGetLastError") == 0); // of the latest call
    CHECK(v7("hipGetLastError") == 713);
    CHECK(v7("hipGetLastError") == 0);
    CHECK(!v5.has("hipExtGetLastError"));
    CHECK(v6.has("hipExtGetLastError"));
    CHECK(remove(v7, page) == 713);
    CHECK(v7("hipExtGetLastError") == 713);
}

TEST_CASE_METHOD(Hip, "each copy has a last error of its own") {
    CHECK(remove(v7, 0) == 713);
    CHECK(hps_last_error("libamdhip64.so.7") == 713);
    CHECK(hps_last_error("libamdhip64.so.6") == 0);
}

TEST_CASE_METHOD(Hip, "without a device: 100, from HIP 5 mostly 101, and the errors never clear") {
    REQUIRE(hps_script("devices=0") == 0);
    for (const Library *hip : {&v5, &v6, &v7}) {
        int code = hip == &v5 ? 101 : 100, count = 7, version = 0;
        CHECK((*hip)("hipGetDeviceCount", &count) == 100);
        CHECK(count == 0);
        CHECK(add(*hip, 0) == code);
        CHECK(remove(*hip, 0) == code);
        CHECK((*hip)("hipGetLastError") == code);
        CHECK((*hip)("hipGetLastError") == code);
        CHECK((*hip)("hipPeekAtLastError") == code);
        CHECK((*hip)("hipRuntimeGetVersion", &version) == 0);
    }
}

TEST_CASE_METHOD(Hip, "versions") {
    auto version = [](const Library &hip, const char *function) {
        int value = 0;
        CHECK(hip(function, &value) == 0);
        return value;
    };
    CHECK(version(v5, "hipRuntimeGetVersion") == 50221153);
    CHECK(version(v6, "hipDriverGetVersion") == 60443484);
    CHECK(version(v7, "hipRuntimeGetVersion") / 10000000 == 7);
}

TEST_CASE_METHOD(Hip, "devices are per thread, and no context comes into being") {
    REQUIRE(hps_script("devices=4") == 0);
    int value = -1;
    CHECK(v7("hipGetDeviceCount", &value) == 0);
    CHECK(value == 4);
    CHECK(v7("hipSetDevice", 3) == 0);
    CHECK(v7("hipSetDevice", 4) == 101);
    CHECK(v7("hipGetDevice", &value) == 0);
    CHECK(value == 3);
    std::thread([&] {
        int other = -1;
        CHECK(v7("hipGetDevice", &other) == 0);
        CHECK(other == 0);
    }).join();
    CHECK(add(v7, 0) == 0);
    CHECK(hps_contexts_created(-1) == 0);
}

TEST_CASE_METHOD(Hip, "attributes are numbered in HIP's own way") {
    REQUIRE(hps_script("attribute=88:1,attribute=99:0") == 0);
    int value = 7;
    CHECK(v6("hipDeviceGetAttribute", &value, 65, 0) == 0); // PageableMemoryAccess
    CHECK(value == 1);
    CHECK(v6("hipDeviceGetAttribute", &value, 90, 0) == 0); // HostRegisterSupported
    CHECK(value == 0);
    CHECK(v5("hipDeviceGetAttribute", &value, 90, 0) == 1);
    CHECK(v6("hipDeviceGetAttribute", &value, 4, 0) == 0);
    CHECK(value == 1);
    CHECK(v6("hipDeviceGetAttribute", &value, 4, 1) == 101);
}

TEST_CASE_METHOD(Hip, "device pointers keep the offset into the registration") {
    REQUIRE(hps_script("device_offset=16M") == 0);
    CHECK(add(v7, 100, 5000) == 0);
    void *device = nullptr;
    CHECK(v7("hipHostGetDevicePointer", &device, memory.at(150), 0u) == 0);
    CHECK(device == memory.at(150 + 16 * mib));
    CHECK(v7("hipHostGetDevicePointer", &device, memory.at(99), 0u) == 1); // bytes count here, not pages
    CHECK(v7("hipHostGetDevicePointer", &device, memory.at(5100), 0u) == 1);
}

TEST_CASE_METHOD(Hip, "flags and attributes of a pointer, by version") {
    CHECK(add(v7, 0) == 0);
    unsigned flags = 9;
    CHECK(v5("hipHostGetFlags", &flags, memory.at()) == 0);
    CHECK(v6("hipHostGetFlags", &flags, memory.at()) == 1);
    CHECK(v7("hipHostGetFlags", &flags, memory.at()) == 1);

    Attributes attributes{};
    CHECK(v5("hipPointerGetAttributes", &attributes, memory.at(10)) == 0);
    CHECK(attributes.type == 0); // host, as 5 numbers it
    CHECK(v6("hipPointerGetAttributes", &attributes, memory.at(10)) == 0);
    CHECK(attributes.type == 1);
    CHECK(attributes.host_pointer == memory.at(10));
    CHECK(v5("hipPointerGetAttributes", &attributes, memory.at(mib / 2)) == 1);
    CHECK(v5("hipPeekAtLastError") == 1);
    CHECK(v6("hipPointerGetAttributes", &attributes, memory.at(mib / 2)) == 0);
    CHECK(attributes.type == 0);
}

TEST_CASE_METHOD(Hip, "stream capture forbids registering, unless the thread is relaxed") {
    hps_capture_begin(HPS_CAPTURE_GLOBAL);
    std::thread([&] {
        CHECK(add(v7, 0) == 900);
        int mode = HPS_CAPTURE_RELAXED;
        CHECK(v7("hipThreadExchangeStreamCaptureMode", &mode) == 0);
        CHECK(mode == HPS_CAPTURE_GLOBAL);
        CHECK(add(v7, 0) == 0);
        CHECK(remove(v7, 0) == 0);
    }).join();
    CHECK(hps_capture_end() == 901);
}

TEST_CASE_METHOD(Hip, "names of HIP codes") {
    CHECK(std::string(v7.text("hipGetErrorName", 713)) == "hipErrorHostMemoryNotRegistered");
    CHECK(std::string(v5.text("hipGetErrorString", 713)) == "hipErrorHostMemoryNotRegistered");
    CHECK(std::string(v7.text("hipGetErrorString", 713)) == "memory not registered");
    CHECK(std::string(v7.text("hipGetErrorName", 12345)) == "hipErrorUnknown");
}

TEST_CASE_METHOD(Hip, "the vendors' drivers do not know each other's pins") {
    Library cudart("cudart12", "libcudart.so.12");
    CHECK(add(v7, 0) == 0);
    CHECK(cudart("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(remove(v7, 0) == 0);
    CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
    CHECK(cudart("cudaHostUnregister", memory.at()) == 0);
    CHECK(hps_pinned(memory.at(), page) == HPS_NONE);
}

TEST_CASE_METHOD(Hip, "foreign pins in HIP's table") {
    CHECK(hps_pin_foreign(HPS_HIP, memory.at(), page) == 0);
    CHECK(add(v7, 0) == 712);
    CHECK(hps_live_registrations() == 0);
    CHECK(hps_pin_foreign(7, memory.at(), page) == 1);
}
