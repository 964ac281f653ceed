"""hostpin.py, and the program in which several processes pin one pool, on an installed library."""
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from variants import LIBRARY, MODULES, VARIANTS, run, run_cases

EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
EACH_RUNTIME = pytest.mark.parametrize("variant", ["cudart12", "amdhip6"])


def run_script(variant, text, *arguments, **variables):
    return run(["-W", "error", "-c", textwrap.dedent(text), *arguments], variant, **variables)


def vendor_calls(log, name):
    """The process ids of the calls to register, or unregister, memory that the driver has answered with success."""
    lines = [line.split(maxsplit=7) for line in log.read_text().splitlines()] if log.exists() else []
    return [int(line[0]) for line in lines if line[2] in ("cuda" + name, "hip" + name) and line[6] == "0"]


@EACH_VARIANT
def test_within_a_process(variant, tmp_path):
    assert run_cases("python_cases.py", variant, tmp_path) >= 87


def test_splitting(tmp_path):
    assert run_cases("python_split_cases.py", "none", tmp_path) >= 3


@EACH_VARIANT
@pytest.mark.parametrize("module, examples", [("hostpin.py", 20), ("hostpin_vllm.py", 2)])
def test_examples_in_the_documentation(module, examples, variant):
    done = run(["-m", "doctest", "-v", MODULES / module], variant)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"^(\d+) passed", done.stdout, flags=re.M)[1]) >= examples


@EACH_VARIANT
def test_the_program_in_the_readme(variant):
    program, = re.findall(r"^```python\n(.*?)^```$", (MODULES / "README.md").read_text(), flags=re.M | re.S)
    done = run_script(variant, program, HOSTPIN_LOG="off")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PAGEABLE no GPU runtime" if variant == "none" else "OK ")


# ---- Exit ------------------------------------------------------------------------------------------------------------


@EACH_VARIANT
def test_exit_releases_nothing_and_leaves_the_memory_in_place(variant, tmp_path):
    # on_exit() calls a C function with the exit code and a pointer when the interpreter is gone: dprintf(1, text).
    # Whether the interpreter frees all its objects before that depends on much, so this is done here.
    done = run_script(variant, """
        import atexit, ctypes, gc, mmap, sys, weakref

        @atexit.register  # first, and so called last
        def free_everything():
            global memory, pinned
            pin(b" still here")
            weakref.finalize._registry.clear()
            vars(hostpin).clear()
            del memory, pinned
            gc.collect()

        import hostpin
        libc = ctypes.CDLL(None)

        def pin(text):
            global memory, pinned
            memory = mmap.mmap(-1, 1 << 20)
            memory.write(text)
            pinned = hostpin.pin(memory)
            libc.on_exit(libc.dprintf, ctypes.c_void_p(pinned.address))

        pin(b" and here")
        print(pinned.status.name, end="")
        sys.exit(1)
        """, HOSTPIN_SIM=f"log={tmp_path / 'log'}", HOSTPIN_LOG="off")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == ("PAGEABLE" if variant == "none" else "OK") + " still here and here"
    assert len(vendor_calls(tmp_path / "log", "HostRegister")) == (0 if variant == "none" else 2)
    assert vendor_calls(tmp_path / "log", "HostUnregister") == []


@EACH_VARIANT
@pytest.mark.parametrize("way", ["pass", "sys.exit(0)", "os._exit(0)", "del hostpin", "gc.collect()"])
def test_exit_with_everything_under_way(variant, way):
    done = run_script(variant, """
        import gc, mmap, os, sys, threading
        import hostpin
        hostpin.set_log_callback(lambda level, text: None)
        pinned = hostpin.pin(bytearray(1 << 20))
        cycle = [pinned]
        cycle.append(cycle)
        job = hostpin.Job(mmap.mmap(-1, 64 << 20), chunk_bytes=2 << 20)
        dropped = hostpin.Job(mmap.mmap(-1, 64 << 20), chunk_bytes=2 << 20)
        del dropped
        threading.Thread(target=lambda: hostpin.pin(bytearray(1 << 20)), daemon=True).start()
        """ + way, HOSTPIN_SIM="delay=register:30,exit=abort", HOSTPIN_LOG="debug")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@EACH_VARIANT
def test_the_log_callback_is_not_called_when_the_interpreter_goes(variant):
    done = run_script(variant, """
        import atexit

        @atexit.register  # first, and so called last
        def log_a_line():
            hostpin.pin(bytearray(4096))

        import hostpin
        hostpin.set_log_callback(lambda level, text: print("called"))
        """, HOSTPIN_SIM="fail=register:*:2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("hostpin: warning: ") and done.stderr.count("\n") == 1


# ---- Fork ------------------------------------------------------------------------------------------------------------


@EACH_VARIANT
def test_a_forked_child_is_silent_and_reaches_no_driver(variant, tmp_path):
    done = run_script(variant, """
        import gc, mmap, os, sys
        import hostpin
        memory = mmap.mmap(-1, 1 << 20)
        pinned, collected = hostpin.pin(memory), hostpin.pin(memory)
        job = hostpin.Job(mmap.mmap(-1, 8 << 20))
        job.wait()
        running = hostpin.Job(mmap.mmap(-1, 800 << 20), chunk_bytes=2 << 20, pause=3600.0)
        print(os.getpid(), flush=True)
        child = os.fork()
        if child == 0:
            pinned.close()
            pinned.close()
            job.close()
            running.close()
            del collected, job, running
            gc.collect()
            memory.close()
            assert pinned.closed
            try:
                hostpin.pin(bytearray(4096))
            except hostpin.Error as error:
                assert error.status is hostpin.Status.E_FORKED
                sys.exit(0)
            sys.exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert hostpin.is_pinned(memory) == (pinned.status is hostpin.Status.OK)
        running.close()
        """, HOSTPIN_SIM=f"log={tmp_path / 'log'},fork=abort,exit=abort", HOSTPIN_LOG="error")
    assert (done.returncode, done.stderr) == (0, "")
    if variant != "none":
        calls = vendor_calls(tmp_path / "log", "HostRegister") + vendor_calls(tmp_path / "log", "HostUnregister")
        assert len(calls) > 2 and set(calls) == {int(done.stdout)}


# ---- Loading ---------------------------------------------------------------------------------------------------------


def test_a_library_that_is_missing_is_named():
    done = run_script("none", "import hostpin", LD_LIBRARY_PATH="/nowhere")
    assert done.returncode == 1
    assert re.search(r"^ImportError: hostpin: cannot load libhostpin.so.1 .*HOSTPIN_LIBRARY", done.stderr, flags=re.M)
    done = run_script("none", "import hostpin", HOSTPIN_LIBRARY="/nowhere/libhostpin.so")
    assert re.search(r"^ImportError: hostpin: cannot load /nowhere/libhostpin.so ", done.stderr, flags=re.M)


def test_a_library_that_is_another_one_is_named():
    done = run_script("none", "import hostpin", HOSTPIN_LIBRARY="libc.so.6")
    assert re.search(r"^ImportError: hostpin: libc.so.6 has no function hp_register: ", done.stderr, flags=re.M)


def test_a_library_may_be_named_by_its_file():
    done = run_script("none", "import hostpin; print(hostpin.version())", LD_LIBRARY_PATH="/nowhere",
                      HOSTPIN_LIBRARY=str(LIBRARY))
    assert done.stdout == "1.0.0\n", done.stderr


# ---- Configuration ---------------------------------------------------------------------------------------------------


@EACH_VARIANT
def test_configuration_from_code(variant):
    done = run_script(variant, """
        import sys
        import hostpin
        for fields, kind in [({"budget_percent": 101}, hostpin.InvalidError), ({"budget_bytes": -1}, ValueError),
                             ({"budget": 1}, TypeError), ({"struct_size": 1}, TypeError), ({"reserved": 1}, TypeError)]:
            try:
                hostpin.configure(**fields)
            except kind:
                continue
            sys.exit("taken: %s" % fields)
        hostpin.configure(budget_bytes=8192, log_level=hostpin.LogLevel.OFF, cudart="/nowhere", max_segment=4096)
        try:
            hostpin.pin(bytearray(1 << 20), hostpin.Register.REQUIRED)
        except hostpin.Error as error:
            print(error.status.name)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("E_UNAVAILABLE\n" if variant == "none" else "E_BUDGET\n")


# ---- Installing ------------------------------------------------------------------------------------------------------


def test_pip_installs_it(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(MODULES, source, ignore=shutil.ignore_patterns("__pycache__"))
    source.chmod(0o755)  # setuptools builds in the folder
    done = subprocess.run([sys.executable, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "install",
                           "--no-index", "--no-build-isolation", "--no-deps", "--target", target, source],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(file.name for file in target.glob("*.py")) == ["hostpin.py", "hostpin_vllm.py"]
    done = run_script("none", """
        import importlib.metadata, hostpin, hostpin_vllm
        print(hostpin.__file__, hostpin_vllm.__file__, importlib.metadata.version("hostpin"), hostpin.__version__)
        """, PYTHONPATH=str(target))
    files = [str(target / "hostpin.py"), str(target / "hostpin_vllm.py")]
    assert done.stdout.split() == [*files, "1.0.0", "1.0.0"], done.stderr


# ---- All or none -----------------------------------------------------------------------------------------------------


def rank_lines(done):
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))


@EACH_RUNTIME
def test_all_processes_pin_the_pool(variant, tmp_path):
    log = tmp_path / "log"
    # This driver refuses memory that another process is just pinning.
    done = run([MODULES / "shared_pool.py", "--size", "8"], variant,
               HOSTPIN_SIM=f"log={log},file_lock={tmp_path},delay=register:50")
    assert (done.returncode, done.stderr) == (0, "")
    assert rank_lines(done) == [f"rank {rank}: pinned, as in all others" for rank in range(4)]
    assert len(set(vendor_calls(log, "HostRegister"))) == 4
    assert sorted(vendor_calls(log, "HostRegister")) == sorted(vendor_calls(log, "HostUnregister"))


@EACH_VARIANT
def test_no_process_pins_the_pool_if_none_can(variant):
    done = run([MODULES / "shared_pool.py", "--ranks", "3", "--size", "8"], variant, HOSTPIN_SIM="max_total=1M",
               HOSTPIN_LOG="off")
    assert done.returncode == 0
    assert rank_lines(done) == [f"rank {rank}: not pinned, as in all others" for rank in range(3)]
    assert done.stderr.count("could not pin") == 3


def run_with_one_rank_that(does, variant, tmp_path):
    """Runs the program with four processes, of which the last one does something else in place of pinning."""
    program = tmp_path / "one_differs.py"
    program.write_text(textwrap.dedent(f"""
        import os, signal
        import hostpin, shared_pool

        pin, run_rank = hostpin.pin, shared_pool.run_rank

        def differ(number, *arguments):
            if number == 3:
                hostpin.pin = lambda *arguments: {does}
            run_rank(number, *arguments)

        if __name__ == "__main__":
            shared_pool.run_rank = differ
            raise SystemExit(0 if shared_pool.run(4, 8 << 20) else 3)
        """))
    log = tmp_path / "log"
    done = run([program], variant, HOSTPIN_SIM=f"log={log},file_lock={tmp_path}", HOSTPIN_LOG="off")
    assert sorted(vendor_calls(log, "HostRegister")) == sorted(vendor_calls(log, "HostUnregister"))
    assert len(set(vendor_calls(log, "HostRegister"))) == 3
    return done


@EACH_RUNTIME
def test_no_process_pins_the_pool_if_one_of_them_cannot(variant, tmp_path):
    done = run_with_one_rank_that("pin(bytearray(), hostpin.Register.REQUIRED)", variant, tmp_path)
    assert done.returncode == 0, done.stderr
    assert rank_lines(done) == [f"rank {rank}: not pinned, as in all others" for rank in range(4)]
    assert done.stderr.count("could not pin") == 1 == done.stderr.count("\n")


@EACH_RUNTIME
@pytest.mark.parametrize("death", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_process_pins_the_pool_if_one_of_them_dies(variant, death, tmp_path):
    done = run_with_one_rank_that(death, variant, tmp_path)
    assert (done.returncode, done.stderr) == (0 if "exit" in death else 3, "")
    assert rank_lines(done) == [f"rank {rank}: not pinned, as in all others" for rank in range(3)]
