#!/usr/bin/env python3
"""Run a benchmark in its shortest form: does it work, and is its JSON whole? Says nothing of times.

usage: smoke.py KEYS PROGRAM [ARGUMENT...]

KEYS are the paths that must be there, separated by commas: parts joined by dots, "*" for each item of a list, which must
not be empty. Every number must be finite, and none negative but for differences.
"""
import json
import math
import subprocess
import sys


DIFFERENCES = ("above_bare_ns", "bytes_each", "rss_kib", "private_dirty_kib")


def find(value, path):
    if not path:
        return
    part, rest = path[0], path[1:]
    if part == "*":
        assert isinstance(value, list) and value, f"not a list with items at {path}"
        for item in value:
            find(item, rest)
    else:
        assert isinstance(value, dict) and part in value, f"no {part!r} in {value}"
        find(value[part], rest)


def check_numbers(value, name=""):
    if isinstance(value, dict):
        for key, item in value.items():
            check_numbers(item, f"{name}.{key}")
    elif isinstance(value, list):
        for item in value:
            check_numbers(item, name)
    elif isinstance(value, (int, float)):
        assert math.isfinite(value), f"{name} is {value}"
        assert value >= 0 or name.endswith(DIFFERENCES), f"{name} is {value}"


def main():
    done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"exit status {done.returncode}"
    result = json.loads(done.stdout)
    for path in sys.argv[1].split(","):
        find(result, path.split("."))
    check_numbers(result)


if __name__ == "__main__":
    main()
