"""Python's exit with a live registration, as ctypes users have it: the interpreter tears itself down around a library that
stays, over a runtime that ends the process when it is called too late.

    exit_of_python.py LIBRARY RUNTIME
"""

import os
import subprocess
import sys

PROGRAM = """
import ctypes, sys, threading
hostpin = ctypes.CDLL(sys.argv[1], use_errno=True)
hostpin.hp_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
hostpin.hp_unregister.argtypes = [ctypes.c_void_p]
memory = ctypes.create_string_buffer(1 << 20)
assert hostpin.hp_register(ctypes.addressof(memory), len(memory), 0x10000) == 0
"""

# How a program goes on from there, and the status that it ends with.
ENDINGS = {
    "end of the script": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("sys.excepthook = lambda *unused: None; raise RuntimeError", 1),
    "os._exit": ("import os; os._exit(4)", 4),
    "the buffer goes first": ("del memory", 0),
    "exit in a thread": ("threading.Thread(target=sys.exit).start()", 0),
    "atexit unregisters": ("import atexit, os; "
                           "atexit.register(lambda: hostpin.hp_unregister(ctypes.addressof(memory)) and os._exit(9))", 0),
    "a finalizer unregisters": ("import os, weakref; address = ctypes.addressof(memory); "
                                "weakref.finalize(memory, lambda: hostpin.hp_unregister(address) and os._exit(9))", 0),
    "the library's handle is closed": ("import _ctypes; _ctypes.dlclose(hostpin._handle)", 0),
    "a callback is set": ("keep = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)(lambda *a: None); "
                          "hostpin.hp_set_log_callback(keep, None)", 0),
}


def run(library, runtime, ending):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOSTPIN_")} | {"HOSTPIN_CUDART": runtime}
    return subprocess.run([sys.executable, "-c", PROGRAM + ending, library], env=environment, capture_output=True, timeout=120)


def main():
    library, runtime = sys.argv[1:]
    for name, (ending, status) in ENDINGS.items():
        for _ in range(3):
            done = run(library, runtime, ending)
            assert done.returncode == status, f"{name}: {done}"
            assert done.stdout + done.stderr == b"", f"{name}: {done}"
    print(len(ENDINGS), "ways to end, 3 times each")


if __name__ == "__main__":
    main()
