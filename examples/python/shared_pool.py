# SPDX-License-Identifier: MIT
"""A pool of shared memory that several processes pin: all of them, or none.

    python3 shared_pool.py [--ranks N] [--size MiB]

Each process has to pin the pool for itself, since the driver keeps pins by process. Two things go wrong if each simply
does so. Drivers may have to move the pages first, which fails while another process holds them: SERIALIZE makes the
processes of a machine pin the same memory one after the other. And if one process fails, the others run on at another
speed and by other ways of copying: so they compare, and all unpin if one has failed.

The processes are started by "spawn". A forked child must not use a GPU driver that its parent has used, and the library
refuses there. With torch.distributed, the flag and the barrier below are one call: an all_reduce of the minimum of
"my pin is OK".
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from multiprocessing import shared_memory
from typing import Any, Optional

import hostpin

PATIENCE = 600  # seconds that the slowest of the others may take to pin


def pin_together(pool: Any, all_pinned: Any, barrier: Any) -> Optional[hostpin.Pinned]:
    """Pins `pool`, in all processes that call this or in none: returns None in all of them if one has failed.

    `all_pinned` is a flag that they share and that starts as 1.
    """
    pinned = None
    try:
        pinned = hostpin.pin(pool, hostpin.Register.REQUIRED | hostpin.Register.SERIALIZE | hostpin.Register.PREFAULT)
    except hostpin.Error as error:
        all_pinned.value = 0
        sys.stderr.write("process %d could not pin: %s\n" % (os.getpid(), error))
    barrier.wait(PATIENCE)  # raises then if one of the others has died
    if pinned and not all_pinned.value:
        pinned.close()
        pinned = None
    return pinned


def run_rank(rank: int, pool_name: str, all_pinned: Any, barrier: Any) -> None:
    """What each process does."""
    pool = shared_memory.SharedMemory(name=pool_name)
    pinned = pin_together(pool, all_pinned, barrier)
    sys.stdout.write("rank %d: %s, as in all others\n" % (rank, "pinned" if pinned else "not pinned"))
    # Copies between the pool and a GPU go here. They are right in both cases.
    if pinned:
        pinned.close()  # before the memory goes
    pool.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Pin a shared pool in all processes or in none.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=64, metavar="MiB")
    options = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    all_pinned, barrier = context.Value("i", 1), context.Barrier(options.ranks)
    pool = shared_memory.SharedMemory(create=True, size=options.size << 20)
    try:
        ranks = [context.Process(target=run_rank, args=(rank, pool.name, all_pinned, barrier))
                 for rank in range(options.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    finally:
        pool.close()
        pool.unlink()
    return 0 if all(process.exitcode == 0 for process in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
