"""Runs Python on an installed libhostpin: without a device and on simulated CUDA and HIP runtimes.

The library reads the environment once, so each variant is a process of its own.
"""
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODULES = SOURCE / "examples" / "python"
DATA = SOURCE / "tests" / "data"
PREFIX = pathlib.Path(os.environ["HOSTPIN_PREFIX"])
HEADER = PREFIX / "include" / "hostpin.h"
LIBRARY = next(PREFIX.rglob("libhostpin.so.1"))
SIMULATION = next(PREFIX.rglob("libhostpin-sim.so.0"))
RUNTIMES = next(PREFIX.rglob("hostpin-sim/cudart12")).parent

VARIANTS = {
    "none": {"HOSTPIN_BACKEND": "none"},
    "cudart12": {"HOSTPIN_BACKEND": "cuda", "HOSTPIN_CUDART": str(RUNTIMES / "cudart12" / "libcudart.so.12")},
    "amdhip6": {"HOSTPIN_BACKEND": "hip", "HOSTPIN_AMDHIP": str(RUNTIMES / "amdhip6" / "libamdhip64.so.6")},
}


def run(arguments, variant, **variables):
    """What `python3 ARGUMENTS...` did."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTPIN_")}
    environment.update(VARIANTS[variant], HOSTPIN_TEST_VARIANT=variant, HOSTPIN_TEST_SIMULATION=str(SIMULATION),
                       HOSTPIN_TEST_DATA=str(DATA), LD_LIBRARY_PATH=str(LIBRARY.parent), PYTHONPATH=str(MODULES),
                       PYTHONDONTWRITEBYTECODE="1")
    environment.update(variables)
    return subprocess.run([sys.executable, *map(str, arguments)], env=environment, capture_output=True, text=True,
                          timeout=120)


def run_cases(file, variant, folder):
    """Runs the tests in `file`, of which none may be skipped; how many there are."""
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, "-W", "error",
                pathlib.Path(__file__).with_name(file)], variant)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"\d+ passed in .*", summary), summary
    return int(summary.split()[0])
