/* The ranks of a node pin one shared window of MPI: all of them, or none.
 *
 *   mpirun -n 4 shared_pool_mpi [MEBIBYTES]      default 64
 *
 * A pin belongs to the process that made it, so each rank pins the window for itself. Where one of them is refused, the
 * others give their pins back: a job in which one rank copies from pageable memory runs at that one's pace, and the
 * others would hold pinned memory for nothing.
 *
 * Exit codes: 0 pinned in all ranks of the node; 3 pageable in all of them, which works, only slower; 1 error; 2 usage.
 */
#include <hostpin.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PINNED = 0, FAILED = 1, USAGE = 2, PAGEABLE = 3 };

/* Ends the registration, before the window goes. */
static void release(void *pool, int rank) {
  if (hp_unregister(pool) == HP_OK) return;
  /* The driver holds pages of the window, so that it must not be freed; and freeing it needs all ranks. */
  fprintf(stderr, "rank %d: %s\n", rank, hp_last_error());
  MPI_Abort(MPI_COMM_WORLD, FAILED);
}

/* Pins in all ranks of `node`, or in none. */
static int pin_in_all(void *pool, size_t size, MPI_Comm node) {
  int rank;
  MPI_Comm_rank(node, &rank);
  /* SERIALIZE: a driver that finds pages where they must not be pinned moves them first, and fails where another
   * process is about to do the same. PREFAULT: whoever is first makes the pages, with several threads. */
  const int32_t status = hp_register(pool, size, HP_REGISTER_SERIALIZE | HP_REGISTER_PREFAULT);

  /* HP_FOREIGN: other code of this process, MPI's transport maybe, has pinned all of it. HP_PAGEABLE is a success, as
   * the program goes on, but nothing is pinned. Every rank comes here, whatever its status is. */
  const int pinned = status == HP_OK || status == HP_FOREIGN;
  int all_pinned;
  MPI_Allreduce(&pinned, &all_pinned, 1, MPI_INT, MPI_MIN, node);
  if (all_pinned) {
    printf("rank %d: pinned\n", rank);
    return PINNED;
  }
  if (pinned)
    printf("rank %d: pageable, since another rank is\n", rank);
  else
    printf("rank %d: pageable: %s\n", rank, hp_last_error());
  /* HP_E_STUCK leaves a registration behind that other errors do not: the driver kept a part of what it refused. */
  if (status >= 0 || status == HP_E_STUCK) release(pool, rank);
  return PAGEABLE;
}

static int run(size_t size) {
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int rank;
  MPI_Comm_rank(node, &rank);

  /* The first rank of the node owns all of the window; the others ask where it is mapped in their processes. */
  void *pool;
  MPI_Win window;
  MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)size : 0, 1, MPI_INFO_NULL, node, &pool, &window);
  MPI_Aint length;
  int unit;
  MPI_Win_shared_query(window, 0, &length, &unit, &pool);

  const int result = pin_in_all(pool, size, node);

  /* ... the program's work, the same in both cases ... */

  if (result == PINNED) release(pool, rank);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  return result;
}

int main(int argc, char **argv) {
  /* MPI ends the job when one of its calls fails, unless told otherwise: its return values need no look. */
  MPI_Init(&argc, &argv);
  const int mebibytes = argc > 1 ? atoi(argv[1]) : 64;
  int result = USAGE;
  if (argc > 2 || mebibytes < 1)
    fprintf(stderr, "usage: %s [MEBIBYTES]\n", argv[0]);
  else
    result = run((size_t)mebibytes << 20);
  fflush(stdout); /* mpirun may kill ranks once the first has ended with a code other than 0 */
  MPI_Finalize();
  return result;
}
