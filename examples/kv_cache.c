/* Pins a pool of the shape of a KV cache in the background, and copies from it layer by layer.
 *
 *   kv_cache [LAYERS [BLOCKS [BLOCK_KIB [CHUNK_MIB]]]]      default 28 150 32 64: 262 MiB in chunks of at most 64 MiB
 *
 * The pool holds a K and a V tensor for each layer, back to back, each of BLOCKS blocks. Pinning hundreds of gigabytes
 * takes minutes: here the program goes on meanwhile, shows how far it is, and may be interrupted with Ctrl-C.
 *
 * Exit codes: 0 pinned and copied; 3 copied, but pageable or pinned in part, which is only slower; 130 interrupted;
 * 1 error; 2 usage.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <hostpin.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PINNED = 0, FAILED = 1, USAGE = 2, PAGEABLE = 3, INTERRUPTED = 130 };

struct cache {
  char *pool;
  uint64_t size; /* of the pool: whole pages */
  uint64_t layers, blocks, block, tensor, chunk; /* counts, and bytes of one */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

static int failed(const char *what) {
  fprintf(stderr, "kv_cache: %s\n", what);
  return FAILED;
}

/* ---- The shape --------------------------------------------------------------------------------------------------- */

static int read_shape(int argc, char **argv, struct cache *c) {
  uint64_t n[4] = {28, 150, 32, 64}, bytes;
  if (argc > 5) return -1;
  for (int i = 1; i < argc; ++i) {
    char *end;
    n[i - 1] = strtoull(argv[i], &end, 10);
    if (n[i - 1] < 1 || n[i - 1] > 1 << 30 || *end) return -1;
  }
  *c = (struct cache){.layers = n[0], .blocks = n[1], .block = n[2] << 10, .chunk = n[3] << 20};
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (__builtin_mul_overflow(c->blocks, c->block, &c->tensor) ||
      __builtin_mul_overflow(c->tensor, 2 * c->layers, &bytes) || bytes > SIZE_MAX - page)
    return -1;
  c->size = (bytes + page - 1) / page * page;
  return 0;
}

/* The ranges to pin: cut at borders of blocks, so that the copy of a block never needs to be cut. */
static int split_pool(const struct cache *c, const uint64_t *sizes, hp_range **ranges, size_t *n) {
  const size_t tensors = (size_t)(2 * c->layers);
  /* First their number only. A chunk that is too small for any cut is an error with words in hp_last_error(). */
  if (hp_split_ranges(sizes, tensors, c->blocks, c->size, c->chunk, 0, NULL, 0, n) != HP_OK)
    return failed(hp_last_error());
  *ranges = calloc(*n, sizeof(**ranges));
  if (!*ranges) return failed("out of memory");
  if (hp_split_ranges(sizes, tensors, c->blocks, c->size, c->chunk, 0, *ranges, *n, n) == HP_OK) return 0;
  free(*ranges);
  return failed(hp_last_error());
}

static int make_ranges(const struct cache *c, hp_range **ranges, size_t *n) {
  uint64_t *sizes = calloc((size_t)(2 * c->layers), sizeof(*sizes));
  if (!sizes) return failed("out of memory");
  for (uint64_t i = 0; i < 2 * c->layers; ++i) sizes[i] = c->tensor;
  const int result = split_pool(c, sizes, ranges, n);
  free(sizes);
  return result;
}

/* ---- Pinning ----------------------------------------------------------------------------------------------------- */

static void show_progress(const hp_progress *p, int terminal) {
  static uint64_t shown = UINT64_MAX;
  const uint64_t percent = (uint64_t)(100.0 * (double)p->bytes_done / (double)p->bytes_total);
  if (percent == shown) return;
  shown = percent;
  fprintf(stderr, "%spinning: %3" PRIu64 " %% of %" PRIu64 " MiB, %.1f s%s", terminal ? "\r" : "", percent,
          p->bytes_total >> 20, (double)p->elapsed_ns / 1e9, terminal ? "" : "\n");
}

/* Waits for the job's end and shows how far it is. A program that has better things to do polls now and then. */
static int32_t watch(hp_job *job, const struct cache *c, hp_progress *p) {
  const int terminal = isatty(STDERR_FILENO);
  int usable = 0;
  int32_t status;
  do {
    status = hp_job_wait(job, 100000000);
    if (hp_job_poll(job, p) == HP_OK && p->status == HP_OK) show_progress(p, terminal);
    /* Nobody needs to wait for the end: ask before each copy, which costs nanoseconds. */
    hp_region region = {.struct_size = sizeof(region)};
    if (!usable && hp_query(c->pool, c->block, &region) == HP_OK && region.one_segment) {
      usable = 1;
      fprintf(stderr, "%sthe first block is pinned: copies of it run by DMA from now on\n", terminal ? "\n" : "");
    }
    /* Not in the signal handler, which may not call it. Takes effect within one chunk, and releases what is pinned, so
     * that no copy may be in flight any more. */
    if (interrupted && hp_job_cancel(job) != HP_OK) failed(hp_last_error());
  } while (status == HP_E_TIMEOUT);
  if (terminal) fputc('\n', stderr);
  return status;
}

static void report(int32_t status, const hp_progress *p) {
  hp_stats stats = {.struct_size = sizeof(stats)};
  if (status == HP_E_CANCELLED)
    puts("interrupted: nothing is pinned any more");
  else if (status == HP_PAGEABLE && p->pinned_bytes > 0)
    printf("pinned %" PRIu64 " of %" PRIu64 " MiB: %s\n", p->pinned_bytes >> 20, p->bytes_total >> 20, hp_last_error());
  else if (status != HP_OK) /* no GPU, a refusal, the budget, pinned by others: all of it works, pinned or not */
    printf("not pinned by us: %s\n", hp_last_error());
  else if (hp_get_stats(&stats) == HP_OK)
    printf("pinned %" PRIu64 " MiB in %" PRIu64 " segments in %.2f s; the longest driver call took %.2f s\n",
           p->pinned_bytes >> 20, stats.segments, (double)p->elapsed_ns / 1e9, (double)stats.vendor_ns_max / 1e9);
}

/* The status in which the job ended. */
static int32_t pin(const struct cache *c, const hp_range *ranges, size_t n) {
  /* chunk_bytes: not smaller than the ranges, since what is longer gets cut, and not at borders of blocks.
   * keep: blocks are copied before the end. Else a refusal would release them all, under copies that are in flight. */
  const hp_job_options options = {.struct_size = sizeof(options), .chunk_bytes = c->chunk, .keep = 1};
  hp_job *job;
  int32_t status = hp_register_start(c->pool, ranges, n, HP_REGISTER_PREFAULT | HP_REGISTER_HUGEPAGES, &options, &job);
  hp_progress p = {.struct_size = sizeof(p)};
  if (status == HP_OK) {
    status = watch(job, c, &p);
    hp_job_free(job);
  }
  report(status, &p);
  return status;
}

/* ---- Copying ----------------------------------------------------------------------------------------------------- */

static void copy_to_device(const hp_copy *piece) {
  /* cudaMemcpyAsync(piece->other, piece->host, piece->bytes, cudaMemcpyHostToDevice, stream) */
  memcpy(piece->other, piece->host, piece->bytes);
}

/* Whole tensors, layer by layer: longer than a block, so that they may lie across two segments. So may blocks, where
 * the driver took less at a time than it was asked for. */
static int copy_layers(const struct cache *c, char *device) {
  hp_stats stats = {.struct_size = sizeof(stats)};
  if (hp_get_stats(&stats) != HP_OK) return failed(hp_last_error());
  const size_t capacity = (size_t)(2 + 2 * stats.segments); /* each end of a segment cuts one copy at most */
  hp_copy *pieces = calloc(capacity, sizeof(*pieces));
  if (!pieces) return failed("out of memory");
  uint64_t layer = 0, copied = 0;
  size_t n;
  for (; layer < c->layers && !interrupted; ++layer, copied += n) {
    const char *k = c->pool + 2 * layer * c->tensor;
    const hp_copy copies[2] = {{k, device, c->tensor}, {k + c->tensor, device + c->tensor, c->tensor}};
    if (hp_split_copies(copies, 2, pieces, capacity, &n) != HP_OK) {
      free(pieces);
      return failed(hp_last_error());
    }
    for (size_t i = 0; i < n; ++i) copy_to_device(&pieces[i]);
  }
  printf("copied %" PRIu64 " layers: %" PRIu64 " copies, made in %" PRIu64 " pieces\n", layer, 2 * layer, copied);
  free(pieces);
  return 0;
}

static int run(const struct cache *c) {
  size_t n;
  hp_range *ranges;
  if (make_ranges(c, &ranges, &n) != 0) return FAILED;
  const int32_t status = pin(c, ranges, n);
  free(ranges);
  if (status == HP_E_CANCELLED) return INTERRUPTED;

  char *device = malloc(2 * c->tensor); /* in place of one layer's memory on a GPU */
  int result = device ? copy_layers(c, device) : failed("out of memory");
  free(device);

  /* When no copy is in flight any more. HP_E_STUCK leaves a registration behind that other errors do not: the driver
   * kept a part of what it refused. */
  if ((status >= 0 || status == HP_E_STUCK) && hp_unregister(c->pool) != HP_OK) return failed(hp_last_error());
  if (result == 0 && interrupted) result = INTERRUPTED;
  if (result == 0 && status != HP_OK && status != HP_FOREIGN) result = PAGEABLE;
  return result;
}

int main(int argc, char **argv) {
  struct cache c;
  if (read_shape(argc, argv, &c) != 0) {
    fprintf(stderr, "usage: %s [LAYERS [BLOCKS [BLOCK_KIB [CHUNK_MIB]]]]\n", argv[0]);
    return USAGE;
  }
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}; /* the second one kills */
  if (sigaction(SIGINT, &action, NULL) != 0) return failed("sigaction");
  c.pool = mmap(NULL, c.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c.pool == MAP_FAILED) return failed("not enough memory for the pool");
  const int result = run(&c);
  /* After an error the driver may hold pages of it: then it stays mapped until the process ends. */
  if (result != FAILED) munmap(c.pool, c.size);
  return result;
}
