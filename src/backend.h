// What a backend is: one constant table for each vendor, and the choice among them.
#pragma once
#include <hostpin.h>

#include <cstdint>
#include <span>
#include <vector>

#include "config.h"
#include "error.h"

namespace hp {

// What a native code means for the range that was asked for; codes differ between vendors and releases.
enum class Failure : uint8_t {
  none,
  invalid,      // "invalid value": too large, not such memory, or plainly refused
  memory,       // no memory or address space for it
  foreign,      // all of it is registered by somebody else
  foreign_part, // some of it is
  unmapped,     // not all of it is mapped; no driver was asked
  unsupported,  // not supported or not permitted here
  capture,      // a stream capture forbids it now
  device,       // the device is lost or the runtime cannot work
  gone,         // of a release: the context or the runtime is gone, and the pin with it
  other,
};

// The outcome of one vendor call.
struct Outcome {
  Failure failure = Failure::none;
  int64_t native = 0;
  const char *call = "";
  bool held = false;  // of a pin that failed: some of the range is pinned nevertheless, and unpin() is to be called
  const char *hint = nullptr;  // what to do, where the backend knows the cause
};

// What the driver said of a range that it pinned.
struct Pinned {
  uint64_t device = 0;        // device address of its first byte; 0: ask device_pointer()
  bool host_address = false;  // device code may use the host address
};

// Where a backend looks for its runtime. The stages are gone through for all backends in turn.
enum class Stage : uint8_t {
  named,   // the file that the configuration names
  loaded,  // a copy that this process has loaded already
  open,    // the versioned names, where there is a sign of the vendor's device
};

struct Look {
  const Config &config;
  Stage stage;
  bool forced;                  // the configuration names this backend: look also without a sign of a device
  std::vector<void *> &asked;   // runtimes that have answered before; they are not asked again
  hp_backend_info &info;        // filled when a runtime is taken
  Text &reason;                 // why one was not
  Text &warning;                // logged after the look, when a log callback may call in here again
};

struct Backend {
  int32_t id;  // HP_BACKEND_
  const char *name;
  bool (*load)(Look &look);
  Outcome (*pin)(uint64_t start, uint64_t len, uint32_t flags, Pinned &out);
  Outcome (*unpin)(uint64_t start, uint64_t len);
  Outcome (*device_pointer)(uint64_t start, uint64_t &device);
  const char *(*code_name)(int64_t native);
  // Where a thread's device matters: what is current in the caller, and making that current in a thread of the library.
  uint64_t (*current)() = nullptr;
  void (*enter)(uint64_t current) = nullptr;
};

extern const Backend kCuda, kHip, kLevelZero, kNone;

// In the order in which they are looked for; without kNone.
extern const std::span<const Backend *const> built_in_backends;

// A backend and what is known of it. Never changes once it is published, never freed.
struct Selection {
  const Backend *backend = &kNone;
  hp_backend_info info{};
  const Selection *before = nullptr;  // may still be in use, and is no leak
};

// A copy that lives for ever, as what a selection hands out has to; equal ones are kept once. Only for load().
const char *keep_text(const char *text);

// The backend in use; the first call looks for one. "None" is looked at again when the process has loaded more
// libraries. Throws bad_alloc.
const Selection &selection(const Config &config);

}  // namespace hp
