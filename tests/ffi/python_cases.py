"""What hostpin.py does within one process. Run by test_python.py, once for each variant."""
import _thread
import array
import ctypes
import gc
import io
import mmap
import os
import pickle
import sys
import threading
import time
import types
import weakref
from multiprocessing import shared_memory

import numpy
import pytest
import simulation as sim
from simulation import PINS, VARIANT

import hostpin
from hostpin import Register, Status

PAGE = mmap.PAGESIZE
PINNED = Status.OK if PINS else Status.PAGEABLE
gc.freeze()  # what is imported: collecting after each test then takes no time


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    sim.control.hps_unblock(b"register")
    gc.collect()
    live, held = sim.control.hps_live_registrations(), set(hostpin._in_place)
    sim.control.hps_reset()
    assert (live, hostpin.stats().registrations, held) == (0, 0, set())


@pytest.fixture
def pool():
    return mmap.mmap(-1, 16 * PAGE)


def address_of(writable):
    return ctypes.addressof(ctypes.c_char.from_buffer(writable))


# ---- What can be pinned ----------------------------------------------------------------------------------------------


class Tensor:
    """As much of a torch tensor as is used."""

    def __init__(self, memory, device="cpu", contiguous=True):
        self.memory, self.device = memory, types.SimpleNamespace(type=device)
        self.nbytes = len(memory)
        self.contiguous = contiguous

    def data_ptr(self):
        return address_of(self.memory)

    def is_contiguous(self):
        return self.contiguous

    def untyped_storage(self):
        return self.memory


class Storage:
    """As much of a torch storage as is used."""

    def __init__(self, memory):
        self.memory, self.device = memory, types.SimpleNamespace(type="cpu")

    def data_ptr(self):
        return address_of(self.memory)

    def nbytes(self):
        return len(self.memory)


def kinds():
    """(name, object, the address of its memory, its length)"""
    data = bytearray(3 * PAGE)
    yield "bytearray", data, address_of(data), 3 * PAGE
    memory = mmap.mmap(-1, 2 * PAGE)
    yield "mmap", memory, address_of(memory), 2 * PAGE
    numbers = array.array("d", range(1000))
    yield "array", numbers, numbers.buffer_info()[0], 8000
    part = memoryview(bytearray(2 * PAGE))[100:5000]
    yield "memoryview of a part", part, address_of(part), 4900
    fields = (ctypes.c_uint64 * 100)()
    yield "ctypes", fields, ctypes.addressof(fields), 800
    for name, values in [("numpy", numpy.arange(3000.0)), ("numpy of two dimensions", numpy.zeros((30, 40), "i4")),
                         ("numpy by columns", numpy.zeros((30, 40), "i2", order="F")),
                         ("numpy part", numpy.zeros((64, 64))[8:16]),
                         ("numpy dates", numpy.zeros(500, "datetime64[s]")),
                         ("numpy records", numpy.zeros(10, [("a", "f8"), ("b", "i4")]))]:
        yield name, values, values.ctypes.data, values.nbytes
    backing = bytearray(5000)
    yield "tensor", Tensor(backing), address_of(backing), 5000
    yield "storage", Storage(backing), address_of(backing), 5000


@pytest.mark.parametrize("buffer, address, nbytes", [pytest.param(*kind[1:], id=kind[0]) for kind in kinds()])
def test_pins_exactly_the_memory_of(buffer, address, nbytes):
    with hostpin.pin(buffer) as pinned:
        assert (pinned.address, pinned.nbytes) == (address, nbytes)
        assert pinned.status is PINNED and not pinned.closed
        assert hostpin.is_pinned(buffer) == sim.all_pinned(address, nbytes) == PINS
        assert bool(pinned.reason) == (not PINS)
    assert pinned.closed and not hostpin.is_pinned(buffer)
    assert sim.none_pinned(address, nbytes)


def test_pins_shared_memory():
    shared = shared_memory.SharedMemory(create=True, size=4 * PAGE)
    try:
        pinned = hostpin.pin(shared)
        assert pinned.nbytes == 4 * PAGE and hostpin.is_pinned(shared) == PINS
        with pytest.raises(BufferError):
            shared.close()
        pinned.close()
        shared.close()
    finally:
        shared.unlink()


def read_only_buffers():
    file = os.memfd_create("read-only")
    os.ftruncate(file, PAGE)
    values = numpy.zeros(100)
    values.flags.writeable = False
    dates = numpy.zeros(100, "datetime64[D]")
    dates.flags.writeable = False
    yield "bytes", b"some text"
    yield "mmap", mmap.mmap(file, PAGE, access=mmap.ACCESS_READ)
    yield "memoryview", memoryview(bytearray(100)).toreadonly()
    yield "numpy", values
    yield "numpy dates", dates
    os.close(file)


@pytest.mark.parametrize("buffer", [pytest.param(buffer, id=name) for name, buffer in read_only_buffers()])
def test_a_read_only_buffer_is_pinned_for_reading(buffer):
    sim.script("attribute=113:1")  # the CUDA device knows the flag
    with hostpin.pin(buffer) as pinned:
        mapped_read_only = isinstance(buffer, mmap.mmap)  # which HIP does not pin
        assert pinned.status is (Status.PAGEABLE if mapped_read_only and VARIANT == "amdhip6" else PINNED)
        if VARIANT == "cudart12":
            assert hostpin.query(buffer).flags & Register.READONLY


def test_a_writable_buffer_is_not_pinned_for_reading_only(pool):
    with hostpin.pin(pool):
        assert not hostpin.query(pool).flags & Register.READONLY


@pytest.mark.parametrize("buffer, error", [
    (memoryview(bytearray(100))[::2], BufferError),
    (numpy.zeros(100)[::2], BufferError),
    (numpy.zeros(100, "datetime64[s]")[::2], ValueError),
    (Tensor(bytearray(100), contiguous=False), ValueError),
    (Tensor(bytearray(100), device="cuda"), ValueError),
    ("text", TypeError),
    (None, TypeError),
    (4096, TypeError),
], ids=str)
def test_what_cannot_be_pinned_is_an_error(buffer, error):
    with pytest.raises(error):
        hostpin.pin(buffer)


# ---- Lifetime --------------------------------------------------------------------------------------------------------


def test_a_pinned_buffer_stays_where_it_is():
    data, memory = bytearray(PAGE), mmap.mmap(-1, PAGE)
    with hostpin.pin(data), hostpin.pin(memory):
        with pytest.raises(BufferError):
            data.append(1)
        with pytest.raises(BufferError):
            memory.close()
    data.append(1)
    memory.close()


def test_it_is_alive_as_long_as_it_is_pinned():
    class Buffer(bytearray):
        pass

    buffer = Buffer(PAGE)
    gone = weakref.ref(buffer)
    pinned = hostpin.pin(buffer)
    del buffer
    gc.collect()
    assert gone() is not None and hostpin.is_pinned(pinned.address, PAGE) == PINS
    pinned.close()
    assert gone() is None


def test_the_storage_of_a_tensor_is_held_too():
    class Storage(bytearray):
        pass

    tensor = Tensor(Storage(PAGE))
    alive = weakref.ref(tensor.memory)
    with hostpin.pin(tensor):
        tensor.memory = bytearray(PAGE)  # as torch's set_() does
        gc.collect()
        assert alive() is not None
    assert alive() is None


def test_close_again_does_nothing(pool):
    before = sim.calls("unregister")
    pinned = hostpin.pin(pool)
    for _ in range(3):
        pinned.close()
    assert sim.calls("unregister") - before == (1 if PINS else 0)


def test_an_exception_in_the_block_closes(pool):
    with pytest.raises(KeyError):
        with hostpin.pin(pool) as pinned:
            raise KeyError
    assert pinned.closed and not hostpin.is_pinned(pool)


def test_a_collected_one_is_unregistered_before_its_memory_goes():
    states = []

    class Memory(mmap.mmap):
        def __del__(self):
            states.append(sim.none_pinned(address, PAGE))

    memory = Memory(-1, PAGE)
    address = address_of(memory)
    gc.collect()
    pinned = hostpin.pin(memory)
    assert sim.all_pinned(address, PAGE) == PINS
    del memory
    pinned.itself = pinned  # a cycle, which only the collector ends
    del pinned
    assert states == []
    gc.collect()
    assert states == [True]


def test_closing_one_of_two_leaves_the_other(pool):
    one, two = hostpin.pin(pool), hostpin.pin(pool)
    one.close()
    assert hostpin.is_pinned(pool) == PINS
    with pytest.raises(BufferError):
        pool.close()
    two.close()
    assert not hostpin.is_pinned(pool)


def test_a_pageable_one_does_not_end_a_later_one(pool):
    sim.script("fail=register:*:2")
    pageable = hostpin.pin(pool)
    assert pageable.status is Status.PAGEABLE
    sim.control.hps_reset()
    pinned = hostpin.pin(pool)
    pageable.close()
    assert hostpin.is_pinned(pool) == PINS
    pinned.close()


def test_a_stuck_one_is_held_until_it_is_released(pool):
    pinned = hostpin.pin(pool)
    sim.script("fail=unregister:1:1")
    if PINS:
        with pytest.raises(hostpin.Error) as raised:
            pinned.close()
        assert raised.value.status is Status.E_STUCK and not pinned.closed
        with pytest.raises(BufferError):
            pool.close()
    pinned.close()
    assert pinned.closed
    pool.close()


def test_a_stuck_one_that_is_collected_leaves_its_memory_in_place():
    class Buffer(bytearray):
        pass

    buffer = Buffer(PAGE)
    alive = weakref.ref(buffer)
    pinned = hostpin.pin(buffer)
    address = pinned.address
    sim.script("fail=unregister:1:1")
    del buffer, pinned
    gc.collect()
    assert (alive() is not None) == PINS
    if PINS:
        next(iter(hostpin._in_place)).end()
        assert sim.none_pinned(address, PAGE)
        gc.collect()
        assert alive() is None


def test_one_that_is_stuck_half_way_leaves_its_memory_in_place():
    class Buffer(bytearray):
        pass

    buffer = Buffer(32 * PAGE)
    alive = weakref.ref(buffer)
    sim.script("fail=register:2+:801,fail=unregister:1-2:1")
    if PINS:
        with pytest.raises(hostpin.Error) as raised:
            hostpin.pin(buffer, ranges=[(0, 8 * PAGE), (16 * PAGE, 24 * PAGE)])
        assert raised.value.status is Status.E_STUCK
        del raised
    del buffer
    gc.collect()
    assert (alive() is not None) == PINS
    if PINS:
        next(iter(hostpin._in_place)).end()
        gc.collect()
        assert alive() is None


def test_unregister_all_ends_them_and_close_still_works(pool):
    pinned = hostpin.pin(pool)
    hostpin.unregister_all(timeout=60)
    assert not hostpin.is_pinned(pool)
    pinned.close()
    pool.close()


def test_many_threads_may_close_one(pool):
    for _ in range(20):
        one, other = hostpin.pin(pool), hostpin.pin(pool)
        threads = [threading.Thread(target=one.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hostpin.is_pinned(pool) == PINS
        other.close()


# ---- Results ---------------------------------------------------------------------------------------------------------


def test_refused_memory_is_pageable_or_an_error_if_required(pool):
    sim.script("fail=register:*:2")
    with hostpin.pin(pool) as pinned:
        assert pinned.status is Status.PAGEABLE and pinned.reason
        assert not hostpin.is_pinned(pool)
    with pytest.raises(hostpin.Error) as raised:
        hostpin.pin(pool, Register.REQUIRED)
    assert raised.value.status is (Status.E_REFUSED if PINS else Status.E_UNAVAILABLE)
    assert raised.value.native == (2 if PINS else 0)
    assert ("HostRegister(0x" if PINS else "no GPU runtime is usable") in str(raised.value)
    pool.close()  # nothing holds it


def test_memory_that_others_have_pinned_is_left_to_them(pool):
    address, before = address_of(pool), sim.calls("unregister")
    sim.control.hps_pin_foreign(sim.VENDOR, address, len(pool))
    pinned = hostpin.pin(pool)
    if VARIANT == "cudart12":
        assert pinned.status is Status.FOREIGN and hostpin.is_pinned(pool) and hostpin.query(pool).foreign
    pinned.close()
    if VARIANT == "cudart12":
        assert sim.calls("unregister") == before and sim.all_pinned(address, len(pool))
    sim.control.hps_unpin_foreign(sim.VENDOR, address)


def test_errors_are_of_the_kinds_that_python_expects(pool):
    with pytest.raises(ValueError, match="len is 0") as raised:
        hostpin.pin(bytearray())
    assert isinstance(raised.value, hostpin.InvalidError) and raised.value.status is Status.E_INVALID
    with pytest.raises(ValueError, match="flag"):
        hostpin.pin(pool, 1 << 30)
    with hostpin.pin(pool):
        if PINS:
            with pytest.raises(ValueError) as raised:
                hostpin.pin(memoryview(pool)[:PAGE])
            assert raised.value.status is Status.E_EXISTS
    assert issubclass(hostpin.OutOfMemoryError, MemoryError) and issubclass(hostpin.TimedOutError, TimeoutError)
    for kind in (hostpin.Error, hostpin.InvalidError, hostpin.OutOfMemoryError, hostpin.TimedOutError):
        assert issubclass(kind, RuntimeError)
        copy = pickle.loads(pickle.dumps(kind("text", Status.E_BUDGET, 7)))
        assert (type(copy), str(copy), copy.status, copy.native) == (kind, "text", Status.E_BUDGET, 7)


@pytest.mark.parametrize("address", [2**47 + PAGE, 2**57 - PAGE, 2**63 + PAGE, 2**64 - 4 * PAGE])
def test_addresses_are_not_cut(address):
    assert not hostpin.query(address, PAGE).pinned
    with pytest.raises(hostpin.Error, match=hex(address)) as raised:
        hostpin.unregister(address)
    assert raised.value.status is Status.E_NOT_FOUND
    with pytest.raises(hostpin.InvalidError, match=hex(address)):
        hostpin.register(address, 2**64 - 1)
    assert hostpin.split_copies([(address, address + 1, 100)]) == [(address, address + 1, 100)]
    with pytest.raises(hostpin.Error, match=hex(address)):
        hostpin.device_pointer(address)
    with pytest.raises(hostpin.Error, match=hex(address)):
        hostpin.register(address, PAGE, Register.REQUIRED | Register.PREFAULT) if PINS else hostpin.unregister(address)


@pytest.mark.parametrize("number", [-1, 2**64, 2**70])
def test_numbers_that_do_not_fit_are_errors(number, pool):
    for call in [lambda: hostpin.query(number, 1), lambda: hostpin.query(4096, number),
                 lambda: hostpin.register(number, 1), lambda: hostpin.register(4096, number),
                 lambda: hostpin.unregister(number), lambda: hostpin.device_pointer(number),
                 lambda: hostpin.split_copies([(number, 0, 1)]), lambda: hostpin.split_copies([(4096, 0, number)]),
                 lambda: hostpin.split_ranges([number], 1, PAGE), lambda: hostpin.split_ranges([], 1, number),
                 lambda: hostpin.split_ranges([], 1, PAGE, number), lambda: hostpin.pin(pool, number),
                 lambda: hostpin.Job(pool, chunk_bytes=number), lambda: hostpin.Job(pool, prefault_threads=number)]:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        hostpin.query(4096)
    with pytest.raises(TypeError):
        hostpin.register(4096.0, PAGE)


def test_an_address_may_be_a_number_of_numpy(pool):
    with hostpin.pin(pool) as pinned:
        assert hostpin.is_pinned(numpy.uint64(pinned.address), numpy.int32(PAGE)) == PINS
        with pytest.raises(TypeError):
            hostpin.query(numpy.uint64(pinned.address))


@pytest.mark.parametrize("forever", [None, float("inf"), 1e300])
def test_a_time_without_end(pool, forever):
    with hostpin.Job(pool) as job:
        assert job.wait(forever) is PINNED
    pinned = hostpin.pin(pool)
    hostpin.unregister_all(forever)
    assert not hostpin.is_pinned(pool)
    pinned.close()


def test_device_pointers(pool):
    with hostpin.pin(pool) as pinned:
        if PINS:
            start = pinned.device_pointer()
            assert start and pinned.device_pointer(5 * PAGE + 7) == start + 5 * PAGE + 7
            assert hostpin.device_pointer(pinned.address) == start
            for offset in (-1, len(pool)):
                with pytest.raises(ValueError, match="offset is %d" % offset):
                    pinned.device_pointer(offset)
        else:
            with pytest.raises(hostpin.Error) as raised:
                pinned.device_pointer()
            assert raised.value.status is Status.E_NOT_FOUND
    with pytest.raises(hostpin.Error):
        hostpin.device_pointer(pinned.address)


def test_backend_and_counters(pool):
    info = hostpin.backend()
    name, file = {"none": ("none", None), "cudart12": ("cuda", "HOSTPIN_CUDART"),
                  "amdhip6": ("hip", "HOSTPIN_AMDHIP")}[VARIANT]
    assert info.name == name and info.backend == hostpin.Backend[name.upper()]
    assert info.runtime_file == (os.environ[file] if file else "")
    assert info.device_count == (1 if PINS else 0)
    assert bool(info.capabilities & hostpin.Capability.DEVICE_POINTER) == PINS
    assert bool(info.cuda_reason) == (VARIANT != "cudart12") and bool(info.hip_reason) == (VARIANT != "amdhip6")
    with hostpin.pin(pool):
        counters = hostpin.stats()
        assert counters.pinned_bytes == (len(pool) if PINS else 0)
        assert "pinned_bytes=%d," % counters.pinned_bytes in repr(counters) and "reserved" not in repr(counters)
    assert hostpin.version() == hostpin.__version__


def test_repr_says_what_it_is(pool):
    pinned = hostpin.pin(pool)
    assert repr(pinned) == "<hostpin.Pinned of 65536 bytes at 0x%x: %s>" % (pinned.address, PINNED.name)
    pinned.close()
    assert repr(pinned).endswith(": closed>")


def test_it_is_too_late_to_configure():
    with pytest.raises(hostpin.InvalidError, match="too late"):
        hostpin.configure(budget_bytes=PAGE)


# ---- Ranges ----------------------------------------------------------------------------------------------------------


def test_each_range_is_a_segment(pool):
    ranges = hostpin.split_ranges([8 * PAGE, 8 * PAGE], 4, 16 * PAGE, 5 * PAGE)
    assert ranges == [(0, 4 * PAGE), (4 * PAGE, 8 * PAGE), (8 * PAGE, 12 * PAGE), (12 * PAGE, 16 * PAGE)]
    with hostpin.pin(pool, ranges=ranges) as pinned:
        base = pinned.address
        assert pinned.status is PINNED
        if PINS:
            for start, end in ranges:
                assert hostpin.query(base + start, 1)[2:4] == (base + start, base + end)
            assert hostpin.query(base, 4 * PAGE).one_segment and not hostpin.query(base, 5 * PAGE).one_segment
        copies = hostpin.split_copies([(base + PAGE, 77, 2 * PAGE), (base + 3 * PAGE, 1 << 63, 6 * PAGE), (base, 5, 0)])
        assert sum(size for _, _, size in copies) == 8 * PAGE
        assert copies == ([(base + PAGE, 77, 2 * PAGE), (base + 3 * PAGE, 1 << 63, PAGE),
                           (base + 4 * PAGE, (1 << 63) + PAGE, 4 * PAGE), (base + 8 * PAGE, (1 << 63) + 5 * PAGE, PAGE),
                           (base, 5, 0)] if PINS else
                          [(base + PAGE, 77, 2 * PAGE), (base + 3 * PAGE, 1 << 63, 6 * PAGE), (base, 5, 0)])
    assert not hostpin.is_pinned(base, PAGE)


def test_ranges_with_gaps_pin_only_what_they_name(pool):
    with hostpin.pin(pool, ranges=[(0, PAGE), (3 * PAGE, 4 * PAGE)]) as pinned:
        assert hostpin.is_pinned(pinned.address, PAGE) == PINS
        assert not hostpin.is_pinned(pinned.address + PAGE, PAGE)


@pytest.mark.parametrize("ranges", [[(0, 17 * PAGE)], [(-1, PAGE)], [(PAGE, 0)], [(0, PAGE), (0, PAGE)], []], ids=str)
def test_wrong_ranges_are_errors(pool, ranges):
    with pytest.raises(ValueError):
        hostpin.pin(pool, ranges=ranges)
    with pytest.raises(ValueError):
        hostpin.Job(pool, ranges=ranges)
    pool.close()


# ---- Jobs ------------------------------------------------------------------------------------------------------------


def big(chunks):
    return mmap.mmap(-1, chunks << 21)


def test_a_job_pins_in_the_background():
    memory = big(4)
    with hostpin.Job(memory, chunk_bytes=1 << 21) as job:
        assert job.wait() is PINNED
        assert job.status is PINNED and bool(job.reason) == (not PINS)
        progress = job.poll()
        assert progress.done and progress.status == PINNED and progress.bytes_total == 8 << 20 and progress.elapsed >= 0
        assert progress.pinned_bytes == (8 << 20 if PINS else 0)
        assert hostpin.is_pinned(memory) == PINS
        with pytest.raises(BufferError):
            memory.close()
    assert job.closed and job.poll().done and not hostpin.is_pinned(memory)
    memory.close()


def test_a_job_that_is_waited_for_with_a_deadline():
    memory = big(2)
    if PINS:
        sim.block_registers()
    with hostpin.Job(memory) as job:
        if PINS:
            sim.wait_until_one_is_blocked()
            assert job.status is None and job.reason == "" and not job.poll().done and "running" in repr(job)
            for timeout in (0, 0.15):
                with pytest.raises(hostpin.TimedOutError) as raised:
                    job.wait(timeout)
                assert raised.value.status is Status.E_TIMEOUT and isinstance(raised.value, TimeoutError)
            sim.unblock_registers()
        assert job.wait(600) is PINNED


def test_a_cancelled_job_releases_what_it_had():
    memory = big(3)
    if PINS:
        sim.block_registers()
    job = hostpin.Job(memory, chunk_bytes=1 << 21)
    if PINS:
        sim.wait_until_one_is_blocked()
        job.cancel()
        sim.unblock_registers()
        with pytest.raises(hostpin.Error) as raised:
            job.wait()
        assert raised.value.status is Status.E_CANCELLED and job.poll().status == Status.E_CANCELLED
        assert job.status is None
    job.close()
    assert not hostpin.is_pinned(memory, PAGE)
    memory.close()


def test_closing_a_job_that_runs_cancels_it():
    memory = big(50)
    job = hostpin.Job(memory, chunk_bytes=1 << 21, pause=3600.0)
    job.close()
    assert job.closed and not hostpin.is_pinned(memory, PAGE)
    memory.close()


def test_a_job_that_nobody_has_is_cancelled_and_holds_its_memory_until_it_is_over():
    class Buffer(bytearray):
        pass

    buffer = Buffer(4 << 20)
    alive, address = weakref.ref(buffer), address_of(buffer)
    gc.collect()
    if PINS:
        sim.block_registers()
    job = hostpin.Job(buffer, chunk_bytes=1 << 21, pause=3600.0)
    if PINS:
        sim.wait_until_one_is_blocked()
    del buffer, job
    gc.collect()
    if PINS:
        assert alive() is not None
        sim.unblock_registers()
    deadline = time.monotonic() + 60
    while alive() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert alive() is None and sim.none_pinned(address, 4 << 20)


def test_a_done_job_that_nobody_has_is_unregistered():
    memory = big(1)
    job = hostpin.Job(memory)
    job.wait()
    address = job.address
    assert sim.all_pinned(address, 1 << 21) == PINS
    del job
    gc.collect()
    assert sim.none_pinned(address, 1 << 21)
    memory.close()


def test_a_job_may_keep_what_it_has_pinned():
    memory = big(3)
    sim.script("fail=register:2+:801")
    with hostpin.Job(memory, keep=True, chunk_bytes=1 << 21) as job:
        assert job.wait() is Status.PAGEABLE and job.reason
        first = -job.address % (1 << 21) or 1 << 21  # cuts are at multiples of 2 MiB
        assert job.poll().pinned_bytes == (first if PINS else 0)
        assert hostpin.is_pinned(job.address, first) == PINS and not hostpin.is_pinned(memory)
    assert not hostpin.is_pinned(job.address, first) and sim.none_pinned(job.address, 3 << 21)


def test_a_failed_job_says_why():
    memory = big(1)
    sim.script("fail=register:*:801")
    with hostpin.Job(memory, Register.REQUIRED) as job:
        with pytest.raises(hostpin.Error) as raised:
            job.wait()
        assert raised.value.status is (Status.E_REFUSED if PINS else Status.E_UNAVAILABLE)
        assert job.status is None and job.reason == str(raised.value)


# ---- The interpreter's lock ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [hostpin.pin, lambda memory: hostpin.pin(memory, progress=lambda p: None)],
                         ids=["pin", "with progress"])
def test_other_threads_run_while_the_driver_works(pool, start):
    if not PINS:
        start(pool).close()
        return
    sim.block_registers()
    results = []
    thread = threading.Thread(target=lambda: results.append(start(pool)))
    thread.start()
    sim.wait_until_one_is_blocked()
    # The driver is in the middle of it, and this thread has the interpreter.
    assert sum(range(1000)) == 499500 and thread.is_alive() and results == []
    assert not hostpin.is_pinned(pool)
    sim.unblock_registers()
    thread.join()
    assert results.pop().status is Status.OK


def interrupt_while_blocked(what):
    """Ctrl-C in the main thread while the driver works for it."""

    def interrupt():
        assert sim.control.hps_wait_blocked(what, 1, 30000) == 0
        _thread.interrupt_main()
        sim.control.hps_unblock(what)

    sim.control.hps_block(what)
    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.parametrize("ranges", [None, [(0, PAGE), (PAGE, 16 * PAGE)]], ids=["one range", "two ranges"])
def test_an_interrupted_pin_is_undone(pool, ranges):
    if not PINS:
        return
    with pytest.raises(KeyboardInterrupt) as raised:
        thread = interrupt_while_blocked(b"register")
        hostpin.pin(pool, ranges=ranges)
    thread.join()
    assert not hostpin.is_pinned(pool, PAGE)
    pool.close()
    del raised


def interrupted_close(pinned):
    with pytest.raises(KeyboardInterrupt):
        thread = interrupt_while_blocked(b"unregister")
        pinned.close()
    thread.join()


def test_an_interrupted_close_has_ended_it_and_ends_nothing_else_when_repeated(pool):
    if not PINS:
        return
    pinned = hostpin.pin(pool)
    interrupted_close(pinned)
    assert pinned.closed and not hostpin.is_pinned(pool)
    with hostpin.pin(pool):
        pinned.close()
        assert hostpin.is_pinned(pool)
    pool.close()


def test_an_interrupted_close_that_failed_can_be_repeated(pool):
    if not PINS:
        return
    pinned = hostpin.pin(pool)
    sim.script("fail=unregister:1:1")
    interrupted_close(pinned)
    assert not pinned.closed and hostpin.query(pool).stuck
    pinned.close()
    assert pinned.closed and not hostpin.is_pinned(pool)
    pool.close()


# ---- Progress --------------------------------------------------------------------------------------------------------


def test_a_function_is_told_of_progress():
    seen = []
    memory = big(2)
    with hostpin.pin(memory, progress=seen.append) as pinned:
        assert pinned.status is PINNED and seen[-1] == seen[-1]._replace(done=True, bytes_total=2 << 21, status=PINNED)
        assert hostpin.is_pinned(memory) == PINS


def test_an_exception_from_progress_ends_the_pinning():
    memory = big(2)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:  # and with it the frames, which hold all they can
        hostpin.pin(memory, progress=stop)
    assert not hostpin.is_pinned(memory, PAGE)
    memory.close()
    del raised


def test_a_refusal_with_progress_is_an_error_if_required():
    memory = big(1)
    sim.script("fail=register:*:801")
    with pytest.raises(hostpin.Error) as raised:
        hostpin.pin(memory, Register.REQUIRED, progress=True)
    memory.close()
    del raised


class Screen(io.StringIO):
    terminal = True

    def isatty(self):
        return self.terminal


def test_progress_is_a_line_on_a_terminal(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # not installed
    for terminal in (True, False):
        screen = Screen()
        screen.terminal = terminal
        monkeypatch.setattr(sys, "stderr", screen)
        hostpin.pin(big(2), progress=True).close()
        last = screen.getvalue().rpartition("\r")[2]
        assert last.startswith("pinning ") and last.endswith(" % of 0.0 GiB\n") if terminal else last == ""
        assert ("100 %" in last) == (terminal and PINS)


def test_progress_is_shown_by_tqdm_if_that_is_installed(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.n, self.options, self.closed = 0, options, False
            bars.append(self)

        def update(self, count):
            self.n += count

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    hostpin.pin(big(2), progress=True).close()
    bar, = bars
    assert bar.closed and bar.options["total"] == 2 << 21 and bar.options["unit"] == "B"
    assert bar.n == (2 << 21 if PINS else 0)


# ---- Log -------------------------------------------------------------------------------------------------------------


def refuse(pool, code):
    """Each new cause of a refusal is one warning."""
    sim.control.hps_reset()
    sim.script("fail=register:*:%d" % code)
    hostpin.pin(pool).close()


def test_log_lines_come_to_the_callback(pool, capfd):
    lines = []
    hostpin.set_log_callback(lambda level, text: lines.append((level, text)))
    refuse(pool, 998)
    hostpin.set_log_callback(None)
    assert [level for level, _ in lines] == ([hostpin.LogLevel.WARN] if PINS else [])
    assert all(isinstance(text, str) and "998" in text for _, text in lines)
    assert capfd.readouterr().err == ""
    refuse(pool, 997)
    assert (" 997 " in capfd.readouterr().err) == PINS and len(lines) == (1 if PINS else 0)


def test_an_exception_in_the_callback_goes_nowhere_else(pool, monkeypatch):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reports.append(report.exc_type))

    def fail(level, text):
        raise KeyError(text)

    hostpin.set_log_callback(fail)
    refuse(pool, 996)
    hostpin.set_log_callback(None)
    assert reports == ([KeyError] if PINS else [])
