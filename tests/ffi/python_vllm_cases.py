"""What hostpin_vllm.py does within one process. Run by test_python_vllm.py, once for each variant."""
import ctypes
import inspect
import json
import logging
import mmap
import os
import pathlib

import numpy
import pytest
import simulation as sim
from simulation import PINS

import hostpin
import hostpin_vllm
from hostpin_vllm import host_register, host_registration_ranges, host_unregister, pin_tensor, unpin_tensor

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE


class Tensor:
    """As much of a torch tensor as vLLM's functions use."""

    def __init__(self, nbytes):
        self.memory = numpy.zeros(nbytes + PAGE, "u1")
        self.offset = -self.memory.ctypes.data % PAGE
        self.nbytes = nbytes

    def data_ptr(self):
        return self.memory.ctypes.data + self.offset


@pytest.fixture
def tensor():
    return Tensor(SIZE)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "hostpin_vllm")
    return caplog


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    live = sim.control.hps_live_registrations()
    sim.control.hps_reset()
    assert (live, hostpin.stats().registrations) == (0, 0)


def levels(log):
    return [record.levelname for record in log.records]


# ---- host_register, host_unregister ----------------------------------------------------------------------------------


def test_host_register_pins(tensor, log):
    assert host_register(tensor.data_ptr(), SIZE) is PINS
    assert sim.all_pinned(tensor.data_ptr(), SIZE) == PINS
    if PINS:
        assert host_unregister(tensor.data_ptr()) is None
        assert log.records == []
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


@pytest.mark.parametrize("ptr, num_bytes", [(0, SIZE), (None, SIZE), (4096, 0), (4096, -1)])
def test_host_register_of_nothing_is_false_and_asks_nobody(ptr, num_bytes, log):
    before = sim.calls("register")
    assert host_register(ptr, num_bytes) is False
    assert sim.calls("register") == before and log.records == []


def test_host_register_that_is_refused_is_false_and_a_warning(tensor, log):
    sim.script("fail=register:*:801")
    assert host_register(tensor.data_ptr(), SIZE) is False
    assert host_register(tensor.data_ptr(), SIZE) is False
    if PINS:
        assert levels(log) == ["WARNING", "WARNING"]
        assert all("801" in record.getMessage() and "slower" in record.getMessage() for record in log.records)
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_without_a_backend_that_is_said_once(tensor, log, monkeypatch):
    monkeypatch.setattr(hostpin_vllm, "_said_unavailable", False)
    results = [host_register(tensor.data_ptr(), SIZE) for _ in range(3)]
    assert results == [PINS] * 3
    assert levels(log) == ([] if PINS else ["INFO"])
    for _ in range(3 if PINS else 0):
        host_unregister(tensor.data_ptr())


def test_host_register_with_another_length_is_false_and_a_warning(tensor, log):
    assert host_register(tensor.data_ptr(), SIZE) is PINS
    assert host_register(tensor.data_ptr(), PAGE) is False
    if PINS:
        assert levels(log) == ["WARNING"]
        host_unregister(tensor.data_ptr())


def test_host_register_again_is_counted(tensor):
    assert [host_register(tensor.data_ptr(), SIZE) for _ in range(2)] == [PINS, PINS]
    host_unregister(tensor.data_ptr())
    assert sim.all_pinned(tensor.data_ptr(), SIZE) == PINS
    host_unregister(tensor.data_ptr())
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_host_register_of_what_others_have_pinned_is_false(tensor, log):
    if sim.VARIANT != "cudart12":  # HIP 6 does not tell
        return
    sim.control.hps_pin_foreign(sim.VENDOR, tensor.data_ptr(), SIZE)
    assert host_register(tensor.data_ptr(), SIZE) is False
    assert levels(log) == ["INFO"]
    assert sim.all_pinned(tensor.data_ptr(), SIZE)
    sim.control.hps_unpin_foreign(sim.VENDOR, tensor.data_ptr())
    hostpin.unregister(tensor.data_ptr())  # the library's note of it


def test_host_unregister_of_nothing_does_nothing(log):
    assert host_unregister(0) is None and host_unregister(None) is None
    assert log.records == []


def test_host_unregister_of_what_is_not_registered_is_a_warning(tensor, log):
    assert host_unregister(tensor.data_ptr()) is None
    assert levels(log) == (["WARNING"] if PINS else [])


def test_host_unregister_that_fails_is_a_warning_and_can_be_tried_again(tensor, log):
    assert host_register(tensor.data_ptr(), SIZE) is PINS
    sim.script("fail=unregister:1:1")
    assert host_unregister(tensor.data_ptr()) is None
    assert levels(log) == (["WARNING"] if PINS else [])
    host_unregister(tensor.data_ptr())
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_nothing_is_raised_in_a_forked_child(tensor, log):
    assert host_register(tensor.data_ptr(), SIZE) is PINS
    child = os.fork()
    if child == 0:
        log.clear()
        try:
            same = host_unregister(tensor.data_ptr()) is None and host_register(tensor.data_ptr(), PAGE) is False
        except BaseException:
            os._exit(2)
        os._exit(0 if same and levels(log) == ["WARNING", "WARNING"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    host_unregister(tensor.data_ptr())
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_big_pools_are_registered():
    """600 GiB of address space, of which nothing is touched, on drivers that refuse 512 GiB in one call."""
    sim.script("max_call=512G")
    no_reserve = 0x4000
    memory = mmap.mmap(-1, 600 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    ptr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert host_register(ptr, 600 << 30) is PINS
    assert sim.all_pinned(ptr, 600 << 30) == PINS
    if PINS:
        host_unregister(ptr)


# ---- pin_tensor, unpin_tensor ----------------------------------------------------------------------------------------


def test_pin_tensor_pins_exactly_its_memory(tensor):
    if not PINS:
        with pytest.raises(RuntimeError, match="^cudaHostRegister failed: .*no GPU runtime is usable"):
            pin_tensor(tensor)
        return
    assert pin_tensor(tensor) is None
    assert sim.all_pinned(tensor.data_ptr(), SIZE)
    assert hostpin.stats().pinned_bytes == SIZE
    assert unpin_tensor(tensor) is None
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_pin_tensor_that_is_refused_raises(tensor):
    sim.script("fail=register:*:801")
    with pytest.raises(RuntimeError, match="^cudaHostRegister failed: ") as raised:
        pin_tensor(tensor)
    assert isinstance(raised.value.__cause__, hostpin.Error)
    assert ("801" in str(raised.value)) == PINS
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


def test_pin_tensor_of_an_empty_one_raises():
    with pytest.raises(RuntimeError, match="^cudaHostRegister failed: .*len is 0"):
        pin_tensor(Tensor(0))


def test_pin_tensor_of_what_others_have_pinned_raises(tensor):
    if sim.VARIANT != "cudart12":  # HIP 6 does not tell
        return
    sim.control.hps_pin_foreign(sim.VENDOR, tensor.data_ptr(), SIZE)
    with pytest.raises(RuntimeError, match="^cudaHostRegister failed: .*other code"):
        pin_tensor(tensor)
    sim.control.hps_unpin_foreign(sim.VENDOR, tensor.data_ptr())
    hostpin.unregister(tensor.data_ptr())  # the library's note of it


def test_unpin_tensor_of_what_is_not_pinned_raises(tensor):
    with pytest.raises(RuntimeError, match="^cudaHostUnregister failed: "):
        unpin_tensor(tensor)


def test_unpin_tensor_that_fails_raises_and_can_be_tried_again(tensor):
    if not PINS:
        return
    pin_tensor(tensor)
    sim.script("fail=unregister:1:1")
    with pytest.raises(RuntimeError, match="^cudaHostUnregister failed: .*do not unmap"):
        unpin_tensor(tensor)
    unpin_tensor(tensor)
    assert sim.none_pinned(tensor.data_ptr(), SIZE)


# ---- host_registration_ranges ----------------------------------------------------------------------------------------


def test_signatures_are_those_of_vllm():
    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(host_register) == ["ptr", "num_bytes"] and names(host_unregister) == ["ptr"]
    assert names(pin_tensor) == names(unpin_tensor) == ["tensor"]
    assert names(host_registration_ranges) == ["tensor_sizes", "num_blocks", "host_block_stride", "max_chunk_bytes"]
    assert inspect.signature(host_registration_ranges).parameters["max_chunk_bytes"].default == 256 << 30


def test_ranges_cut_no_block():
    assert host_registration_ranges([3 * 5000, 3 * 7000], 3, 12 * 1024, 100 << 10) == ((0, 36864),)
    assert host_registration_ranges([8 * PAGE, 8 * PAGE], 4, 4 * PAGE, 5 * PAGE) == (
        (0, 4 * PAGE), (4 * PAGE, 8 * PAGE), (8 * PAGE, 12 * PAGE), (12 * PAGE, 16 * PAGE))
    assert host_registration_ranges([], 4, PAGE, 3 * PAGE) == ((0, 3 * PAGE), (3 * PAGE, 4 * PAGE))
    assert host_registration_ranges([], 0, PAGE) == ((0, 0),)
    assert host_registration_ranges([2**39], 2**27, PAGE) == ((0, 2**38), (2**38, 2**39))


def test_ranges_are_the_known_answers():
    count = 0
    for line in (pathlib.Path(os.environ["HOSTPIN_TEST_DATA"]) / "split_ranges.jsonl").read_text().splitlines():
        case = json.loads(line)
        blocks, total = case["num_blocks"], case["total_size"]
        if case["page_size"] != PAGE or not blocks or total % blocks:
            continue  # vLLM has the system's pages, and pools of whole blocks
        arguments = case["tensor_sizes"], blocks, total // blocks, case["max_chunk_bytes"]
        if "error" in case:
            with pytest.raises(ValueError):
                host_registration_ranges(*arguments)
        else:
            assert host_registration_ranges(*arguments) == tuple(map(tuple, case["ranges"]))
        count += 1
    assert count > 100


@pytest.mark.parametrize("arguments, words", [
    (([], 1, PAGE + 1), "total_size"),
    (([], 1, PAGE, PAGE - 1), "max_chunk_bytes"),
    (([], 1, PAGE, 0), "max_chunk_bytes"),
    (([PAGE + 1], 2, PAGE), "tensor"),
    (([3 * PAGE], 1, 2 * PAGE), "tensor"),
    (([4 * PAGE], 1, 4 * PAGE, 2 * PAGE), "no legal cut"),
    (([PAGE], 0, PAGE), "num_blocks"),
    (([-1], 1, PAGE), "tensor 0"),
], ids=str)
def test_what_cannot_be_cut_is_a_value_error(arguments, words):
    with pytest.raises(ValueError, match=words):
        host_registration_ranges(*arguments)


def test_the_ranges_can_be_registered(tensor):
    for start, end in host_registration_ranges([SIZE], 4, PAGE, PAGE):
        assert host_register(tensor.data_ptr() + start, end - start) is PINS
    assert sim.all_pinned(tensor.data_ptr(), SIZE) == PINS
    for start, _ in host_registration_ranges([SIZE], 4, PAGE, PAGE):
        host_unregister(tensor.data_ptr() + start)
