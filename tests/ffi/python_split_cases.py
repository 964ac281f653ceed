"""What split_ranges() of hostpin.py answers, which no driver has a part in. Run by test_python.py."""
import json
import mmap
import os
import pathlib

import hypothesis
import hypothesis.strategies as some
import pytest

import hostpin
from hostpin import Status

PAGE = mmap.PAGESIZE


def model_of_split_ranges(sizes, blocks, total, chunk, page):
    """The rule as hostpin.h says it, on sets."""
    assert total % page == 0 and chunk >= page
    assert not sizes or blocks > 0 and all(size % blocks == 0 for size in sizes)
    assert sum(sizes) <= total
    legal, start = set(), 0
    for size in sizes:
        legal |= {start + block * (size // blocks) for block in range(blocks + 1)} if size else set()
        start += size
    legal = {cut for cut in legal | set(range(start, total + 1)) if cut % page == 0}
    ranges, start = [], 0
    while total - start > chunk:
        start, before = max(cut for cut in legal | {start} if cut <= start + chunk), start
        assert start > before
        ranges.append((before, start))
    return ranges + [(start, total)]


@hypothesis.settings(max_examples=500, deadline=None, database=None)
@hypothesis.given(some.lists(some.integers(0, 9), max_size=4), some.integers(0, 5), some.integers(1, 8),
                  some.integers(0, 8), some.integers(0, 40), some.integers(-3, 3))
def test_split_ranges_does_what_the_model_does(block_sizes, blocks, page, padding, chunk, error):
    sizes = [size * max(blocks, 1) for size in block_sizes]
    if sizes and error > 1:
        sizes[0] += 1
    total = -(-sum(sizes) // page) * page + padding * page - (1 if error == 1 and padding else 0)
    if chunk == 0:
        chunk = page
    try:
        expected = model_of_split_ranges(sizes, blocks, total, chunk, page)
    except AssertionError:
        with pytest.raises(hostpin.InvalidError):
            hostpin.split_ranges(sizes, blocks, total, chunk, page)
    else:
        assert hostpin.split_ranges(sizes, blocks, total, chunk, page) == expected


def test_split_ranges_gives_the_known_answers():
    names = ("tensor_sizes", "num_blocks", "total_size", "max_chunk_bytes", "page_size")
    count = 0
    for line in (pathlib.Path(os.environ["HOSTPIN_TEST_DATA"]) / "split_ranges.jsonl").read_text().splitlines():
        case = json.loads(line)
        arguments = [case[name] for name in names]
        if "error" in case:
            with pytest.raises(hostpin.InvalidError) as raised:
                hostpin.split_ranges(*arguments)
            assert (raised.value.status is Status.E_NO_BOUNDARY) == (case["error"] == "no_boundary")
        else:
            assert hostpin.split_ranges(*arguments) == [tuple(pair) for pair in case["ranges"]]
        count += 1
    assert count == 1500


def test_split_ranges_has_the_systems_page_and_64_gib_by_default():
    assert hostpin.split_ranges([], 0, 2**37 + PAGE) == [(0, 2**36), (2**36, 2**37), (2**37, 2**37 + PAGE)]
    with pytest.raises(hostpin.InvalidError, match="%d" % PAGE):
        hostpin.split_ranges([], 0, PAGE + 1)
