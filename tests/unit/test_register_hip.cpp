// What is HIP's own: flags that mean something else there, registrations that older releases take twice, read-only memory.
#include "register_test.h"

using namespace test;

namespace {

int major() { return static_cast<int>(backend().runtime_version / 10000000); }

bool any_leaked() {
  for (const hps_registration &r : pinned_by_driver())
    if (r.kind == HPS_LEAKED) return true;
  return false;
}

}  // namespace

TEST_CASE("CUDA's bits are not given to HIP, where they mean something else") {
  const Fresh fresh("trace=1");
  const Memory memory(page());
  const uint32_t bits = GENERATE(0u, 1u, 2u, 3u, 8u, 9u, 10u, 11u);
  REQUIRE(hp_register(memory.at(), page(), bits | HP_REGISTER_REQUIRED) == HP_OK);
  const auto made = traced(is_register);
  REQUIRE(made.size() == 1);
  CHECK(made[0].flags == 0);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("I/O memory is HIP's flag where the release knows it") {
  const Fresh fresh("trace=1");
  const Memory memory(page());
  const uint32_t more = GENERATE(0u, HP_REGISTER_READONLY, HP_REGISTER_MAPPED);
  if (major() >= 7) {
    CHECK(hp_register(memory.at(), page(), HP_REGISTER_IOMEMORY | more) == HP_PAGEABLE);
    CHECK(hp_last_native_error() == 1);
    CHECK(hp_unregister(memory.at()) == HP_OK);
    script("hip_iomemory=1");
  }
  REQUIRE(hp_register(memory.at(), page(), HP_REGISTER_IOMEMORY | more) == HP_OK);
  for (const auto &call : traced(is_register)) CHECK(call.flags == 4);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("no release is ever given memory twice, or an address inside a registration") {
  const Fresh fresh("hip_overlap=accept");  // takes anything, and ends the process at an interior release
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(2), 4 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(2), 4 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(3), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(5 * page() + 1), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(), memory.size(), 0) == HP_OK);
  CHECK_FALSE(any_leaked());
  CHECK(hps_live_registrations() == 4);  // 2-5, 6-7, then the gaps 0-1 and 8-15
  for (size_t at : {3 * page(), 5 * page() + 1, size_t{0}, 2 * page(), 2 * page()}) CHECK(hp_unregister(memory.at(at)) == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_NONE);
}

TEST_CASE("memory of others is left alone, also by releases that would take it silently") {
  const Fresh fresh("hip_overlap=accept");
  const Memory memory(16 * page());
  REQUIRE(hps_pin_foreign(HPS_HIP, memory.page_at(4), 4 * page()) == 0);
  CHECK(hp_register(memory.page_at(4), 4 * page(), 0) == HP_FOREIGN);
  CHECK(hp_register(memory.page_at(2), 4 * page(), 0) == HP_PAGEABLE);
  CHECK(hps_calls("register") == 0);
  CHECK(hp_unregister(memory.page_at(4)) == HP_OK);
  CHECK(hp_unregister(memory.page_at(2)) == HP_OK);
  CHECK(hps_calls("unregister") == 0);
  REQUIRE(hps_unpin_foreign(HPS_HIP, memory.page_at(4)) == 0);
}

TEST_CASE("a message about memory of others does not speak of a failure that there was not") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hps_pin_foreign(HPS_HIP, memory.at(), page()) == 0);
  CHECK(hp_register(memory.at(), page(), 0) == HP_FOREIGN);
  CHECK(contains(hp_last_error(), "hipPointerGetAttributes"));
  CHECK(contains(hp_last_error(), "registered"));
  CHECK_FALSE(contains(hp_last_error(), "failed"));
  CHECK(hp_unregister(memory.at()) == HP_OK);
  REQUIRE(hps_unpin_foreign(HPS_HIP, memory.at()) == 0);
}

TEST_CASE("read-only memory is refused, and that is said") {
  const Fresh fresh;
  const Memory memory(4 * page(), PROT_READ);
  const uint32_t flags = GENERATE(0u, HP_REGISTER_READONLY);
  CHECK(hp_register(memory.at(), page(), flags) == HP_PAGEABLE);
  CHECK(hp_last_native_error() == (major() <= 5 ? 2 : 1));
  CHECK(contains(hp_last_error(), "read-only"));
  CHECK(hps_live_registrations() == 0);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the device pointer comes with the registration") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const bool same = GENERATE(true, false);
  if (!same) script("device_offset=1G");
  REQUIRE(hp_register(memory.at(5), page(), 0) == HP_OK);
  CHECK(hps_calls("hipHostGetDevicePointer") == 1);
  CHECK(region(memory.at(5), 1).host_address == (same ? 1u : 0u));
  void *device = nullptr;
  REQUIRE(hp_device_pointer(memory.at(7), &device) == HP_OK);
  CHECK(reinterpret_cast<uintptr_t>(device) == memory.address(7) + (same ? 0 : kGiB));
  CHECK(hps_calls("hipHostGetDevicePointer") == 1);
  REQUIRE(hp_unregister(memory.at(5)) == HP_OK);
}

TEST_CASE("a job pins on the device that is current in its caller") {
  const Fresh fresh("devices=4");
  const Memory memory(4 * page());
  const hp_range range = {0, page()};
  const int device = GENERATE(0, 2);
  static int used;
  used = -1;
  hps_on_call([](const char *function, const void *, size_t, void *) {
    if (std::string(function) == "hipHostRegister") vendor_call(runtime_file(), "hipGetDevice", &used);
  }, nullptr);
  CHECK(on_fresh_thread([&] {
    hp_job *job = nullptr;
    vendor_call(runtime_file(), "hipSetDevice", device);
    if (hp_register_start(memory.at(), &range, 1, HP_REGISTER_REQUIRED, nullptr, &job) != HP_OK) return HP_E_INVALID;
    const int32_t status = hp_job_wait(job, kNoLimit);
    hp_job_free(job);
    return status;
  }) == HP_OK);
  hps_on_call(nullptr, nullptr);
  CHECK(used == device);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}
