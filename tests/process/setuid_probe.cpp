// Prints what libhostpin logs, whether this program runs with more rights than its caller's, and the runtime that was chosen.
// Linked with the library's parts, because the loader ignores a relative search path in such programs.
#include <hostpin.h>

#include <sys/auxv.h>

#include <cstdio>

int main() {
  hp_backend_info info{};
  info.struct_size = sizeof info;
  static char memory[4096];
  hp_set_log_callback([](int32_t, const char *line, void *) { std::puts(line); }, nullptr);
  if (hp_register(memory, sizeof memory, 0) < 0 || hp_get_backend(&info) != HP_OK) return 1;
  std::printf("secure %d, runtime %s\n", getauxval(AT_SECURE) != 0, info.runtime_file);
}
