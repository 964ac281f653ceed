// The course of one registration and of its end.
#pragma once
#include <cstdint>

#include "error.h"
#include "state.h"

namespace hp {

int32_t register_range(State &state, uint64_t base, uint64_t len, uint32_t flags, Report &report);
int32_t unregister(State &state, uint64_t base, Report &report);
int32_t unregister_all(State &state, uint64_t timeout_ns, Report &report);
int32_t device_pointer(State &state, uint64_t ptr, uint64_t &device, Report &report);

}  // namespace hp
