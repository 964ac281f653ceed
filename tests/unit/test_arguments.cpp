// What callers get wrong: the right status, words that name the argument and its value, and nothing changed.
#include <cstring>
#include <set>

#include "register_test.h"

using namespace test;

namespace {

void *at(uintptr_t address) { return reinterpret_cast<void *>(address); }

// One registration that no wrong call may change.
class Witness {
public:
  Witness() : memory_(4 * page()) {
    REQUIRE(hp_register(memory_.at(), 2 * page(), 0) == HP_OK);
    before_ = stats();
    calls_ = hps_calls("*");
  }
  ~Witness() {
    CHECK(hps_calls("*") == calls_);
    const hp_stats after = stats();
    CHECK(std::memcmp(&before_, &after, sizeof(after)) == 0);
    CHECK(region(memory_.at(), 2 * page()).references == 1);
    CHECK(hp_unregister(memory_.at()) == HP_OK);
  }
  void *ptr() const { return memory_.at(); }

private:
  Memory memory_;
  hp_stats before_{};
  uint64_t calls_ = 0;
};

// The last call failed as an invalid argument, and says each of these.
void check_invalid(int32_t status, const char *function, std::initializer_list<std::string> parts) {
  CHECK(status == HP_E_INVALID);
  const std::string text = hp_last_error();
  CAPTURE(text);
  CHECK(text.rfind(function, 0) == 0);
  for (const auto &part : parts) CHECK(contains(text, part));
  CHECK(hp_last_native_error() == 0);
}

}  // namespace

TEST_CASE("hp_register") {
  const Fresh fresh;
  const Witness witness;
  check_invalid(hp_register(nullptr, page(), 0), "hp_register", {"ptr", "NULL"});
  check_invalid(hp_register(nullptr, 0, 0), "hp_register", {"ptr", "NULL"});
  check_invalid(hp_register(witness.ptr(), 0, 0), "hp_register", {"len", "0", hex(witness.ptr())});
  check_invalid(hp_register(witness.ptr(), 0, HP_REGISTER_REQUIRED), "hp_register", {"len", "0"});
  for (size_t len : {SIZE_MAX, SIZE_MAX - reinterpret_cast<uintptr_t>(witness.ptr()) + 1, SIZE_MAX - page()})
    check_invalid(hp_register(witness.ptr(), len, 0), "hp_register", {"wrap", hex(witness.ptr()), std::to_string(len)});
  // The last pages of the address space, whose end cannot be rounded up.
  for (uintptr_t address : {UINTPTR_MAX, UINTPTR_MAX - 1, UINTPTR_MAX - page() + 2})
    for (size_t len : {size_t{1}, size_t{2}, page(), SIZE_MAX})
      check_invalid(hp_register(at(address), len, 0), "hp_register", {"wrap", hex(at(address)), std::to_string(len)});
  for (uint32_t bit : {0x10u, 0x80u, 0x8000u, 0x1000000u, 0x80000000u}) {
    char text[16];
    snprintf(text, sizeof(text), "%#x", bit);
    check_invalid(hp_register(witness.ptr(), page(), bit), "hp_register", {"flags", text});
    check_invalid(hp_register(witness.ptr(), 2 * page(), bit | HP_REGISTER_PORTABLE), "hp_register", {"flags", text});
  }
  check_invalid(hp_register(witness.ptr(), 2 * page(), UINT32_MAX), "hp_register", {"flags", "0xffffffff"});
}

TEST_CASE("hp_unregister") {
  const Fresh fresh;
  const Witness witness;
  check_invalid(hp_unregister(nullptr), "hp_unregister", {"ptr", "NULL"});
  CHECK(hp_unregister(at(UINTPTR_MAX)) == HP_E_NOT_FOUND);
  CHECK(hp_unregister(at(1)) == HP_E_NOT_FOUND);
  CHECK(contains(hp_last_error(), "0x1"));
}

TEST_CASE("hp_query") {
  const Fresh fresh;
  const Witness witness;
  hp_region out;
  std::memset(&out, 0xee, sizeof(out));
  const hp_region filled = out;
  const auto untouched = [&](uint32_t size) {
    hp_region expected = filled;
    expected.struct_size = size;
    return std::memcmp(&out, &expected, sizeof(out)) == 0;
  };
  for (uint32_t size : {0u, 1u, unsigned(sizeof(out)) - 1, unsigned(sizeof(out)) + 8, UINT32_MAX}) {
    out.struct_size = size;
    check_invalid(hp_query(witness.ptr(), 1, &out), "hp_query",
                  {"struct_size", std::to_string(size), std::to_string(sizeof(out))});
    CHECK(untouched(size));
  }
  out.struct_size = sizeof(out);
  check_invalid(hp_query(nullptr, 1, &out), "hp_query", {"ptr", "NULL"});
  check_invalid(hp_query(witness.ptr(), 0, &out), "hp_query", {"len", "0", hex(witness.ptr())});
  check_invalid(hp_query(witness.ptr(), SIZE_MAX, &out), "hp_query", {"wrap", std::to_string(SIZE_MAX)});
  check_invalid(hp_query(at(UINTPTR_MAX), 1, nullptr), "hp_query", {"wrap"});
  CHECK(untouched(sizeof(out)));
  // Large, but it does not wrap.
  CHECK(hp_query(at(1), SIZE_MAX - 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_query(witness.ptr(), SIZE_MAX - reinterpret_cast<uintptr_t>(witness.ptr()), nullptr) == HP_PAGEABLE);
}

TEST_CASE("hp_device_pointer") {
  const Fresh fresh;
  const Witness witness;
  void *device = &device;
  check_invalid(hp_device_pointer(nullptr, &device), "hp_device_pointer", {"ptr", "NULL"});
  check_invalid(hp_device_pointer(witness.ptr(), nullptr), "hp_device_pointer", {"device_ptr", "NULL"});
  check_invalid(hp_device_pointer(nullptr, nullptr), "hp_device_pointer", {"ptr", "NULL"});
  CHECK(hp_device_pointer(at(UINTPTR_MAX), &device) == HP_E_NOT_FOUND);
  CHECK(device == &device);
}

TEMPLATE_TEST_CASE("structures of another size", "", hp_backend_info, hp_stats) {
  const Fresh fresh;
  const Witness witness;
  const auto call = [](TestType *out) {
    if constexpr (std::is_same_v<TestType, hp_stats>)
      return hp_get_stats(out);
    else
      return hp_get_backend(out);
  };
  const char *function = std::is_same_v<TestType, hp_stats> ? "hp_get_stats" : "hp_get_backend";
  check_invalid(call(nullptr), function, {"NULL"});
  TestType out;
  std::memset(&out, 0xee, sizeof(out));
  TestType expected = out;
  for (uint32_t size : {0u, 1u, unsigned(sizeof(out)) - 1, unsigned(sizeof(out)) + 8, UINT32_MAX}) {
    out.struct_size = expected.struct_size = size;
    check_invalid(call(&out), function, {"struct_size", std::to_string(size), std::to_string(sizeof(out))});
    CHECK(std::memcmp(&out, &expected, sizeof(out)) == 0);
  }
}

TEST_CASE("hp_configure") {
  const Fresh fresh;
  const Witness witness;
  check_invalid(hp_configure(nullptr), "hp_configure", {"NULL"});
  hp_config config{};
  check_invalid(hp_configure(&config), "hp_configure", {"struct_size", "0"});
  config.struct_size = sizeof(config);
  check_invalid(hp_configure(&config), "hp_configure", {"too late"});
}

TEST_CASE("memory that is nowhere is refused and leaves nothing") {
  const Fresh fresh;
  // Nothing is mapped in the first page of a process.
  REQUIRE(hp_register(at(8), 8, HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(contains(hp_last_error(), "not all of the range is mapped"));
  CHECK(hp_query(at(8), 8, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(at(8)) == HP_E_NOT_FOUND);
}

TEST_CASE("every status has words of its own") {
  std::set<std::string> seen;
  for (int32_t status = HP_E_BUDGET; status <= HP_FOREIGN; ++status) {
    const std::string text = hp_strerror(status);
    CAPTURE(status);
    CHECK_FALSE(text.empty());
    CHECK(text != hp_strerror(INT32_MAX));
    CHECK(seen.insert(text).second);
  }
  for (int32_t status : {HP_FOREIGN + 1, HP_E_BUDGET - 1, INT32_MAX, INT32_MIN}) {
    CHECK(std::string_view(hp_strerror(status)) == hp_strerror(INT32_MAX));
    CHECK(*hp_strerror(status));
  }
}

TEST_CASE("the library's version is the header's") {
  CHECK(hp_version() == (HP_VERSION_MAJOR << 16 | HP_VERSION_MINOR << 8 | HP_VERSION_PATCH));
  CHECK(hp_version_string() == std::to_string(HP_VERSION_MAJOR) + "." + std::to_string(HP_VERSION_MINOR) + "." +
                                   std::to_string(HP_VERSION_PATCH));
}
