/* Preloaded into hostpin-info: another machine, and answers of the library that no simulated runtime gives.
 *   FAKE_ROOT      folder in place of / for the files about the machine; what it lacks is not there
 *   FAKE_RELEASE   the kernel's release
 *   FAKE_MEMLOCK   "SOFT HARD", -1 is unlimited
 *   FAKE_BACKEND   "ID RUNTIME_VERSION DRIVER_VERSION", all reasons then are FAKE_REASON; a negative ID is the status
 *   FAKE_NODE      a file that hp_get_backend() opens for good, as a runtime does with a device node
 *   FAKE_REGISTER  the status of every hp_register()
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <hostpin.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

static const char *const moved[] = {"/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup/", "/sys/kernel/mm/",
                                    "/sys/devices/system/node/"};

static const char *place(const char *path, char *buffer, size_t size) {
  const char *root = getenv("FAKE_ROOT");
  for (size_t i = 0; root && i < sizeof(moved) / sizeof(*moved); ++i)
    if (strncmp(path, moved[i], strlen(moved[i])) == 0) {
      snprintf(buffer, size, "%s%s", root, path);
      return buffer;
    }
  return path;
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

#define FAKE_OPEN(name)                                                                            \
  int name(const char *path, int flags, ...) {                                                     \
    char buffer[4096];                                                                             \
    va_list arguments;                                                                             \
    va_start(arguments, flags);                                                                    \
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;                           \
    va_end(arguments);                                                                             \
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next(#name);            \
    return real(place(path, buffer, sizeof(buffer)), flags, mode);                                 \
  }
FAKE_OPEN(open)
FAKE_OPEN(open64)

#define FAKE_FOPEN(name)                                                                           \
  FILE *name(const char *path, const char *mode) {                                                 \
    char buffer[4096];                                                                             \
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) next(#name); \
    return real(place(path, buffer, sizeof(buffer)), mode);                                        \
  }
FAKE_FOPEN(fopen)
FAKE_FOPEN(fopen64)

DIR *opendir(const char *path) {
  char buffer[4096];
  DIR *(*real)(const char *) = (DIR * (*)(const char *)) next("opendir");
  return real(place(path, buffer, sizeof(buffer)));
}

int uname(struct utsname *u) {
  const char *release = getenv("FAKE_RELEASE");
  int (*real)(struct utsname *) = (int (*)(struct utsname *))next("uname");
  const int result = real(u);
  if (release) snprintf(u->release, sizeof(u->release), "%s", release);
  return result;
}

static int memlock(int resource, rlim_t *soft, rlim_t *hard) {
  const char *text = getenv("FAKE_MEMLOCK");
  long long s = 0, h = 0;
  if (resource != RLIMIT_MEMLOCK || !text || sscanf(text, "%lld %lld", &s, &h) != 2) return 0;
  *soft = (rlim_t)s;
  *hard = (rlim_t)h;
  return 1;
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit) {
  int (*real)(int, struct rlimit *) = (int (*)(int, struct rlimit *))next("getrlimit");
  return memlock((int)resource, &limit->rlim_cur, &limit->rlim_max) ? 0 : real((int)resource, limit);
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit) {
  int (*real)(int, struct rlimit64 *) = (int (*)(int, struct rlimit64 *))next("getrlimit64");
  return memlock((int)resource, &limit->rlim_cur, &limit->rlim_max) ? 0 : real((int)resource, limit);
}

int32_t hp_get_backend(hp_backend_info *out) {
  static const char *const names[] = {"auto", "none", "cuda", "hip", "level_zero"};
  const char *text = getenv("FAKE_BACKEND");
  const char *reason = getenv("FAKE_REASON");
  int32_t id = 0;
  if (getenv("FAKE_NODE")) open(getenv("FAKE_NODE"), O_WRONLY | O_CREAT, 0600);
  if (!text) return ((int32_t (*)(hp_backend_info *))next("hp_get_backend"))(out);
  if (sscanf(text, "%d %u %u", &id, &out->runtime_version, &out->driver_version) < 1 || id > HP_BACKEND_LEVEL_ZERO) abort();
  if (id < 0) return id;
  out->backend = id;
  out->name = names[id];
  out->device_count = 3;
  out->max_segment = 64ull << 30;
  out->runtime_file = "/a/runtime.so";
  out->cuda_reason = out->hip_reason = out->level_zero_reason = reason ? reason : "";
  return HP_OK;
}

int32_t hp_register(void *ptr, size_t len, uint32_t flags) {
  const char *status = getenv("FAKE_REGISTER");
  int32_t (*real)(void *, size_t, uint32_t) = (int32_t(*)(void *, size_t, uint32_t))next("hp_register");
  return status ? atoi(status) : real(ptr, len, flags);
}
