#!/usr/bin/env python3
"""Run split_bench and, on the same pool, the same greedy rule written plainly in Python. Prints JSON with the ratio.

usage: split_yardstick.py PATH_OF_split_bench
"""
import json
import statistics
import subprocess
import sys
import time


def split(tensor_sizes, num_blocks, total_size, max_chunk_bytes, page_size):
    ranges = []
    position = 0
    while total_size - position > max_chunk_bytes:
        limit = position + max_chunk_bytes
        best = position
        start = 0
        for size in tensor_sizes:
            if start > limit:
                break
            block = size // num_blocks
            cut = start + min(size, limit - start) // block * block
            while cut > best and cut % page_size:
                cut -= block
            best = max(best, cut)
            start += size
        if limit >= start:  # the padding after the last tensor
            best = max(best, limit // page_size * page_size)
        if best == position:
            raise ValueError(f"no legal cut after {position}")
        ranges.append((position, best))
        position = best
    ranges.append((position, total_size))
    return ranges


def main():
    result = json.loads(subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout)
    pool, library = result["pool"], result["measured"][0]
    arguments = (pool["tensor_sizes"], pool["num_blocks"], pool["total_size"], library["max_chunk_bytes"],
                 pool["page_size"])
    times = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        ranges = split(*arguments)
        times.append(time.perf_counter_ns() - begin)
    checksum = sum((i + 1) * end for i, (_, end) in enumerate(ranges)) % 2**64
    if (len(ranges), checksum) != (library["ranges"], library["checksum"]):
        sys.exit("split_yardstick: Python and the library cut at different places")
    python_ns = statistics.median(times) / len(ranges)
    result["python_ns_per_range"] = round(python_ns, 1)
    result["times_faster_than_python"] = round(python_ns / library["ns_per_range"])
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
