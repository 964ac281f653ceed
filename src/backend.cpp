#include "backend.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>

#include "background.h"
#include "log.h"
#include "runtime.h"
#include "system.h"

namespace hp {

namespace {

constexpr uint64_t kDefaultSegment = uint64_t{64} << 30;

struct Candidate {
  const Backend *backend;
  Text reason;
};

// Lives for ever: a choice may be under way in another thread when the process ends.
struct Choice {
  std::mutex mutex;
  std::condition_variable changed;
  bool choosing = false;
  std::atomic<const Selection *> selection{nullptr};
  std::atomic<unsigned long long> loaded{0};  // libraries in the process when "none" was found
  std::vector<void *> asked;                  // guarded by `choosing`, as the reasons are
  std::vector<Candidate> candidates;
};

Choice &choice() {
  static Choice *const c = new Choice;
  return *c;
}

void start_candidates(Choice &c, const Config &config) {
  if (!c.candidates.empty()) return;
  c.candidates.reserve(built_in_backends.size());
  for (const Backend *b : built_in_backends) c.candidates.push_back({b, {}});
  for (Candidate &candidate : c.candidates)
    if (config.backend == HP_BACKEND_NONE)
      candidate.reason.add("the configuration says backend none");
    else if (config.backend != HP_BACKEND_AUTO && config.backend != candidate.backend->id)
      candidate.reason.add("the configuration names another backend");
}

bool allowed(const Config &config, const Candidate &candidate) {
  return config.backend == HP_BACKEND_AUTO || config.backend == candidate.backend->id;
}

const char *reason_for(const Choice &c, int32_t id, const Backend *chosen) {
  if (chosen->id == id) return "";
  for (const Candidate &candidate : c.candidates)
    if (candidate.backend->id == id) {
      if (!candidate.reason.empty()) return keep_text(candidate.reason.c_str());
      return keep_text(Text().add("not looked for: %s was found first", chosen->name).c_str());
    }
  return "not built into this library";
}

// `own`: the limit that the backend found, if any.
uint64_t segment_limit(const Config &config, uint64_t own) {
  uint64_t limit = own ? std::min(own, kDefaultSegment) : kDefaultSegment;
  if (const uint64_t kernel = kernel_pin_limit(kernel_version())) limit = std::min(limit, kernel);
  if (config.max_segment) limit = own ? std::min(own, config.max_segment) : config.max_segment;
  return limit / page_size() * page_size();
}

std::unique_ptr<Selection> choose(Choice &c, const Config &config, bool again, Text &warning) {
  start_candidates(c, config);
  auto s = std::make_unique<Selection>();
  s->info.struct_size = sizeof(s->info);
  s->info.runtime_file = "";
  for (Stage stage : {Stage::named, Stage::loaded, Stage::open})
    for (Candidate &candidate : c.candidates) {
      // Names and device nodes do not change while the process runs; what it has loaded does.
      if (s->backend != &kNone || !allowed(config, candidate) || (again && stage != Stage::loaded)) continue;
      Look look{config, stage, config.backend == candidate.backend->id, c.asked, s->info, candidate.reason, warning};
      if (candidate.backend->load(look)) s->backend = candidate.backend;
    }
  s->info.backend = s->backend->id;
  s->info.name = s->backend->name;
  s->info.max_segment = segment_limit(config, s->info.max_segment);
  s->info.cuda_reason = reason_for(c, HP_BACKEND_CUDA, s->backend);
  s->info.hip_reason = reason_for(c, HP_BACKEND_HIP, s->backend);
  s->info.level_zero_reason = reason_for(c, HP_BACKEND_LEVEL_ZERO, s->backend);
  if (s->backend == &kNone) return s;
  watch_for_exit();
  return s;
}

bool still_valid(const Choice &c, const Selection *s) noexcept {
  return s && (s->backend != &kNone || c.loaded.load(std::memory_order_relaxed) == libraries_loaded());
}

}  // namespace

const char *keep_text(const char *text) {
  static auto *const kept = new std::vector<const char *>;
  for (const char *k : *kept)
    if (std::strcmp(k, text) == 0) return k;
  kept->reserve(kept->size() + 1);
  char *copy = strdup(text);
  if (!copy) throw std::bad_alloc();
  kept->push_back(copy);
  return copy;
}

const Selection &selection(const Config &config) {
  Choice &c = choice();
  const Selection *s = c.selection.load(std::memory_order_acquire);
  if (still_valid(c, s)) return *s;
  // Vendor libraries initialise themselves in here, so no lock is held; other callers wait for the result.
  std::unique_lock lock(c.mutex);
  c.changed.wait(lock, [&] { return !c.choosing; });
  s = c.selection.load(std::memory_order_acquire);
  if (still_valid(c, s)) return *s;
  c.choosing = true;
  lock.unlock();
  // Taken before the look: what is opened by it, or meanwhile by others, is looked at once more by the next call.
  const unsigned long long loaded = libraries_loaded();
  const size_t asked = c.asked.size();
  std::unique_ptr<Selection> chosen;
  Text warning;
  std::exception_ptr failed;
  try {
    chosen = choose(c, config, s != nullptr, warning);
  } catch (...) {
    failed = std::current_exception();
    // No answer was had, so the next look asks and explains anew.
    c.asked.resize(asked);
    if (!s) c.candidates.clear();
  }
  lock.lock();
  c.choosing = false;
  c.changed.notify_all();
  if (failed) std::rethrow_exception(failed);
  c.loaded.store(loaded);
  // The same "none" again: the old one stays, so that looking often costs no memory.
  const bool same = s && chosen->backend == &kNone && std::memcmp(&s->info, &chosen->info, sizeof(s->info)) == 0;
  if (!same) {
    chosen->before = s;
    s = chosen.release();
    c.selection.store(s, std::memory_order_release);
  }
  lock.unlock();  // a log callback may call in here again
  if (!warning.empty()) log_line(HP_LOG_WARN, "%s", warning.c_str());
  if (!same && s->backend != &kNone)
    log_line(HP_LOG_INFO, "backend %s: %s, %d device(s)", s->info.name, s->info.runtime_file, s->info.device_count);
  return *s;
}

}  // namespace hp
