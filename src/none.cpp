// No backend: nothing is ever pinned.
#include "backend.h"

namespace hp {

namespace {

bool load(Look &) { return true; }
Outcome pin(uint64_t, uint64_t, uint32_t, Pinned &) { return {Failure::unsupported, 0, ""}; }
Outcome unpin(uint64_t, uint64_t) { return {}; }
Outcome device_pointer(uint64_t, uint64_t &) { return {Failure::unsupported, 0, ""}; }
const char *code_name(int64_t) { return ""; }

}  // namespace

constinit const Backend kNone = {HP_BACKEND_NONE, "none", load, pin, unpin, device_pointer, code_name};

}  // namespace hp
