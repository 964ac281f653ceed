// A registration in the background, chunk by chunk.
#pragma once
#include <hostpin.h>

#include <vector>

#include "error.h"
#include "state.h"

namespace hp {

int32_t start_job(State &state, uint64_t base, uint64_t len, std::vector<Extent> stretches,
                  std::vector<Extent> inner, uint32_t flags, const hp_job_options &options, hp_job *&job);
void poll_job(hp_job &job, hp_progress &out) noexcept;
int32_t wait_for_job(hp_job &job, uint64_t timeout_ns, Report &report);
void cancel_job(hp_job &job) noexcept;
void free_job(hp_job *job) noexcept;

}  // namespace hp
