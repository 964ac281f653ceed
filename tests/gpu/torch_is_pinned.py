"""Does PyTorch see memory as pinned that libhostpin has pinned?

HOSTPIN_LIBRARY names libhostpin (default libhostpin.so.1). Prints a Markdown table. Exit status: 0 all as expected, 1 something
is not, 77 torch is not installed or sees no device.
"""

import ctypes
import mmap
import os
import sys

MIB = 1 << 20


def load_hostpin():
    library = ctypes.CDLL(os.environ.get("HOSTPIN_LIBRARY", "libhostpin.so.1"))
    library.hp_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
    library.hp_unregister.argtypes = [ctypes.c_void_p]
    library.hp_last_error.restype = ctypes.c_char_p
    return library


def questions(torch, hostpin):
    """(what is asked, what is expected, what came) in turn."""
    mapping = mmap.mmap(-1, 4 * MIB)  # outlives the tensor, which is a view of it
    tensor = torch.frombuffer(mapping, dtype=torch.uint8)
    tensor.copy_(torch.arange(4 * MIB, dtype=torch.int32) % 251)
    yield "is_pinned() before", False, tensor.is_pinned()
    yield "hp_register", 0, hostpin.hp_register(tensor.data_ptr(), tensor.numel(), 0)
    yield "is_pinned() after", True, tensor.is_pinned()
    yield "is_pinned() of a slice", True, tensor[MIB + 100:2 * MIB].is_pinned()
    device = tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    yield "a non-blocking copy there and back is equal", True, bool(torch.equal(device.cpu(), tensor))
    yield "hp_unregister", 0, hostpin.hp_unregister(tensor.data_ptr())
    yield "is_pinned() at the end", False, tensor.is_pinned()

    pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    yield "hp_register of a tensor that torch pinned", 2, hostpin.hp_register(pinned.data_ptr(), MIB, 0)
    yield "hp_unregister of it", 0, hostpin.hp_unregister(pinned.data_ptr())
    yield "is_pinned() of it", True, pinned.is_pinned()

    yield "hp_register of memory that is not mapped", 1, hostpin.hp_register(1 << 46, MIB, 0)
    yield "torch works after that", 3.0, float((torch.ones(2, device="cuda") + 0.5).sum())


def main():
    try:
        import torch
    except ImportError:
        print("torch is not installed")
        return 77
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no CUDA device")
        return 77
    torch.cuda.init()
    good = True
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}\n\n| behaviour | expected | answer |\n| --- | --- | --- |")
    for what, expected, came in questions(torch, load_hostpin()):
        right = came == expected
        good = good and right
        print(f"| {what} | {expected} | {came if right else f'**{came}**'} |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
