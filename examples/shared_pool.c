/* Several processes pin one shared pool: in all of them, or in none.
 *
 *   shared_pool [PROCESSES [MEBIBYTES]]      default 4 and 64
 *
 * A pin belongs to the process that made it, so each one pins the pool for itself. Where one of them is refused, the
 * others give their pins back: a group in which one process copies from pageable memory runs at that one's pace, and
 * the others would hold pinned memory for nothing.
 *
 * Exit codes: 0 pinned in all processes; 3 pageable in all of them, which works, only slower; 1 error; 2 usage.
 */
#define _GNU_SOURCE /* memfd_create */
#include <hostpin.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PINNED = 0, FAILED = 1, USAGE = 2, PAGEABLE = 3 };

/* Where the processes meet; in memory that all of them share. */
struct meeting {
  pthread_barrier_t barrier;
  atomic_bool refused; /* in any process */
};

static int failed(const char *what) {
  perror(what);
  return FAILED;
}

/* Decides with the others, and acts on it. Each process calls this once, whatever hp_register() has returned. */
static int all_or_none(void *pool, int32_t status, struct meeting *meeting, int rank) {
  /* HP_FOREIGN: other code of this process, a communication library maybe, has pinned all of it. HP_PAGEABLE is a
   * success, as the program goes on, but nothing is pinned. */
  const int pinned = status == HP_OK || status == HP_FOREIGN;
  if (!pinned) atomic_store(&meeting->refused, 1);
  pthread_barrier_wait(&meeting->barrier); /* from here on everybody knows everybody's answer */
  if (!atomic_load(&meeting->refused)) {
    printf("process %d: pinned\n", rank);
    return PINNED;
  }
  if (pinned)
    printf("process %d: pageable, since another process is\n", rank);
  else
    printf("process %d: pageable: %s\n", rank, hp_last_error());
  /* HP_E_STUCK leaves a registration behind that other errors do not: the driver kept a part of what it refused. */
  if ((status >= 0 || status == HP_E_STUCK) && hp_unregister(pool) != HP_OK) {
    fprintf(stderr, "process %d: %s\n", rank, hp_last_error());
    return FAILED;
  }
  return PAGEABLE;
}

static int run_process(int rank, int file, size_t size, struct meeting *meeting) {
  void *pool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (pool == MAP_FAILED) return failed("mmap");

  /* SERIALIZE: a driver that finds pages where they must not be pinned moves them first, and fails where another
   * process is about to do the same. PREFAULT: whoever is first makes the pages, with several threads. */
  const int32_t status = hp_register(pool, size, HP_REGISTER_SERIALIZE | HP_REGISTER_PREFAULT);
  const int result = all_or_none(pool, status, meeting, rank);
  if (result == FAILED) return FAILED; /* the driver holds the pages: they stay mapped */

  /* ... the program's work, the same in both cases ... */

  if (result == PINNED && hp_unregister(pool) != HP_OK) {
    fprintf(stderr, "process %d: %s\n", rank, hp_last_error());
    return FAILED;
  }
  return munmap(pool, size) == 0 ? result : failed("munmap");
}

/* Waits for all of them. One that dies would let the others wait at the barrier for ever: then the group ends. */
static int wait_for(pid_t *processes, int n, int result) {
  for (int running = n; running > 0; --running) {
    if (result == FAILED)
      for (int i = 0; i < n; ++i)
        if (processes[i] > 0) kill(processes[i], SIGKILL);
    int status;
    const pid_t ended = wait(&status);
    if (ended < 0) return failed("wait");
    for (int i = 0; i < n; ++i)
      if (processes[i] == ended) processes[i] = 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
    if (code == PAGEABLE && result == PINNED) result = PAGEABLE;
    if (code != PAGEABLE && code != PINNED) result = FAILED;
  }
  return result;
}

static int run_group(int n, int file, size_t size, struct meeting *meeting, pid_t *processes) {
  /* The processes are made before the library is used: what is forked from a process that has used it gets HP_E_FORKED
   * from every call, since drivers do not survive a fork. So this one stays out of it, and only watches. */
  const pid_t parent = getpid();
  for (int rank = 0; rank < n; ++rank) {
    processes[rank] = fork();
    if (processes[rank] < 0) {
      perror("fork");
      return wait_for(processes, rank, FAILED);
    }
    if (processes[rank] == 0) {
      /* Nobody watches any more when the parent is killed. */
      if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) exit(FAILED);
      exit(run_process(rank, file, size, meeting));
    }
  }
  return wait_for(processes, n, PINNED);
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 4;
  const int mebibytes = argc > 2 ? atoi(argv[2]) : 64;
  if (argc > 3 || n < 1 || mebibytes < 1) {
    fprintf(stderr, "usage: %s [PROCESSES [MEBIBYTES]]\n", argv[0]);
    return USAGE;
  }
  const size_t size = (size_t)mebibytes << 20;

  /* Drivers pin memfd and shared memory, but not the pages of a file on a disk. A process that is not a child of this
   * one gets the descriptor over a Unix socket, or opens a name that was made with shm_open(). */
  const int file = memfd_create("pool", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)size) != 0) return failed("memfd");
  struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meeting == MAP_FAILED) return failed("mmap");
  pthread_barrierattr_t shared;
  if (pthread_barrierattr_init(&shared) != 0 ||
      pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) != 0 ||
      pthread_barrier_init(&meeting->barrier, &shared, (unsigned)n) != 0) {
    fprintf(stderr, "%s: no barrier between processes can be made\n", argv[0]);
    return FAILED;
  }
  atomic_init(&meeting->refused, 0);
  pid_t *processes = calloc((size_t)n, sizeof(*processes));
  if (!processes) return failed("calloc");

  const int result = run_group(n, file, size, meeting, processes);
  if (result == PINNED)
    printf("%d MiB are pinned in all %d processes\n", mebibytes, n);
  else if (result == PAGEABLE)
    printf("%d MiB are pageable in all %d processes\n", mebibytes, n);
  free(processes);
  munmap(meeting, sizeof(*meeting));
  close(file);
  return result;
}
