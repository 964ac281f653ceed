// What is CUDA's own: flags, read-only memory, contexts. With a runtime, with a runtime and the driver's library, and with
// the driver's library alone.
#include <thread>

#include "register_test.h"

using namespace test;

namespace {

const char *libcuda() { return is_driver_only() ? runtime_file() : "libcuda.so.1"; }

// What a thread sees as its own before and after.
struct Current {
  int context = -2, device = -2;
  bool operator==(const Current &) const = default;
};
Current current() {
  Current c;
  c.context = hps_current_context();
  if (!is_driver_only()) vendor_call(runtime_file(), "cudaGetDevice", &c.device);
  return c;
}

}  // namespace

TEST_CASE("flags are CUDA's, and portable is always asked for") {
  const Fresh fresh("trace=1,attribute=113:1");
  const Memory memory(page());
  const uint32_t bits = GENERATE(range(0u, 16u));
  const uint32_t ours = GENERATE(0u, HP_REGISTER_REQUIRED);
  REQUIRE(hp_register(memory.at(), page(), bits | ours) == HP_OK);
  const auto made = traced(is_register);
  REQUIRE(made.size() == 1);
  CHECK(made[0].flags == (bits | 1u));
  CHECK(region(memory.at(), 1).flags == (bits | HP_REGISTER_PORTABLE));
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("memory that is mapped read-only gets the read-only flag by itself") {
  const Fresh fresh("attribute=113:1");
  const Memory memory(4 * page(), PROT_READ);
  REQUIRE(hp_register(memory.at(3), 2 * page(), HP_REGISTER_REQUIRED) == HP_OK);
  const auto all = pinned_by_driver();
  REQUIRE(all.size() == 1);
  CHECK((all[0].flags & HP_REGISTER_READONLY));
  CHECK((region(memory.at(3), 1).flags & HP_REGISTER_READONLY));
  CHECK(hps_calls("register") == 2);
  REQUIRE(hp_unregister(memory.at(3)) == HP_OK);
}

TEST_CASE("the read-only flag is dropped where the device does not know it and the memory can be written") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.at(), page(), HP_REGISTER_READONLY | HP_REGISTER_REQUIRED) == HP_OK);
  const auto all = pinned_by_driver();
  REQUIRE(all.size() == 1);
  CHECK((all[0].flags & HP_REGISTER_READONLY) == 0);
  CHECK((region(memory.at(), 1).flags & HP_REGISTER_READONLY) == 0);
  CHECK(hps_calls("register") == 2);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("read-only memory on a device that does not know the flag is refused, and that is said") {
  const Fresh fresh;
  const Memory memory(4 * page(), PROT_READ);
  const uint32_t flags = GENERATE(0u, HP_REGISTER_READONLY);
  CHECK(hp_register(memory.at(), page(), flags) == HP_PAGEABLE);
  CHECK(contains(hp_last_error(), "read-only"));
  CHECK(hps_calls("register") <= 2);
  CHECK(hps_live_registrations() == 0);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a device that goes through the host's page tables needs no read-only flag") {
  const Fresh fresh("attribute=100:1");
  const Memory memory(4 * page(), PROT_READ);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(hps_calls("register") == 1);
  CHECK((region(memory.at(), 1).flags & HP_REGISTER_READONLY) == 0);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a refused range is not asked for with the read-only flag when it can be written") {
  const Fresh fresh;
  const Memory memory(4 * page());
  fail_next("register", 1);
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hps_calls("register") == 1);
}

TEST_CASE("already registered, and nobody can be seen who has it") {
  const Fresh fresh;
  const Memory memory(4 * page());
  fail_next("register", 712);
  CHECK(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  CHECK(hp_last_native_error() == 712);
  CHECK(hp_query(memory.at(), 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("memory that the application allocated pinned is foreign") {
  if (is_driver_only()) return;  // there is no allocation function in that library
  const Fresh fresh;
  void *memory = nullptr;
  REQUIRE(vendor_call(runtime_file(), "cudaHostAlloc", &memory, 4 * page(), 0u) == 0);
  CHECK(hp_register(memory, 4 * page(), HP_REGISTER_REQUIRED) == HP_FOREIGN);
  CHECK(region(memory, 4 * page()).foreign == 1);
  CHECK(hp_unregister(memory) == HP_OK);
  CHECK(hps_pinned(memory, 4 * page()) == HPS_ALL);
  CHECK(vendor_call(runtime_file(), "cudaFreeHost", memory) == 0);
}

// ---- Contexts

TEST_CASE("a fresh thread uses the context that the process has", "[context]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  hps_activate_context(1);
  Current before, after;
  const int32_t status = on_fresh_thread([&] {
    before = current();
    const int32_t s = hp_register(memory.at(), page(), 0);
    after = current();
    return s;
  });
  CHECK(status == HP_OK);
  CHECK(before.context == -1);
  CHECK(after == before);
  CHECK(hps_contexts_created(-1) == 0);
  REQUIRE(pinned_by_driver().size() == 1);
  CHECK(pinned_by_driver()[0].device == 1);

  // Asking and releasing as well, each on a thread of its own.
  void *device = nullptr;
  CHECK(on_fresh_thread([&] {
    const int32_t s = hp_device_pointer(memory.at(), &device);
    after = current();
    return s;
  }) == HP_OK);
  CHECK(after == before);
  CHECK(on_fresh_thread([&] {
    const int32_t s = hp_unregister(memory.at());
    after = current();
    return s;
  }) == HP_OK);
  CHECK(after == before);
  CHECK(hps_contexts_created(-1) == 0);
}

TEST_CASE("a context is made only if there is none, on the current device", "[context]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  Current before, after;
  CHECK(on_fresh_thread([&] {
    before = current();
    const int32_t s = hp_register(memory.at(), page(), 0);
    after = current();
    return s;
  }) == HP_OK);
  CHECK(after == before);
  CHECK(after.context == -1);
  CHECK(hps_contexts_created(-1) == 1);
  CHECK(hps_contexts_created(0) == 1);
  // The next one finds it.
  CHECK(on_fresh_thread([&] { return hp_register(memory.page_at(2), page(), 0); }) == HP_OK);
  CHECK(hps_contexts_created(-1) == 1);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_contexts_created(-1) == 1);
}

TEST_CASE("a thread's own context is used, and stays current", "[context]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  hps_activate_context(0);
  hps_activate_context(1);
  Current before, after;
  CHECK(on_fresh_thread([&] {
    hps_set_current_context(2);
    before = current();
    const int32_t s = hp_register(memory.at(), page(), 0);
    after = current();
    return s;
  }) == HP_OK);
  CHECK(before.context == 2);
  CHECK(after == before);
  REQUIRE(pinned_by_driver().size() == 1);
  CHECK(pinned_by_driver()[0].device == 2);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the thread's device is preferred among those with a context", "[context]") {
  if (is_driver_only()) return;  // a device is current in the runtime only
  const Fresh fresh;
  const Memory memory(4 * page());
  hps_activate_context(0);
  hps_activate_context(2);
  CHECK(on_fresh_thread([&] {
    // As a thread is left after the runtime's cudaSetDevice(2) of CUDA 11: a device, and no context yet.
    hps_set_current_context(2);
    void *popped = nullptr;
    vendor_call(libcuda(), "cuCtxPopCurrent_v2", &popped);
    return hp_register(memory.at(), page(), 0);
  }) == HP_OK);
  REQUIRE(pinned_by_driver().size() == 1);
  CHECK(pinned_by_driver()[0].device == 2);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a job pins on the device that its caller has chosen, with a context or without") {
  if (is_driver_only()) return;  // a device is current in the runtime only
  const Fresh fresh("devices=4");
  const Memory memory(4 * page());
  const hp_range range = {0, page()};
  const int device = GENERATE(0, 2);
  CHECK(on_fresh_thread([&] {
    hp_job *job = nullptr;
    vendor_call(runtime_file(), "cudaSetDevice", device);
    if (hp_register_start(memory.at(), &range, 1, HP_REGISTER_REQUIRED, nullptr, &job) != HP_OK) return HP_E_INVALID;
    const int32_t status = hp_job_wait(job, kNoLimit);
    hp_job_free(job);
    return status;
  }) == HP_OK);
  REQUIRE(pinned_by_driver().size() == 1);
  CHECK(pinned_by_driver()[0].device == device);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a refusal leaves the thread without a context, as it was", "[context]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  hps_activate_context(1);
  fail_next("register", 801);
  Current before, after;
  CHECK(on_fresh_thread([&] {
    before = current();
    const int32_t s = hp_register(memory.at(), page(), HP_REGISTER_REQUIRED);
    after = current();
    return s;
  }) == HP_E_REFUSED);
  CHECK(after == before);
}

TEST_CASE("our pins outlive the application's reference to the context, by one reference of ours", "[context]") {
  const Fresh fresh;
  const Memory memory(8 * page());
  hps_activate_context(3);  // in no other test, since the reference is kept for the life of the process
  for (size_t i = 0; i < 4; ++i)
    CHECK(on_fresh_thread([&] { return hp_register(memory.page_at(2 * i), page(), 0); }) == HP_OK);
  REQUIRE(vendor_call(libcuda(), "cuDevicePrimaryCtxRelease_v2", 3) == 0);
  CHECK(hps_context_active(3) == 1);
  CHECK(hps_pinned(memory.at(), page()) == HPS_ALL);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_calls("unregister") == 4);
  REQUIRE(vendor_call(libcuda(), "cuDevicePrimaryCtxRelease_v2", 3) == 0);
  CHECK(hps_context_active(3) == 0);
}

TEST_CASE("a context that cannot be made is a refusal", "[context]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const char *call = GENERATE("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2");
  script(std::string("fail=") + call + ":*:2");
  CHECK(on_fresh_thread([&] { return hp_register(memory.at(), page(), HP_REGISTER_REQUIRED); }) == HP_E_REFUSED);
  CHECK(hps_live_registrations() == 0);
  CHECK(on_fresh_thread([] { return hps_current_context(); }) == -1);
}

TEST_CASE("pins that went with their context count as released", "[context]") {
  const char *code = GENERATE("713", "709", "4");
  const Fresh fresh(std::string("after_destroy=") + code);
  const Memory memory(4 * page());
  hps_activate_context(1);
  REQUIRE(on_fresh_thread([&] { return hp_register(memory.at(), page(), 0); }) == HP_OK);
  hps_destroy_context(1);
  CHECK(hps_live_registrations() == 0);
  CHECK(on_fresh_thread([&] { return hp_unregister(memory.at()); }) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}
