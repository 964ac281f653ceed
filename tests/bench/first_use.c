/* What the library costs a C program that loads it and registers once, on a machine without devices. Prints JSON. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of this process, in KiB: "Rss:" counts files too, "Private_Dirty:" is memory that nobody else can share. */
static long memory(const char *field) {
  char line[256];
  long kib = 0;
  FILE *f = fopen("/proc/self/smaps_rollup", "r");
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), "%ld", &kib);
  if (f) fclose(f);
  return kib;
}

int main(int argc, char **argv) {
  static char buffer[65536];
  if (argc != 2) return 2;
  memory("Rss:"); /* so that stdio's own buffers are there */
  const long rss = memory("Rss:");
  const long dirty = memory("Private_Dirty:");
  const double begin = now_ms();
  void *library = dlopen(argv[1], RTLD_NOW);
  const double loaded = now_ms();
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int32_t (*hp_register)(void *, size_t, uint32_t);
  *(void **)&hp_register = dlsym(library, "hp_register");
  const int32_t status = hp_register(buffer, sizeof buffer, 0);
  const double registered = now_ms();
  printf("{\"status\": %d, \"dlopen_ms\": %.3f, \"first_register_ms\": %.3f, ", status, loaded - begin,
         registered - loaded);
  printf("\"rss_kib\": %ld, \"private_dirty_kib\": %ld}\n", memory("Rss:") - rss,
         memory("Private_Dirty:") - dirty);
  return 0;
}
