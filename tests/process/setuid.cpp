// A program that runs with more rights than its caller must not load a file that the caller names. The test is run as root:
// it makes a copy of its probe set-user-ID and has nobody run it.
//   setuid PROBE
#include "scenario.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>

namespace {

using namespace scenario;
namespace fs = std::filesystem;

constexpr uid_t nobody = 65534;

// A folder whose filesystem heeds the bit.
fs::path folder() {
  for (std::string place : {"/tmp", "/var/tmp", "/run", "/root"}) {
    struct statvfs filesystem {};
    if (statvfs(place.c_str(), &filesystem) != 0 || (filesystem.f_flag & ST_NOSUID) != 0) continue;
    place += "/hostpin-setuid-XXXXXX";
    CHECK(mkdtemp(place.data()) != nullptr);
    return place;
  }
  real::fail("setuid", 0, "every folder", "is on a filesystem that ignores the set-user-ID bit");
}

// The simulated runtime and its driver, where nobody may read them, too: the build may lie in a folder of root's.
fs::path copy_runtime(const fs::path &place) {
  const fs::path from = cudart12, folder = place / "runtimes" / "cudart12", to = folder / from.filename();
  const char *driver = "libhostpin-sim.so.0";
  fs::create_directories(folder);
  fs::copy_file(from, to);
  fs::copy_file(from.parent_path().parent_path().parent_path() / driver, place / driver);
  for (const fs::path &path : {place, folder.parent_path(), folder, to, place / driver})
    CHECK(chmod(path.c_str(), 0755) == 0);
  return to;
}

Outcome run_as_nobody(const fs::path &probe, const fs::path &runtime) {
  return in_child([&] {
    CHECK(setgid(nobody) == 0 && setuid(nobody) == 0);
    const std::string variable = "HOSTPIN_CUDART=" + runtime.string();
    const char *const variables[] = {variable.c_str(), "HOSTPIN_BUDGET=nonsense", nullptr};
    const char *const arguments[] = {probe.c_str(), nullptr};
    execve(probe.c_str(), const_cast<char *const *>(arguments), const_cast<char *const *>(variables));
    _exit(127);
  });
}

} // namespace

int main(int argc, char **argv) {
  CHECK_EQUAL(argc, 2);
  if (geteuid() != 0) real::fail("setuid", 0, "this test", "must be run as root");
  const fs::path place = folder(), probe = place / "probe";
  fs::copy_file(argv[1], probe);
  const fs::path runtime = copy_runtime(place);

  CHECK(chmod(probe.c_str(), 0755) == 0);
  const Outcome plain = run_as_nobody(probe, runtime);
  CHECK(chmod(probe.c_str(), 04755) == 0);
  const Outcome secure = run_as_nobody(probe, runtime);
  fs::remove_all(place);

  if (!plain.returned(0) || !contains(plain.output, "secure 0, runtime " + runtime.string()) ||
      !contains(plain.output, "HOSTPIN_BUDGET=nonsense"))
    real::fail("setuid", 0, "without the bit the environment is not followed:", describe(plain));
  if (!secure.returned(0) || !contains(secure.output, "secure 1, runtime") || contains(secure.output, runtime.string()) ||
      contains(secure.output, "nonsense"))
    real::fail("setuid", 0, "with the bit the environment is not ignored:", describe(secure));
}
