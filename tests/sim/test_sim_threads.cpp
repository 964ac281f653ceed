// The driver under several threads; of use above all under ThreadSanitizer.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "sim_test.h"

TEST_CASE("threads that register, unregister and ask share one consistent table") {
    Fresh fresh;
    REQUIRE(hps_script("maps=0,random=register:0.05:2,trace=1") == 0);
    Library cudart("cudart12", "libcudart.so.12"), hip("amdhip7", "libamdhip64.so.7");
    constexpr unsigned slots = 16;
    Memory memory(slots * page);
    std::array<std::atomic<int>, slots> owners{};
    std::atomic<unsigned> successes{0}, errors{0};

    auto work = [&](unsigned seed) {
        std::mt19937 random(seed);
        for (int i = 0; i < 300; ++i) {
            unsigned slot = random() % slots;
            int code = cudart("cudaHostRegister", memory.at(slot * page), page, 0u);
            errors += code != 0 && code != 712 && code != 2;
            errors += code != 0 && cudart("cudaGetLastError") != code;
            hip("hipHostGetDevicePointer", static_cast<void **>(nullptr), memory.at(), 0u);
            if (code != 0) continue;
            ++successes;
            errors += ++owners[slot] != 1; // nobody else may hold it
            errors += hps_pinned(memory.at(slot * page), page) != HPS_ALL;
            --owners[slot];
            errors += cudart("cudaHostUnregister", memory.at(slot * page)) != 0;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
    for (auto &thread : threads) thread.join();

    CHECK(errors == 0);
    CHECK(successes > 0);
    CHECK(hps_live_registrations() == 0);
    CHECK(hps_pinned_pages(nullptr, 0) == 0);
    CHECK(hps_calls("cudaHostRegister") == 1200);
    CHECK(hps_calls("cudaHostUnregister") == successes);
    CHECK(hps_trace(nullptr, 0) == hps_calls("*"));
}

TEST_CASE("one of many threads wins a race for the same pages") {
    Fresh fresh;
    Library cudart("cudart12", "libcudart.so.12");
    Memory memory(mib);
    hps_block("register");
    std::atomic<int> won{0}, lost{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            int code = cudart("cudaHostRegister", memory.at(), mib, 0u);
            won += code == 0;
            lost += code == 712;
        });
    CHECK(hps_wait_blocked("register", 8, 10000) == 0);
    hps_unblock("register");
    for (auto &thread : threads) thread.join();
    CHECK(won == 1);
    CHECK(lost == 7);
    CHECK(hps_contexts_created(-1) == 1);
}

TEST_CASE("the script may change while calls run") {
    Fresh fresh;
    Library cudart("cudart12", "libcudart.so.12");
    Memory memory(mib);
    std::atomic<bool> stop{false};
    std::thread caller([&] {
        while (!stop)
            if (cudart("cudaHostRegister", memory.at(), page, 0u) == 0) cudart("cudaHostUnregister", memory.at());
    });
    for (int i = 0; i < 200 || hps_calls("register") < 200; ++i)
        CHECK(hps_script(i % 2 ? "devices=1,seed=3,fail=register:5+:2" : "devices=2,maps=0") == 0);
    stop = true;
    caller.join();
    CHECK(hps_pinned_pages(nullptr, 0) == 0);
}
