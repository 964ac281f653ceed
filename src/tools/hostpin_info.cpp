// hostpin-info: shows how libhostpin pins memory on this machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <hostpin.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "options.h"
#include "plot.h"
#include "report.h"
#include "words.h"

namespace {

using namespace info;

enum Exit { kDone = 0, kPageable = 1, kUsage = 2, kFailed = 3 };

// A file that is opened later must not become stdout or stderr: text would be written into a vendor's device node.
void occupy_standard_files() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(kFailed);
}

void print(const std::string &text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "the output cannot be written");
}

// "" where the library is a part of this program. &hp_version could be an entry of the program's own jump table.
std::string library_file() {
  Dl_info found;
  const void *address = dlsym(RTLD_DEFAULT, "hp_version");
  if (!address || !dladdr(address, &found) || !found.dli_fname) return "";
  const std::unique_ptr<char, void (*)(void *)> whole(realpath(found.dli_fname, nullptr), std::free);
  return whole ? whole.get() : found.dli_fname;
}

Report look() {
  Report r;
  r.library_file = library_file();
  r.backend.struct_size = sizeof(r.backend);
  const int32_t status = hp_get_backend(&r.backend);
  if (status != HP_OK) throw std::runtime_error(*hp_last_error() ? hp_last_error() : hp_strerror(status));
  r.system = read_system_facts();
  return r;
}

// Touching memory that is not there would have the kernel end some process.
bool fits(const char *option, uint64_t bytes, const SystemFacts &s) {
  const uint64_t room = std::min(s.memory_usable.value_or(UINT64_MAX), s.memory_available.value_or(UINT64_MAX));
  if (bytes <= room) return true;
  std::fprintf(stderr, "hostpin-info: --%s %s is more than the %s of memory that are available\n", option,
               size_words(bytes).c_str(), size_words(room).c_str());
  return false;
}

Exit exit_of(const Trial &trial) {
  if (trial.status == HP_PAGEABLE) return kPageable;
  return trial.status == HP_OK && trial.unregister_status == HP_OK ? kDone : kFailed;
}

Exit exit_of(const Rates &rates) {
  if (rates.status == HP_OK) return kDone;
  return rates.status == HP_PAGEABLE ? kPageable : kFailed;
}

Exit exit_of(const Report &report) {
  if (report.trial) return exit_of(*report.trial);
  return report.rates ? exit_of(*report.rates) : kDone;
}

void measure(const Options &options, Report &report) {
  if (options.pin_bytes) report.trial = pin_fresh_memory(options.pin_bytes);
  if (options.bench_bytes) report.rates = measure_rates(options.bench_bytes, isatty(STDERR_FILENO));
}

Exit show(const Options &options) {
  Report report = look();
  if (!fits("pin", options.pin_bytes, report.system) || !fits("bench", options.bench_bytes, report.system)) return kUsage;
  if (!options.plot.empty()) require_writable(options.plot);  // nobody shall wait for rates that cannot be drawn
  // A large pin takes a while, and a broken driver may end the process: show what is known first.
  if (!options.json) print(table(report));
  measure(options, report);
  if (options.json) print(json(report));
  if (!options.json && report.trial) print('\n' + trial_table(*report.trial));
  if (!options.json && report.rates) print('\n' + rates_table(*report.rates));
  if (!options.plot.empty() && report.rates->status == HP_OK) draw(*report.rates, options.plot);
  return exit_of(report);
}

Exit run(int argc, char **argv) {
  const Options options = parse_options(argc, argv);
  switch (options.action) {
    case Options::Action::wrong: return kUsage;
    case Options::Action::help: print(help_text()); return kDone;
    case Options::Action::version: print(std::string("hostpin-info ") + hp_version_string() + '\n'); return kDone;
    default: return show(options);
  }
}

}  // namespace

int main(int argc, char **argv) {
  occupy_standard_files();
  try {
    return run(argc, argv);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "hostpin-info: %s\n", e.what());
    return kFailed;
  }
}
