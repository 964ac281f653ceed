"""The simulated drivers of libhostpin-sim, steered and asked from Python: see hostpin-sim.h."""
import ctypes
import os

VARIANT = os.environ["HOSTPIN_TEST_VARIANT"]
PINS = VARIANT != "none"
VENDOR = 1 if VARIANT.startswith("amdhip") else 0

control = ctypes.CDLL(os.environ["HOSTPIN_TEST_SIMULATION"])
for name, result, arguments in [
    ("hps_script", ctypes.c_int32, [ctypes.c_char_p]),
    ("hps_reset", None, []),
    ("hps_calls", ctypes.c_uint64, [ctypes.c_char_p]),
    ("hps_block", None, [ctypes.c_char_p]),
    ("hps_unblock", None, [ctypes.c_char_p]),
    ("hps_wait_blocked", ctypes.c_int32, [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32]),
    ("hps_pinned", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_size_t]),
    ("hps_live_registrations", ctypes.c_size_t, []),
    ("hps_pin_foreign", ctypes.c_int32, [ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t]),
    ("hps_unpin_foreign", ctypes.c_int32, [ctypes.c_int32, ctypes.c_void_p]),
]:
    function = getattr(control, name)
    function.restype, function.argtypes = result, arguments


def script(text):
    assert control.hps_script(text.encode()) == 0


def calls(what):
    return control.hps_calls(what.encode())


def all_pinned(address, nbytes):
    return control.hps_pinned(address, nbytes) == 2


def none_pinned(address, nbytes):
    return control.hps_pinned(address, nbytes) == 0


def block_registers():
    control.hps_block(b"register")


def unblock_registers():
    control.hps_unblock(b"register")


def wait_until_one_is_blocked():
    assert control.hps_wait_blocked(b"register", 1, 30000) == 0
