// All that the command shows, and the two forms it is shown in.
#pragma once
#include <hostpin.h>

#include <array>
#include <optional>
#include <string>

#include "rates.h"
#include "system_facts.h"
#include "trial.h"

namespace info {

// A backend that pins, whether it is in use or not.
struct Candidate {
  int32_t backend;
  const char *name;
  const char *hp_backend_info::*reason;
};
inline constexpr std::array<Candidate, 3> kCandidates{{
    {HP_BACKEND_CUDA, "cuda", &hp_backend_info::cuda_reason},
    {HP_BACKEND_HIP, "hip", &hp_backend_info::hip_reason},
    {HP_BACKEND_LEVEL_ZERO, "level_zero", &hp_backend_info::level_zero_reason},
}};

struct Capability {
  uint32_t bit;
  const char *name;   // in JSON
  const char *words;  // in the table
};
inline constexpr std::array<Capability, 3> kCapabilities{{
    {HP_CAP_HOST_ADDRESS, "host_address", "device code may use host addresses"},
    {HP_CAP_DEVICE_POINTER, "device_pointer", "device code may use device pointers"},
    {HP_CAP_READ_ONLY, "read_only", "read-only memory can be pinned"},
}};

struct Report {
  std::string library_file;
  hp_backend_info backend{};
  SystemFacts system;
  std::optional<Trial> trial;
  std::optional<Rates> rates;
};

// For people, at most 80 columns wide where words allow; trial and benchmark have sections of their own.
std::string table(const Report &report);
std::string trial_table(const Trial &trial);
std::string rates_table(const Rates &rates);

// For programs: one object; the keys are those of hostpin-info(1).
std::string json(const Report &report);

}  // namespace info
