# SPDX-License-Identifier: MIT
"""Pin host memory that exists already, so that GPUs reach it by DMA: libhostpin for Python.

    import hostpin

    pool = mmap.mmap(-1, 1 << 30)
    with hostpin.pin(pool) as pinned:
        print(pinned.status.name, pinned.reason)
        ...                            # copy from and to the pool

`pin` takes everything with the buffer protocol (bytearray, mmap, memoryview, array, numpy), torch tensors on the CPU
and their storages, and multiprocessing.shared_memory.SharedMemory. Where nothing can pin, on a machine without a GPU
for instance, the same program runs on: the status is PAGEABLE then, and copies are only slower. With
`Register.REQUIRED` that is an `Error`.

>>> buffer = bytearray(1 << 20)
>>> with pin(buffer) as pinned:
...     assert pinned.status in (Status.OK, Status.PAGEABLE)
...     assert is_pinned(buffer) == (pinned.status == Status.OK)
...     buffer.append(0)                                    # it would move in memory
Traceback (most recent call last):
    ...
BufferError: Existing exports of data: object cannot be re-sized
>>> pinned.closed
True

Lifetime: a `Pinned` holds the buffer and its export until `close`, so that the memory is neither freed nor moved: a
bytearray cannot be resized, an mmap and a SharedMemory cannot be closed (BufferError). Nothing keeps a torch tensor
from moving its own memory (`resize_`): do not. Close a Pinned only when no copy that uses the memory is in flight. One
that is garbage collected closes itself, and leaves its memory in place for good if the driver does not release it. At
exit of the interpreter nothing is released: the pages stay pinned and in place until the operating system takes the
process down.

Threads: everything here may be called from any thread. The interpreter's lock is released while the driver works, but
a signal such as Ctrl-C waits for the end of `pin`; with `progress`, or a `Job`, it does not.

Processes: pins are not inherited. In a forked child `close` does nothing and says nothing, and `pin` is an error once
the parent has used the library. Use multiprocessing's start method "spawn".

The library is looked for as libhostpin.so.1, as the system's loader does, or in the file that the environment variable
HOSTPIN_LIBRARY names. `lib` is the library itself with the types of all its functions; hostpin.h describes them.
"""
from __future__ import annotations

import _thread
import atexit
import ctypes
import enum
import importlib
import numbers
import operator
import os
import sys
import time
import weakref
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import (Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, Type,
                    TypeVar, Union)

_Path = Union[str, bytes, "os.PathLike[str]"]

__version__ = "1.0.0"
__all__ = [
    "Backend", "BackendInfo", "Capability", "Error", "InvalidError", "Job", "JobState", "LogLevel", "OutOfMemoryError",
    "Pinned", "Progress", "Region", "Register", "Stats", "Status", "TimedOutError", "backend", "configure",
    "device_pointer", "is_pinned", "lib", "pin", "query", "register", "set_log_callback", "split_copies",
    "split_ranges", "stats", "unregister", "unregister_all", "version",
]


# ---- Constants of hostpin.h ------------------------------------------------------------------------------------------


class Status(enum.IntEnum):
    """What a function returned. Negative ones are raised as `Error`."""

    OK = 0
    PAGEABLE = 1
    FOREIGN = 2
    E_INVALID = -1
    E_EXISTS = -2
    E_NOT_FOUND = -3
    E_UNAVAILABLE = -4
    E_REFUSED = -5
    E_STUCK = -6
    E_NO_BOUNDARY = -7
    E_TOO_SMALL = -8
    E_NO_MEMORY = -9
    E_FORKED = -10
    E_CANCELLED = -11
    E_TIMEOUT = -12
    E_UNSUPPORTED = -13
    E_BUDGET = -14


class Register(enum.IntFlag):
    """Flags for `pin`, `Job` and `register`."""

    PORTABLE = 0x1
    MAPPED = 0x2
    IOMEMORY = 0x4
    READONLY = 0x8
    REQUIRED = 0x10000
    PREFAULT = 0x20000
    SERIALIZE = 0x40000
    HUGEPAGES = 0x80000
    DONTFORK = 0x100000


class Backend(enum.IntEnum):
    """Whose driver pins."""

    AUTO = 0
    NONE = 1
    CUDA = 2
    HIP = 3
    LEVEL_ZERO = 4


class Capability(enum.IntFlag):
    """What the backend can do."""

    HOST_ADDRESS = 0x1
    DEVICE_POINTER = 0x2
    READ_ONLY = 0x4


class JobState(enum.IntEnum):
    """Whether a job is over."""

    RUNNING = 1
    DONE = 2


class LogLevel(enum.IntEnum):
    """How important a line of the log is."""

    OFF = 1
    ERROR = 2
    WARN = 3
    INFO = 4
    DEBUG = 5


# ---- Structures of hostpin.h -----------------------------------------------------------------------------------------


class _Structure(ctypes.Structure):
    """One whose struct_size, where it has one, is set by itself."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = ctypes.sizeof(self)

    def __repr__(self) -> str:
        names = [field[0] for field in self._fields_ if not field[0].startswith(("reserved", "struct_size"))]
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % (name, getattr(self, name)) for name in names))


class _Range(_Structure):
    _fields_ = [("start", c_uint64), ("end", c_uint64)]


class _Copy(_Structure):
    _fields_ = [("host", c_void_p), ("other", c_void_p), ("bytes", c_uint64)]


class _JobOptions(_Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("keep", c_uint32), ("chunk_bytes", c_uint64), ("pause_ns", c_uint64),
        ("prefault_threads", c_uint32), ("reserved0", c_uint32), ("reserved", c_uint64 * 4),
    ]


class _Progress(_Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("state", c_int32), ("status", c_int32), ("reserved0", c_uint32),
        ("bytes_done", c_uint64), ("bytes_total", c_uint64), ("pinned_bytes", c_uint64), ("elapsed_ns", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class _Region(_Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("backend", c_int32), ("start", c_uint64), ("end", c_uint64), ("flags", c_uint32),
        ("references", c_uint32), ("one_segment", c_uint32), ("host_address", c_uint32), ("stuck", c_uint32),
        ("foreign", c_uint32), ("reserved", c_uint64 * 6),
    ]


class _BackendInfo(_Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("backend", c_int32), ("capabilities", c_uint32), ("device_count", c_int32),
        ("runtime_version", c_uint32), ("driver_version", c_uint32), ("max_segment", c_uint64), ("name", c_char_p),
        ("runtime_file", c_char_p), ("cuda_reason", c_char_p), ("hip_reason", c_char_p),
        ("level_zero_reason", c_char_p), ("reserved", c_uint64 * 8),
    ]


class Stats(_Structure):
    """Counters since the process started; hostpin.h says of each what it counts."""

    _fields_ = [
        ("struct_size", c_uint32), ("reserved0", c_uint32), ("registrations", c_uint64), ("segments", c_uint64),
        ("stuck_segments", c_uint64), ("pinned_bytes", c_uint64), ("pinned_bytes_max", c_uint64),
        ("pageable_bytes", c_uint64), ("foreign_bytes", c_uint64), ("vendor_calls", c_uint64), ("vendor_ns", c_uint64),
        ("vendor_ns_max", c_uint64), ("failed_invalid", c_uint64), ("failed_memory", c_uint64),
        ("failed_foreign", c_uint64), ("failed_unsupported", c_uint64), ("failed_capture", c_uint64),
        ("failed_device", c_uint64), ("failed_release", c_uint64), ("failed_other", c_uint64),
        ("reserved", c_uint64 * 8),
    ]


class _Config(_Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("backend", c_int32), ("log_level", c_int32), ("ze_memmap", c_uint32),
        ("max_segment", c_uint64), ("budget_bytes", c_uint64), ("budget_percent", c_uint32),
        ("prefault_threads", c_uint32), ("cudart", c_char_p), ("cuda_driver", c_char_p), ("amdhip", c_char_p),
        ("ze_loader", c_char_p), ("reserved", c_uint64 * 8),
    ]


# ---- Functions of hostpin.h ------------------------------------------------------------------------------------------

_LogFunction = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "hp_register": (c_int32, [c_void_p, c_size_t, c_uint32]),
    "hp_register_ranges": (c_int32, [c_void_p, POINTER(_Range), c_size_t, c_uint32]),
    "hp_unregister": (c_int32, [c_void_p]),
    "hp_unregister_all": (c_int32, [c_uint64]),
    "hp_split_ranges": (c_int32, [POINTER(c_uint64), c_size_t, c_uint64, c_uint64, c_uint64, c_uint64,
                                  POINTER(_Range), c_size_t, POINTER(c_size_t)]),
    "hp_split_copies": (c_int32, [POINTER(_Copy), c_size_t, POINTER(_Copy), c_size_t, POINTER(c_size_t)]),
    "hp_register_start": (c_int32, [c_void_p, POINTER(_Range), c_size_t, c_uint32, POINTER(_JobOptions),
                                    POINTER(c_void_p)]),
    "hp_job_poll": (c_int32, [c_void_p, POINTER(_Progress)]),
    "hp_job_wait": (c_int32, [c_void_p, c_uint64]),
    "hp_job_cancel": (c_int32, [c_void_p]),
    "hp_job_free": (None, [c_void_p]),
    "hp_query": (c_int32, [c_void_p, c_size_t, POINTER(_Region)]),
    "hp_device_pointer": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "hp_get_backend": (c_int32, [POINTER(_BackendInfo)]),
    "hp_get_stats": (c_int32, [POINTER(Stats)]),
    "hp_strerror": (c_char_p, [c_int32]),
    "hp_last_error": (c_char_p, []),
    "hp_last_native_error": (c_int64, []),
    "hp_set_log_callback": (None, [_LogFunction, c_void_p]),
    "hp_configure": (c_int32, [POINTER(_Config)]),
    "hp_version": (c_uint32, []),
    "hp_version_string": (c_char_p, []),
}


def _load() -> ctypes.CDLL:
    name = os.environ.get("HOSTPIN_LIBRARY") or "libhostpin.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError("hostpin: cannot load %s (%s). Install libhostpin where the loader looks, or name its file "
                          "in the environment variable HOSTPIN_LIBRARY." % (name, error)) from error
    for function, (result, arguments) in _FUNCTIONS.items():
        try:
            symbol = getattr(library, function)
        except AttributeError:
            raise ImportError("hostpin: %s has no function %s: it is not libhostpin, or an older one."
                              % (name, function)) from None
        symbol.restype = result
        symbol.argtypes = arguments
    return library


lib = _load()


# ---- Errors ----------------------------------------------------------------------------------------------------------


class Error(RuntimeError):
    """What the library reported, in its words; `status` is its code, `native` the vendor's (0: no driver was asked)."""

    def __init__(self, text: str, status: int, native: int) -> None:
        super().__init__(text)
        self.status = status
        self.native = native

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (str(self), self.status, self.native)


class InvalidError(Error, ValueError):
    """An argument; the text names it and its value."""


class OutOfMemoryError(Error, MemoryError):
    """The library could not allocate."""


class TimedOutError(Error, TimeoutError):
    """The deadline passed; the work goes on."""

    def __str__(self) -> str:
        return str(self.args[0])


_ERRORS: Dict[int, Type[Error]] = {
    Status.E_INVALID: InvalidError,
    Status.E_EXISTS: InvalidError,
    Status.E_NO_BOUNDARY: InvalidError,
    Status.E_NO_MEMORY: OutOfMemoryError,
    Status.E_TIMEOUT: TimedOutError,
}


def _last_text() -> str:
    return str(lib.hp_last_error().decode("utf-8", "replace"))


def _error(code: int) -> Error:
    """The exception for what the library's last call in this thread returned."""
    text, native = _last_text(), lib.hp_last_native_error()
    status = Status(code) if code in Status.__members__.values() else code
    return _ERRORS.get(code, Error)(text, status, native)


def _check(code: int) -> Status:
    if code < 0:
        raise _error(code)
    return Status(code)


def _call(results: List[int], function: Any, *arguments: Any) -> None:
    """Appends what `function` returns to `results`. Ctrl-C is raised when a call returns to the interpreter, and would
    hide the result there; what extend() and map() do is part of one call."""
    results.extend(map(function, *zip(arguments)))


def _unsigned(value: Any, what: str, bits: int = 64) -> int:
    """`value`, which ctypes would otherwise cut to its size without a word."""
    number: int = operator.index(value)
    if not 0 <= number < 1 << bits:
        raise ValueError("%s is %d: not a number of %d bits without sign" % (what, number, bits))
    return number


def _nanoseconds(seconds: Optional[float]) -> int:
    """None, and what does not fit, is without limit."""
    return (1 << 64) - 1 if seconds is None or seconds >= 1 << 34 else max(int(seconds * 1e9), 0)


# ---- Memory of Python objects ----------------------------------------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    """Python's own Py_buffer. Objects that may only be read do not give their address to ctypes in another way."""

    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", c_void_p), ("shape", c_void_p),
                ("strides", c_void_p), ("suboffsets", c_void_p), ("internal", c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None
_keep_for_ever = ctypes.pythonapi.Py_IncRef
_keep_for_ever.argtypes = [ctypes.py_object]
_keep_for_ever.restype = None

_ANY_CONTIGUOUS = 0x98  # PyBUF_ANY_CONTIGUOUS


class _Memory:
    """Where the bytes of an object are; they stay there until `let_go`."""

    def __init__(self, buffer: Any) -> None:
        self.readonly = False
        self.registered = False
        self._owners: Tuple[Any, ...] = ()
        self._ends = [True]  # taken by the one call of end() that does the work
        if callable(getattr(buffer, "data_ptr", None)):
            self._of_tensor(buffer)
        elif isinstance(getattr(buffer, "buf", None), memoryview):
            self._of_view(memoryview(buffer.buf), buffer)
        else:
            self._of_buffer(buffer)

    def _of_tensor(self, tensor: Any) -> None:
        device = getattr(getattr(tensor, "device", None), "type", "cpu")
        if device != "cpu":
            raise ValueError("the tensor is on device %r: only host memory can be pinned" % device)
        if not getattr(tensor, "is_contiguous", lambda: True)():
            raise ValueError("the tensor is not contiguous: pin the one that it is a view of, or its untyped_storage()")
        self.address = int(tensor.data_ptr())
        self.nbytes = int(tensor.nbytes() if callable(tensor.nbytes) else tensor.nbytes)  # of a storage: a method
        storage = getattr(tensor, "untyped_storage", None)  # lives on if the tensor is given another one
        self._owners = (tensor, storage() if callable(storage) else None)

    def _of_buffer(self, buffer: Any) -> None:
        try:
            view = memoryview(buffer)
        except (TypeError, ValueError):  # numpy has types, such as dates, that are not part of the buffer protocol
            if not hasattr(buffer, "__array_interface__"):
                raise
            self._of_array(buffer)
        else:
            self._of_view(view, buffer)

    def _of_view(self, view: memoryview, owner: Any) -> None:
        raw = _PyBuffer()
        _get_buffer(view, ctypes.byref(raw), _ANY_CONTIGUOUS)
        self.address = int(raw.buf or 0)
        self.nbytes = int(raw.len)
        self.readonly = bool(raw.readonly)
        _release_buffer(ctypes.byref(raw))
        self._owners = (view, owner)

    def _of_array(self, array: Any) -> None:
        interface = array.__array_interface__
        if interface.get("strides") is not None:
            raise ValueError("the array is not contiguous: pin the one that it is a view of")
        self.address, self.readonly = interface["data"]
        self.nbytes = int(interface["typestr"][2:].split("[")[0])
        for length in interface["shape"]:
            self.nbytes *= length
        self._owners = (array,)

    @property
    def held(self) -> bool:
        return bool(self._owners)

    def flags(self, flags: int) -> int:
        return _unsigned(flags, "flags", 32) | (Register.READONLY if self.readonly else 0)

    def ranges(self, ranges: Optional[Iterable[Tuple[int, int]]]) -> ctypes.Array[_Range]:
        """An array of `ranges`, or of one range that is all of the memory."""
        pairs = [(0, self.nbytes)] if ranges is None else list(ranges)
        array = (_Range * len(pairs))()
        for index, (start, end) in enumerate(pairs):
            if end > self.nbytes:
                raise ValueError("range %d ends at %d, beyond the %d bytes of the buffer" % (index, end, self.nbytes))
            array[index].start = _unsigned(start, "start of range %d" % index)
            array[index].end = _unsigned(end, "end of range %d" % index)
        return array

    def register(self, flags: int, ranges: Optional[Iterable[Tuple[int, int]]]) -> Status:
        flags = self.flags(flags)
        array = None if ranges is None else self.ranges(ranges)
        _in_place.add(self)
        results: List[int] = []
        try:
            if array is None:
                _call(results, lib.hp_register, self.address, self.nbytes, flags)
            else:
                _call(results, lib.hp_register_ranges, self.address, array, len(array), flags)
        finally:
            # After PAGEABLE and FOREIGN nothing is to be ended. Doing it all the same could end another one's
            # registration that was made with the same address since.
            self.registered = results in ([Status.OK], [Status.E_STUCK])
        return _check(results[0])

    def end(self) -> None:
        """Ends the registration if there is one, once, and lets the memory go. Raises if the driver keeps the pages."""
        try:
            self._ends.pop()
        except IndexError:
            return
        results: List[int] = []
        try:
            if self.registered:
                _call(results, lib.hp_unregister, self.address)
        finally:
            # Not found: ended by unregister_all(). In a forked child there is nothing to end.
            if results and results[0] in (Status.OK, Status.E_NOT_FOUND, Status.E_FORKED):
                self.registered = False
            if self.registered:
                self._ends.append(True)
            else:
                self.let_go()
        if self.registered:
            raise _error(results[0])

    def let_go(self) -> None:
        _in_place.discard(self)
        owners, self._owners = self._owners, ()
        if owners and isinstance(owners[0], memoryview):
            owners[0].release()


# All memory that has been given to the library. What the driver does not release stays in here, and so in place, also
# when the interpreter frees its objects at exit: pinned memory must not be unmapped.
_in_place: Set[_Memory] = set()
_keep_for_ever(_in_place)


def _collect(memory: _Memory) -> None:
    try:
        memory.end()
    except Error:
        pass  # stuck, which the library has logged: the memory stays in _in_place


# ---- Pinning ---------------------------------------------------------------------------------------------------------

_Pinned = TypeVar("_Pinned", bound="Pinned")


class Pinned:
    """A buffer that is pinned, or was meant to be: see `status`. Made by `pin`; a context manager."""

    def __init__(self, buffer: Any, flags: int = 0, *, ranges: Optional[Iterable[Tuple[int, int]]] = None) -> None:
        memory = self._memory = _Memory(buffer)
        try:
            self._status = memory.register(flags, ranges)
            self._reason = "" if self._status == Status.OK else _last_text()
        except BaseException:
            _collect(memory)  # not left to reference counts: the traceback keeps them
            raise
        weakref.finalize(self, _collect, memory).atexit = False

    @property
    def address(self) -> int:
        """Host address of the first byte."""
        return self._memory.address

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._memory.nbytes

    @property
    def status(self) -> Optional[Status]:
        """`Status.OK`: pinned; PAGEABLE: not pinned, `reason` says why; FOREIGN: other code had pinned it already.
        None: a `Job` that is not done yet."""
        return self._status

    @property
    def reason(self) -> str:
        """Why the status is not OK."""
        return self._reason

    @property
    def closed(self) -> bool:
        """Whether the registration has ended and the buffer is let go."""
        return not self._memory.held

    def close(self) -> None:
        """End the registration and let the buffer go; does nothing when called again. If the driver does not release
        the pages, that is an `Error` with status E_STUCK, the buffer stays held, and another close() tries again."""
        self._memory.end()

    def device_pointer(self, offset: int = 0) -> int:
        """The address by which device code reaches the byte at `offset`: see `device_pointer`."""
        if not 0 <= offset < self.nbytes:
            raise ValueError("offset is %d: the buffer has %d bytes" % (offset, self.nbytes))
        return device_pointer(self.address + offset)

    def __enter__(self: _Pinned) -> _Pinned:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "running" if self.status is None else self.status.name
        return "<hostpin.%s of %d bytes at 0x%x: %s>" % (type(self).__name__, self.nbytes, self.address, state)


class Progress(NamedTuple):
    """How far a `Job` is."""

    done: bool
    status: Optional[int]  # Status of the ended job, None while it runs
    bytes_done: int
    bytes_total: int
    pinned_bytes: int
    elapsed: float  # seconds


# Waits are cut into pieces, between which the interpreter can react to signals.
_PIECE = 0.1


class Job(Pinned):
    """A buffer that is being pinned in the background, chunk by chunk. What is pinned can be used at once.

    `keep`: keep what is pinned when the driver refuses a chunk. `chunk_bytes`: the longest driver call (0: 1 GiB).
    `pause`: seconds between two of them. The buffer is held until the job is over and closed; a job that is closed or
    garbage collected while it runs is cancelled.

    >>> pool = bytearray(8 << 20)
    >>> with Job(pool, chunk_bytes=2 << 20) as job:
    ...     status = job.wait()
    ...     assert status == job.status and job.poll().bytes_done in (0, job.poll().bytes_total)
    """

    def __init__(self, buffer: Any, flags: int = 0, *, ranges: Optional[Iterable[Tuple[int, int]]] = None,
                 keep: bool = False, chunk_bytes: int = 0, pause: float = 0.0, prefault_threads: int = 0) -> None:
        options = _JobOptions(keep=int(keep), chunk_bytes=_unsigned(chunk_bytes, "chunk_bytes"),
                              pause_ns=_nanoseconds(pause),
                              prefault_threads=_unsigned(prefault_threads, "prefault_threads", 32))
        memory = self._memory = _Memory(buffer)
        self._handle = c_void_p()
        try:
            array = memory.ranges(ranges)
            _in_place.add(memory)
            _check(lib.hp_register_start(memory.address, array, len(array), memory.flags(flags), ctypes.byref(options),
                                         ctypes.byref(self._handle)))
        except BaseException:
            if self._handle:
                _collect_job(self._handle, memory)
            else:
                memory.let_go()
            raise
        # The handle is freed when nobody can be inside a method of this object any more.
        weakref.finalize(self, _collect_job, self._handle, memory).atexit = False

    def poll(self) -> Progress:
        """How far is it? Never waits."""
        return _poll(self._handle)

    def wait(self, timeout: Optional[float] = None) -> Status:
        """Wait for the end, `timeout` seconds at most. Returns OK, PAGEABLE or FOREIGN; raises `TimedOutError`, and
        `Error` for everything else, E_CANCELLED for instance."""
        return _check(self._wait(timeout))

    def cancel(self) -> None:
        """Ask it to stop, which takes effect within one chunk; what it has pinned is released. Does not wait."""
        _check(lib.hp_job_cancel(self._handle))

    @property
    def status(self) -> Optional[Status]:
        """As of `Pinned`; None while the job runs or when it has failed, see poll()."""
        status = self.poll().status
        return Status(status) if status is not None and status >= 0 else None

    @property
    def reason(self) -> str:
        """Why the status is not OK; empty while the job runs."""
        return "" if lib.hp_job_wait(self._handle, 0) in (Status.OK, Status.E_TIMEOUT) else _last_text()

    def close(self) -> None:
        """Cancel it if it runs, wait until it is over, end the registration and let the buffer go."""
        if not self.closed:
            lib.hp_job_cancel(self._handle)
            self._wait(None)
            _end_job(self._handle, self._memory)

    def _wait(self, timeout: Optional[float]) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _PIECE if deadline is None else min(_PIECE, deadline - time.monotonic())
            code = int(lib.hp_job_wait(self._handle, _nanoseconds(left)))
            if code != Status.E_TIMEOUT or left < _PIECE:
                return code


def _poll(handle: c_void_p) -> Progress:
    progress = _Progress()
    _check(lib.hp_job_poll(handle, ctypes.byref(progress)))
    done = progress.state == JobState.DONE
    return Progress(done, progress.status if done else None, progress.bytes_done, progress.bytes_total,
                    progress.pinned_bytes, progress.elapsed_ns / 1e9)


def _end_job(handle: c_void_p, memory: _Memory) -> None:
    """Ends what a job that is over has registered. In a forked child nothing is."""
    progress = _Progress()
    if lib.hp_job_poll(handle, ctypes.byref(progress)) == Status.OK:
        memory.registered = progress.status in (Status.OK, Status.E_STUCK) or progress.pinned_bytes > 0
    memory.end()


def _collect_job(handle: c_void_p, memory: _Memory) -> None:
    """Nobody has the job any more: cancels it, and holds its memory until it is over."""

    def finish() -> None:
        lib.hp_job_wait(handle, _nanoseconds(None))
        try:
            _end_job(handle, memory)
        except Error:
            pass  # stuck, as in _collect()
        lib.hp_job_free(handle)

    lib.hp_job_cancel(handle)
    if lib.hp_job_wait(handle, 0) != Status.E_TIMEOUT:
        finish()
    else:
        # Not a threading.Thread: this may be the garbage collector, at work while threading holds its own lock.
        _thread.start_new_thread(finish, ())


def pin(buffer: Any, flags: int = 0, *, ranges: Optional[Iterable[Tuple[int, int]]] = None,
        progress: Union[bool, Callable[[Progress], Any]] = False) -> Pinned:
    """Pin `buffer` where it lies.

    `flags` are bits of `Register`; READONLY is added for a buffer that is read-only. `ranges`: (start, end) in bytes,
    each pinned as a segment of its own, for instance those of `split_ranges`. `progress`: True shows a bar, by tqdm
    where that is installed, else a line on a terminal; a function is called with a `Progress` several times a second.

    >>> with pin(b"a read-only buffer") as pinned:
    ...     pinned.nbytes
    18
    >>> seen = []
    >>> pin(bytearray(4096), progress=seen.append).close()
    >>> seen[-1].done
    True
    """
    if not progress:
        return Pinned(buffer, flags, ranges=ranges)
    show = progress if callable(progress) else _bar()
    job = Job(buffer, flags, ranges=ranges)
    try:
        while True:
            code = job._wait(_PIECE)
            show(job.poll())
            if code != Status.E_TIMEOUT:
                job.wait()
                return job
    except BaseException:
        job.close()
        raise


def _bar() -> Callable[[Progress], Any]:
    """Shows progress to a person."""
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        return _line if sys.stderr.isatty() else lambda progress: None
    bars: List[Any] = []

    def show(progress: Progress) -> None:
        if not bars:
            bars.append(tqdm(total=progress.bytes_total, desc="pinning", unit="B", unit_scale=True, unit_divisor=1024))
        bars[0].update(progress.bytes_done - bars[0].n)
        if progress.done:
            bars[0].close()

    return show


def _line(progress: Progress) -> None:
    percent = 100 * progress.bytes_done // max(progress.bytes_total, 1)
    end = "\n" if progress.done else ""
    sys.stderr.write("\rpinning %3d %% of %.1f GiB%s" % (percent, progress.bytes_total / 2**30, end))
    sys.stderr.flush()


def register(address: int, nbytes: int, flags: int = 0) -> Status:
    """Pin memory by its address, which nothing here keeps alive: for memory of C code. After OK, `unregister` it once.

    >>> memory = ctypes.create_string_buffer(4096)
    >>> if register(ctypes.addressof(memory), len(memory)) == Status.OK:
    ...     unregister(ctypes.addressof(memory))
    """
    return _check(lib.hp_register(_unsigned(address, "address"), _unsigned(nbytes, "nbytes"),
                                  _unsigned(flags, "flags", 32)))


def unregister(address: int) -> None:
    """End the registration whose first byte is at `address`."""
    _check(lib.hp_unregister(_unsigned(address, "address")))


def unregister_all(timeout: Optional[float] = None) -> None:
    """End every registration of the process, as for an orderly shutdown; after `timeout` seconds a `TimedOutError`."""
    _check(lib.hp_unregister_all(_nanoseconds(timeout)))


# ---- Splitting -------------------------------------------------------------------------------------------------------


def split_ranges(tensor_sizes: Sequence[int], num_blocks: int, total_size: int, max_chunk_bytes: int = 0,
                 page_size: int = 0) -> List[Tuple[int, int]]:
    """Cut a pool of tensors that lie back to back, each of `num_blocks` equal blocks, into ranges of at most
    `max_chunk_bytes` (0: 64 GiB), so that no cut goes through a block. 0 is the system's page size.

    >>> split_ranges([65536, 65536], num_blocks=4, total_size=131072, max_chunk_bytes=50000, page_size=4096)
    [(0, 49152), (49152, 98304), (98304, 131072)]
    >>> split_ranges([65536], num_blocks=1, total_size=65536, max_chunk_bytes=50000, page_size=4096)
    Traceback (most recent call last):
        ...
    hostpin.InvalidError: hp_split_ranges: no legal cut within max_chunk_bytes 50000 after offset 0; the nearest one \
is at offset 65536, 65536 bytes further
    """
    sizes = (c_uint64 * len(tensor_sizes))(*[_unsigned(size, "tensor %d" % i) for i, size in enumerate(tensor_sizes)])
    rest = [_unsigned(num_blocks, "num_blocks"), _unsigned(total_size, "total_size"),
            _unsigned(max_chunk_bytes, "max_chunk_bytes"), _unsigned(page_size, "page_size")]
    count = c_size_t()
    _check(lib.hp_split_ranges(sizes, len(sizes), *rest, None, 0, ctypes.byref(count)))
    ranges = (_Range * count.value)()
    _check(lib.hp_split_ranges(sizes, len(sizes), *rest, ranges, len(ranges), ctypes.byref(count)))
    return [(r.start, r.end) for r in ranges]


def split_copies(copies: Iterable[Tuple[int, int, int]]) -> List[Tuple[int, int, int]]:
    """Cut copies, each (host address, other address, bytes), at segment borders, so that none lies across two segments.

    >>> split_copies([(0x10000, 2**63 + 4096, 100)])
    [(65536, 9223372036854779904, 100)]
    """
    given = [_Copy(*(_unsigned(number, "copy %d" % i) for number in copy)) for i, copy in enumerate(copies)]
    source = (_Copy * len(given))(*given)
    count = c_size_t(len(given))
    while True:
        pieces = (_Copy * count.value)()
        code = lib.hp_split_copies(source, len(source), pieces, len(pieces), ctypes.byref(count))
        if code != Status.E_TOO_SMALL:  # again also when a segment was added meanwhile
            _check(code)
            return [(piece.host or 0, piece.other or 0, piece.bytes) for piece in pieces[:count.value]]


# ---- Asking ----------------------------------------------------------------------------------------------------------


class Region(NamedTuple):
    """What `query` knows of memory and of the segment that holds its first byte; without one, zeros."""

    pinned: bool  # all of it, by this library or, as far as it knows, by others
    backend: int
    start: int
    end: int
    flags: Register
    references: int
    one_segment: bool  # all of it lies in this segment: copy it in one piece
    host_address: bool  # device code may use the host address
    stuck: bool
    foreign: bool


def query(buffer: Any, nbytes: Optional[int] = None) -> Region:
    """Is all of `buffer` pinned, or `nbytes` from an address, and in which segment does it begin? Asks no driver.

    >>> query(0x10000, 4096).pinned
    False
    """
    if isinstance(buffer, numbers.Integral):  # also numpy's, which have a buffer too
        if nbytes is None:
            raise TypeError("query() of an address needs nbytes")
        address = _unsigned(buffer, "address")
    else:
        memory = _Memory(buffer)
        memory.let_go()
        address, nbytes = memory.address, memory.nbytes if nbytes is None else nbytes
    region = _Region()
    status = _check(lib.hp_query(address, _unsigned(nbytes, "nbytes"), ctypes.byref(region)))
    return Region(status == Status.OK, region.backend, region.start, region.end, Register(region.flags),
                  region.references, bool(region.one_segment), bool(region.host_address), bool(region.stuck),
                  bool(region.foreign))


def is_pinned(buffer: Any, nbytes: Optional[int] = None) -> bool:
    """Whether all of `buffer`, or of `nbytes` from an address, is pinned.

    >>> is_pinned(bytearray(4096))
    False
    """
    return query(buffer, nbytes).pinned


def device_pointer(address: int) -> int:
    """The address by which device code reaches the pinned byte at host address `address`; valid in its segment only."""
    pointer = c_void_p()
    _check(lib.hp_device_pointer(_unsigned(address, "address"), ctypes.byref(pointer)))
    return pointer.value or 0


class BackendInfo(NamedTuple):
    """The backend that is used, and why not the others."""

    backend: int
    name: str
    capabilities: Capability
    device_count: int
    runtime_version: int
    driver_version: int
    max_segment: int
    runtime_file: str
    cuda_reason: str
    hip_reason: str
    level_zero_reason: str


def backend() -> BackendInfo:
    """Which backend is used. The first call makes the choice, and may load the vendor's libraries.

    >>> backend().name in ("cuda", "hip", "level_zero", "none")
    True
    """
    info = _BackendInfo()
    _check(lib.hp_get_backend(ctypes.byref(info)))
    return BackendInfo(info.backend, info.name.decode(), Capability(info.capabilities), info.device_count,
                       info.runtime_version, info.driver_version, info.max_segment, os.fsdecode(info.runtime_file),
                       os.fsdecode(info.cuda_reason), os.fsdecode(info.hip_reason), os.fsdecode(info.level_zero_reason))


def stats() -> Stats:
    """The counters of this process.

    >>> stats().stuck_segments
    0
    """
    result = Stats()
    _check(lib.hp_get_stats(ctypes.byref(result)))
    return result


def version() -> str:
    """The library's version.

    >>> version().split(".")[0]
    '1'
    """
    return str(lib.hp_version_string().decode())


# ---- Logging and configuration ---------------------------------------------------------------------------------------

_log_functions: List[Any] = []  # the library may still be inside an old one

# Callbacks into the interpreter end before it does.
atexit.register(lambda: lib.hp_set_log_callback(_LogFunction(0), None))


def set_log_callback(function: Optional[Callable[[LogLevel, str], Any]]) -> None:
    """Receive log lines as function(level, text) instead of on stderr; None: back to stderr.

    It is called from any thread, also from threads of the library, until the interpreter exits. An exception from it
    goes to sys.unraisablehook, like one from a destructor.

    >>> lines = []
    >>> set_log_callback(lambda level, text: lines.append((level.name, text)))
    >>> set_log_callback(None)
    """
    if function is None:
        lib.hp_set_log_callback(_LogFunction(0), None)
        return
    receive = function

    def call(level: int, text: bytes, user: Any) -> None:
        receive(LogLevel(level), text.decode("utf-8", "replace"))

    _log_functions.append(_LogFunction(call))
    lib.hp_set_log_callback(_log_functions[-1], None)


def configure(*, backend: int = 0, log_level: int = 0, ze_memmap: bool = False, max_segment: int = 0,
              budget_bytes: int = 0, budget_percent: int = 0, prefault_threads: int = 0, cudart: Optional[_Path] = None,
              cuda_driver: Optional[_Path] = None, amdhip: Optional[_Path] = None,
              ze_loader: Optional[_Path] = None) -> None:
    """Set what the environment does not, before the first use: a `Backend`, a `LogLevel`, and the other fields of
    hp_config, which hostpin.h describes. 0 and None are the defaults.

    >>> configure(budget_percent=200)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
        ...
    hostpin.InvalidError: whether it is too late or out of range
    """
    files = [None if file is None else os.fsencode(file) for file in (cudart, cuda_driver, amdhip, ze_loader)]
    config = _Config(0, _unsigned(backend, "backend", 31), _unsigned(log_level, "log_level", 31), int(ze_memmap),
                     _unsigned(max_segment, "max_segment"), _unsigned(budget_bytes, "budget_bytes"),
                     _unsigned(budget_percent, "budget_percent", 32),
                     _unsigned(prefault_threads, "prefault_threads", 32), *files)
    _check(lib.hp_configure(ctypes.byref(config)))
