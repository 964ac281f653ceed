#include "json_writer.h"
#include "report.h"
#include "words.h"

namespace info {

namespace {

void known(JsonWriter &w, const char *key, const std::string &text) {
  w.key(key);
  text.empty() ? w.null() : w.value(text);
}

void add_library(JsonWriter &w, const Report &r) {
  w.key("library").begin('{');
  w.key("version").value(hp_version_string());
  known(w, "file", r.library_file);
  w.end('}');
}

void add_backend(JsonWriter &w, const hp_backend_info &b) {
  w.key("backend").begin('{');
  w.key("name").value(b.name);
  w.key("devices").value(b.device_count);
  w.key("capabilities").begin('[');
  for (const Capability &c : kCapabilities)
    if (b.capabilities & c.bit) w.value(c.name);
  w.end(']');
  w.key("max_segment").value(b.max_segment);
  w.end('}');
}

void add_runtime(JsonWriter &w, const Candidate &c, const hp_backend_info &b) {
  const bool in_use = c.backend == b.backend;
  const uint32_t version = in_use ? b.runtime_version : 0;
  const uint32_t driver = in_use ? b.driver_version : 0;
  w.begin('{');
  w.key("backend").value(c.name);
  w.key("in_use").value(in_use);
  known(w, "reason", b.*c.reason);
  known(w, "file", in_use ? b.runtime_file : "");
  known(w, "version", version_words(c.backend, version));
  w.key("version_number").value(version);
  known(w, "driver_version", version_words(c.backend, driver));
  w.key("driver_version_number").value(driver);
  w.end('}');
}

void add_huge_pages(JsonWriter &w, const std::vector<HugePages> &pools) {
  w.key("huge_pages").begin('[');
  for (const HugePages &p : pools) {
    w.begin('{');
    w.key("page_size").value(p.page_size);
    w.key("free").value(p.free);
    w.key("total").value(p.total);
    w.end('}');
  }
  w.end(']');
}

void add_system(JsonWriter &w, const SystemFacts &s) {
  w.key("system").begin('{');
  w.key("kernel").value(s.kernel);
  w.key("kernel_pin_limit").value(s.kernel_pin_limit);
  w.key("wsl").value(s.wsl);
  w.key("memory_total").value(s.memory_total);
  w.key("memory_available").value(s.memory_available);
  w.key("memory_usable").value(s.memory_usable);
  w.key("cgroup_limit").value(s.cgroup_limit);
  w.key("budget").value(s.budget);
  w.key("memlock_soft").value(s.memlock_soft);
  w.key("memlock_hard").value(s.memlock_hard);
  w.key("page_size").value(s.page_size);
  known(w, "thp", s.thp);
  known(w, "thp_shmem", s.thp_shmem);
  add_huge_pages(w, s.huge_pages);
  w.key("numa_nodes").value(s.numa_nodes);
  w.end('}');
}

void add_trial(JsonWriter &w, const Trial &t) {
  w.begin('{');
  w.key("bytes").value(t.bytes);
  w.key("pinned").value(t.status == HP_OK);
  w.key("status").value(t.status);
  w.key("meaning").value(hp_strerror(t.status));
  known(w, "message", t.message);
  w.key("register_ns").value(t.register_ns);
  w.key("gib_per_s").value(t.status == HP_OK ? std::optional<double>(t.gib_per_second()) : std::nullopt);
  w.key("segments").value(t.segments);
  w.key("unregister_status").value(t.unregister_status);
  known(w, "unregister_message", t.unregister_message);
  w.key("unregister_ns").value(t.unregister_ns);
  w.key("start_ns").value(t.start_ns ? std::optional<uint64_t>(t.start_ns) : std::nullopt);
  w.end('}');
}

void add_rates(JsonWriter &w, const Rates &r) {
  w.begin('{');
  w.key("bytes").value(r.bytes);
  w.key("status").value(r.status);
  known(w, "message", r.message);
  w.key("ways").begin('[');
  for (const Rate &way : r.ways) {
    w.begin('{');
    w.key("name").value(way.name);
    w.key("register_ns").value(way.ns);
    w.key("gib_per_s").value(r.gib_per_second(way));
    w.end('}');
  }
  w.end(']');
  w.end('}');
}

}  // namespace

std::string json(const Report &r) {
  JsonWriter w;
  w.begin('{');
  add_library(w, r);
  add_backend(w, r.backend);
  w.key("runtimes").begin('[');
  for (const Candidate &c : kCandidates) add_runtime(w, c, r.backend);
  w.end(']');
  add_system(w, r.system);
  w.key("trial");
  if (r.trial)
    add_trial(w, *r.trial);
  else
    w.null();
  w.key("rates");
  if (r.rates)
    add_rates(w, *r.rates);
  else
    w.null();
  w.end('}');
  return w.take();
}

}  // namespace info
