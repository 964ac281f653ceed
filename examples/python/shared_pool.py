# SPDX-License-Identifier: MIT
"""A pool of shared memory that several processes pin: all of them, or none.

    python3 shared_pool.py [--ranks N] [--size MiB]

Each process has to pin the pool for itself, since the driver keeps pins by process. Two things go wrong if each simply
does so. Drivers may have to move the pages first, which fails while another process holds them: SERIALIZE makes the
processes of a machine pin the same memory one after the other. And if one process fails, the others run on at another
speed and by other ways of copying: so each tells the parent whether it has pinned, and all unpin if one has failed.

A pipe does that better than a barrier: when a process dies its end is closed, so that nobody waits for it, and
multiprocessing's Barrier can hang for ever in the others when one is killed while it waits there.

The processes are started by "spawn". A forked child must not use a GPU driver that its parent has used, and the library
refuses there. With torch.distributed, what goes through the pipes is one call: an all_reduce of the minimum of "my pin
is OK".
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from typing import Any, List, Optional

import hostpin


def pin_together(pool: Any, parent: Connection) -> Optional[hostpin.Pinned]:
    """Pins `pool` in all processes or in none: returns None in all of them if one has failed. `parent` decides."""
    pinned = None
    try:
        pinned = hostpin.pin(pool, hostpin.Register.REQUIRED | hostpin.Register.SERIALIZE | hostpin.Register.PREFAULT)
    except hostpin.Error as error:
        sys.stderr.write("process %d could not pin: %s\n" % (os.getpid(), error))
    parent.send(pinned is not None)
    if not parent.recv() and pinned:
        pinned.close()
        pinned = None
    return pinned


def decide(ranks: List[Connection]) -> None:
    """Hears from all ranks whether they have pinned, and tells each whether all have."""
    all_pinned = True
    for rank in ranks:
        try:
            all_pinned = rank.recv() and all_pinned
        except EOFError:  # it has died
            all_pinned = False
    for rank in ranks:
        try:
            rank.send(all_pinned)
        except ConnectionError:
            pass


def run_rank(number: int, pool_name: str, parent: Connection) -> None:
    """What each process does."""
    pool = shared_memory.SharedMemory(name=pool_name)
    pinned = pin_together(pool, parent)
    sys.stdout.write("rank %d: %s, as in all others\n" % (number, "pinned" if pinned else "not pinned"))
    # Copies between the pool and a GPU go here. They are right in both cases.
    if pinned:
        pinned.close()  # before the memory goes
    pool.close()


def run(number_of_ranks: int, size: int) -> bool:
    """Runs the processes. Returns whether all of them have ended well."""
    context = multiprocessing.get_context("spawn")
    pool = shared_memory.SharedMemory(create=True, size=size)
    processes, connections = [], []
    try:
        for number in range(number_of_ranks):
            connection, its_end = context.Pipe()
            process = context.Process(target=run_rank, args=(number, pool.name, its_end))
            process.start()
            its_end.close()  # so that the process has the only one
            processes.append(process)
            connections.append(connection)
        decide(connections)
        for process in processes:
            process.join()
    finally:
        for connection in connections:
            connection.close()
        pool.close()
        pool.unlink()
    return all(process.exitcode == 0 for process in processes)


def main() -> int:
    parser = argparse.ArgumentParser(description="Pin a shared pool in all processes or in none.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=64, metavar="MiB")
    options = parser.parse_args()
    return 0 if run(options.ranks, options.size << 20) else 1


if __name__ == "__main__":
    sys.exit(main())
