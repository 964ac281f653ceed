"""The C examples: built by the lines of their README, run without a device and on simulated runtimes."""
import collections
import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

PREFIX = pathlib.Path(os.environ["HOSTPIN_PREFIX"])
SIM = PREFIX / "lib/hostpin-sim"
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
README = (EXAMPLES / "README.md").read_text()

COMMANDS = {name: line for line, name in re.findall(r"^    ((?:mpi)?cc .*-o (\w+) .*)$", README, flags=re.M)}
STRICT = "-std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Werror"
SANITIZED = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
# Open MPI loads its parts in a way that the address sanitizer refuses (RTLD_DEEPBIND).
SANITIZED_MPI = SANITIZED.replace("address,", "")
PINNED, ERROR, USAGE, PAGEABLE, INTERRUPTED = 0, 1, 2, 3, 130

# name: (variable that names the runtime, its file, prefix of its functions)
RUNTIMES = {
    "cudart12": ("HOSTPIN_CUDART", SIM / "cudart12/libcudart.so.12", "cuda"),
    "amdhip6": ("HOSTPIN_AMDHIP", SIM / "amdhip6/libamdhip64.so.6", "hip"),
}

# Open MPI in a container: as root, on fewer cores than ranks, without ssh, a network or the right to read another
# process's memory. Its files go to TMPDIR.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # the same for Open MPI 5
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}

# Looking for leaks in thread-local memory fails when a thread of the library ends at the same moment as the program.
SANITIZERS = {"ASAN_OPTIONS": "intercept_tls_get_addr=0"}

# Stands between a program and fork(), or is loaded into one rank: what is special about one process is said here, and
# not in the example.
SPECIAL_PROCESS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hostpin-sim.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
static void pin_it_first(const char *function, const void *ptr, size_t length, void *user) {
  (void)user;
  if (strstr(function, "HostRegister")) hps_pin_foreign(HPS_CUDA, ptr, length);
}
static void become_special(void) {
  if (getenv("SPECIAL_SIM")) setenv("HOSTPIN_SIM", getenv("SPECIAL_SIM"), 1);
  if (getenv("SPECIAL_FOREIGN")) hps_on_call(pin_it_first, NULL);
  if (getenv("SPECIAL_SIGNAL")) raise(atoi(getenv("SPECIAL_SIGNAL")));
}
__attribute__((constructor)) static void begin(void) {
  if (!getenv("SPECIAL_CHILD")) become_special();
}
pid_t fork(void) {
  static int turn;
  const int special = turn++ == atoi(getenv("SPECIAL_CHILD"));
  pid_t (*real)(void);
  *(void **)&real = dlsym(RTLD_NEXT, "fork");
  const pid_t child = real();
  if (child == 0 && special) become_special();
  return child;
}
"""

# Holds up every register call of a simulated runtime but the first, as long as a file exists.
HOLD = r"""
#include <hostpin-sim.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void wait_for_file(const char *function, const void *ptr, size_t length, void *user) {
  (void)ptr, (void)length, (void)user;
  if (!strstr(function, "HostRegister") || hps_calls("register") < 2) return;
  while (access(getenv("HOLD"), F_OK) == 0) usleep(1000);
}
__attribute__((constructor)) static void hold(void) { hps_on_call(wait_for_file, NULL); }
"""


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOSTPIN_")}
    ours = {"LD_LIBRARY_PATH": PREFIX / "lib", "PKG_CONFIG_PATH": PREFIX / "lib/pkgconfig", **variables}
    return {**kept, **MPI, **SANITIZERS, **{k: str(v) for k, v in ours.items()}}


def shell(line, folder, **variables):
    done = subprocess.run(line, shell=True, cwd=folder, env=environment(**variables), capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, line + "\n" + done.stderr
    assert done.stderr == ""


def built(folder, flags="", mpi_flags=""):
    for source in EXAMPLES.glob("*.c"):
        shutil.copy(source, folder)
    for command in COMMANDS.values():
        shell(command.replace(" -o ", f" {mpi_flags if command.startswith('mpicc') else flags} -o "), folder)
    return folder


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    return built(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    return built(tmp_path_factory.mktemp("sanitized"), SANITIZED, SANITIZED_MPI)


def preloaded(tmp_path_factory, name, text):
    folder = tmp_path_factory.mktemp(name)
    (folder / f"{name}.c").write_text(text)
    shell(f"cc -shared -fPIC -o {name}.so {name}.c $(pkg-config --cflags --libs hostpin-sim) -ldl", folder)
    return folder / f"{name}.so"


@pytest.fixture(scope="session")
def special_process(tmp_path_factory):
    return preloaded(tmp_path_factory, "special_process", SPECIAL_PROCESS)


@pytest.fixture(scope="session")
def hold(tmp_path_factory):
    return preloaded(tmp_path_factory, "hold", HOLD)


@pytest.fixture(params=["plain", "sanitized"])
def programs(request):
    return request.getfixturevalue(request.param)


class Driver:
    """A simulated runtime, and what it was asked."""

    def __init__(self, name, folder):
        self.log = folder / "calls"
        self.variable, self.file, self.prefix = RUNTIMES[name]
        assert self.file.exists()

    def script(self, *parts):
        """HOSTPIN_SIM; "register" and "unregister" stand for the functions of any runtime."""
        return ",".join([f"log={self.log}", *parts])

    def variables(self, *parts):
        return {self.variable: self.file, "HOSTPIN_SIM": self.script(*parts)}

    def calls(self):
        """(process, function, address, length, code), oldest first."""
        lines = [line.split(maxsplit=7) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [(int(p), f.removeprefix(self.prefix), int(a, 16) if a != "(nil)" else 0, int(n), int(code))
                for p, _, f, a, n, _, code, _ in lines]

    def pins(self):
        """Ranges pinned by each process, after making sure that each was released by the same process."""
        pinned, live = collections.defaultdict(list), collections.Counter()
        for process, function, address, length, code in self.calls():
            if function == "HostRegister" and code == 0:
                pinned[process].append((address, length))
                live[process, address] += 1
            elif function == "HostUnregister" and code == 0:
                live[process, address] -= 1
        assert {key: n for key, n in live.items() if n != 0} == {}
        return pinned

    def refusals(self):
        return [call for call in self.calls() if call[1] in ("HostRegister", "HostUnregister") and call[4] != 0]


@pytest.fixture(params=list(RUNTIMES))
def driver(request, tmp_path):
    return Driver(request.param, tmp_path)


@pytest.fixture
def cuda(tmp_path):
    return Driver("cudart12", tmp_path)


def run(command, **variables):
    return subprocess.run([str(c) for c in command], env=environment(**variables), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)


def mpirun(program, ranks=4):
    return ["mpirun", "-n", ranks, program, 8]


def shared_pools(programs):
    """Commands of the two programs that share a pool of 8 MiB among four processes."""
    return {"shared_pool": [programs / "shared_pool", 4, 8], "shared_pool_mpi": mpirun(programs / "shared_pool_mpi")}


def answers(stdout):
    """What each process has said: {0: "pinned", ...}."""
    return {int(n): text for n, text in re.findall(r"^(?:process|rank) (\d+): (.*)$", stdout, flags=re.M)}


# ---- Building -------------------------------------------------------------------------------------------------------


def test_the_readme_builds_runs_and_describes_every_example():
    names = {path.stem for path in EXAMPLES.glob("*.c")}
    assert set(COMMANDS) == names
    assert {name for name in re.findall(r"^\| `(\w+)\.c` \|", README, flags=re.M)} == names
    assert {name for name in re.findall(r"^    (?:mpirun .*)?\./(\w+)", README, flags=re.M)} == names


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_warnings(name, compiler, tmp_path):
    shutil.copy(EXAMPLES / f"{name}.c", tmp_path)
    command = COMMANDS[name].replace(" -o ", f" {STRICT} -o ")
    if not command.startswith("mpicc"):
        command = command.replace("cc", compiler, 1)
    shell(command, tmp_path, OMPI_CC=compiler)


# ---- One process ----------------------------------------------------------------------------------------------------


def test_pin_buffer(programs, driver):
    done = run([programs / "pin_buffer"], **driver.variables())
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.startswith("pinned 67108864 bytes at 0x")
    (pins,) = driver.pins().values()
    assert sum(length for _, length in pins) >= 64 << 20


def test_pin_buffer_without_a_device(programs):
    done = run([programs / "pin_buffer"], HOSTPIN_BACKEND="none")
    assert done.returncode == 0
    assert done.stdout.startswith("not pinned by us: no GPU runtime is usable") and "backend none" in done.stdout


def test_pin_buffer_is_over_the_budget(programs, cuda):
    done = run([programs / "pin_buffer"], HOSTPIN_BUDGET="1M", **cuda.variables())
    assert done.returncode == 0 and done.stdout.startswith("not pinned by us: ") and "budget" in done.stdout
    assert cuda.pins() == {}


def test_pin_buffer_does_not_free_what_the_driver_keeps(plain, cuda):
    done = run([plain / "pin_buffer"], **cuda.variables("fail=unregister:*:1"))
    assert done.returncode == ERROR and "do not unmap" in done.stderr


def test_pin_buffer_gives_back_what_a_refusal_has_left(programs, cuda):
    """The second segment is refused, and the first not taken back at once: HP_E_STUCK."""
    script = cuda.variables("fail=register:2+:719", "fail=unregister:1:1")
    done = run([programs / "pin_buffer"], HOSTPIN_MAX_SEGMENT="32M", **script)
    assert done.returncode == 0 and "not pinned by us" in done.stdout
    assert len(cuda.pins()) == 1


# Four layers, K and V, of 30 blocks of 32 KiB: 7.5 MiB in four chunks of at most 2 MiB, cut inside of tensors.
SMALL_CACHE = [4, 30, 32, 2]


def test_kv_cache(programs, driver):
    done = run([programs / "kv_cache", *SMALL_CACHE], **driver.variables())
    assert done.returncode == PINNED, done.stderr
    assert re.fullmatch(r"pinned 7 MiB in 4 segments in \d+\.\d\d s; the longest driver call took \d+\.\d\d s\n"
                        r"copied 4 layers: 8 copies, made in 11 pieces\n", done.stdout)
    (pins,) = driver.pins().values()
    base = pins[0][0]
    assert [address - base for address, _ in pins] == [0, 2 << 20, 4 << 20, 6 << 20]
    assert sum(length for _, length in pins) == 7680 << 10
    assert all((address - base) % (32 << 10) == 0 for address, _ in pins)


@contextlib.contextmanager
def held(command, hold, driver, *parts, stderr=subprocess.PIPE):
    """A program that is pinning, whose second driver call does not come back until the file is removed."""
    file = driver.log.with_name("hold")
    file.touch()
    variables = {"LD_PRELOAD": hold, "HOLD": file, **driver.variables(*parts)}
    with subprocess.Popen([str(c) for c in command], env=environment(**variables), stdout=subprocess.PIPE,
                          stderr=stderr) as process:
        try:
            yield process, file
        finally:
            process.kill()


def read_until(file, *texts):
    """What a program writes, until all these texts have come."""
    seen = ""
    while not all(text in seen for text in texts):
        ready, _, _ = select.select([file], [], [], 60)
        more = os.read(file, 4096).decode() if ready else ""
        assert more, f"nothing more came after: {seen}"
        seen += more
    return seen


USABLE = "the first block is pinned: copies of it run by DMA from now on"


def test_kv_cache_is_usable_before_the_end_and_says_so_in_plain_lines(plain, cuda, hold):
    with held([plain / "kv_cache", *SMALL_CACHE], hold, cuda) as (process, file):
        shown = read_until(process.stderr.fileno(), "pinning:  26 % of 7 MiB, ", USABLE)
        assert "100 %" not in shown
        file.unlink()
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == PINNED and stdout.startswith(b"pinned 7 MiB in 4 segments")
    lines = (shown + stderr.decode()).splitlines()
    assert lines.count(USABLE) == 1 and lines[-1].startswith("pinning: 100 % of 7 MiB, ")
    shape = re.compile(r"pinning: +\d+ % of 7 MiB, \d+\.\d s")
    assert all(shape.fullmatch(line) for line in lines if line != USABLE)
    assert len({line.split()[1] for line in lines}) == len(lines)  # none twice


def test_kv_cache_shows_one_line_on_a_terminal(plain, cuda, hold):
    terminal, end = pty.openpty()
    with held([plain / "kv_cache", *SMALL_CACHE], hold, cuda, stderr=end) as (process, file):
        os.close(end)
        shown = read_until(terminal, "\rpinning:  26 % of 7 MiB, ", USABLE)
        file.unlink()
        shown += read_until(terminal, "\rpinning: 100 % of 7 MiB, ", "s\r\n")
        process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == PINNED
    assert all(line == USABLE or line == "" or line.startswith("\rpinning: ") for line in shown.split("\r\n"))


# 8 layers of 60 blocks: thirty chunks.
LONG_CACHE = [8, 60, 32, 1]


def test_kv_cache_is_interrupted(plain, cuda, hold):
    with held([plain / "kv_cache", *LONG_CACHE], hold, cuda, "delay=register:500") as (process, file):
        read_until(process.stderr.fileno(), USABLE)
        process.send_signal(signal.SIGINT)
        file.unlink()
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and stdout == b"interrupted: nothing is pinned any more\n"
    (pins,) = cuda.pins().values()
    assert 0 < len(pins) < 30


def test_kv_cache_is_ended_by_a_second_interrupt_where_the_driver_hangs(plain, cuda, hold):
    with held([plain / "kv_cache", *SMALL_CACHE], hold, cuda) as (process, _):
        read_until(process.stderr.fileno(), USABLE)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
    assert process.returncode == -signal.SIGINT


def test_kv_cache_without_a_device(programs):
    done = run([programs / "kv_cache", *SMALL_CACHE], HOSTPIN_BACKEND="none")
    assert done.returncode == PAGEABLE
    assert done.stdout.startswith("not pinned by us: no GPU runtime is usable")
    assert done.stdout.endswith("copied 4 layers: 8 copies, made in 8 pieces\n")
    assert "pinning:" not in done.stderr


def test_kv_cache_is_refused_at_once(programs, driver):
    done = run([programs / "kv_cache", *SMALL_CACHE], **driver.variables("fail=register:*:1"))
    assert done.returncode == PAGEABLE and done.stdout.startswith(f"not pinned by us: {driver.prefix}HostRegister(")
    assert done.stdout.endswith("copied 4 layers: 8 copies, made in 8 pieces\n")
    assert driver.pins() == {}


def test_kv_cache_is_refused_half_way_and_keeps_what_may_be_in_use(programs, driver):
    done = run([programs / "kv_cache", *SMALL_CACHE], **driver.variables("fail=register:3+:1"))
    assert done.returncode == PAGEABLE
    assert done.stdout.startswith(f"pinned 4 of 7 MiB: {driver.prefix}HostRegister(")
    # Cut between the two segments, and where the pageable memory begins.
    assert done.stdout.endswith("copied 4 layers: 8 copies, made in 10 pieces\n")
    (pins,) = driver.pins().values()
    assert len(pins) == 2


def test_kv_cache_copies_in_smaller_pieces_where_the_driver_takes_less(programs, cuda):
    done = run([programs / "kv_cache", *SMALL_CACHE], HOSTPIN_MAX_SEGMENT="1M", **cuda.variables())
    (pins,) = cuda.pins().values()
    base, tensor = pins[0][0], 30 * 32 << 10
    inside = sum((address - base) % tensor != 0 for address, _ in pins)
    assert len(pins) >= 8 and inside >= 7
    assert done.returncode == PINNED
    assert done.stdout.endswith(f"copied 4 layers: 8 copies, made in {8 + inside} pieces\n")


def test_kv_cache_does_not_unmap_what_the_driver_keeps(plain, cuda):
    done = run([plain / "kv_cache", *SMALL_CACHE], **cuda.variables("fail=unregister:*:1"))
    assert done.returncode == ERROR and done.stderr.splitlines()[-1].startswith("kv_cache: cudaHostUnregister(")


def test_kv_cache_has_no_legal_cut(programs):
    done = run([programs / "kv_cache", 4, 2, 5000, 1], HOSTPIN_BACKEND="none")
    assert done.returncode == ERROR
    assert "kv_cache: hp_split_ranges: no legal cut within max_chunk_bytes 1048576" in done.stderr


@pytest.mark.parametrize("arguments", [["x"], [0], [-1], ["1x"], [1, 2, 3, 4, 5], [2**30] * 3], ids=str)
def test_kv_cache_usage(programs, arguments):
    done = run([programs / "kv_cache", *arguments])
    assert done.returncode == USAGE and done.stderr.startswith("usage: ") and done.stdout == ""


# ---- A shared pool ---------------------------------------------------------------------------------------------------

SHARED = ["shared_pool", "shared_pool_mpi"]


@pytest.mark.parametrize("name", SHARED)
def test_shared_pool_is_pinned_in_all(name, programs, driver):
    done = run(shared_pools(programs)[name], **driver.variables())
    assert done.returncode == PINNED, done.stderr
    assert answers(done.stdout) == dict.fromkeys(range(4), "pinned")
    pins = driver.pins()
    assert len(pins) == 4 and all(sum(length for _, length in ranges) >= 8 << 20 for ranges in pins.values())


@pytest.mark.parametrize("name", SHARED)
def test_shared_pool_without_a_device(name, programs):
    done = run(shared_pools(programs)[name], HOSTPIN_BACKEND="none")
    assert done.returncode == PAGEABLE
    assert set(answers(done.stdout)) == set(range(4))
    assert all(text.startswith("pageable: no GPU runtime is usable") for text in answers(done.stdout).values())


@pytest.mark.parametrize("name", SHARED)
def test_shared_pool_is_pinned_by_one_process_at_a_time(name, plain, driver, tmp_path):
    """The driver refuses a pin while another process is pinning the same memory."""
    done = run(shared_pools(plain)[name], **driver.variables(f"file_lock={tmp_path}", "delay=register:100"))
    assert done.returncode == PINNED, done.stderr
    assert len(driver.pins()) == 4 and driver.refusals() == []
    assert list(tmp_path.glob("hostpin-sim-*.lock"))  # the driver saw memory that is shared


def with_one(one, special, name, programs, special_process, driver, **variables):
    """Runs four processes of which number `one` finds the variables `special`, which special_process reads."""
    variables |= driver.variables()
    if name == "shared_pool":
        return run(shared_pools(programs)[name], LD_PRELOAD=special_process, SPECIAL_CHILD=one, **special, **variables)
    command = ["mpirun"]
    for rank in range(4):
        command += [":"] * (rank > 0) + ["-n", "1"]
        if rank == one:
            command += ["env", f"LD_PRELOAD={special_process}", *(f"{k}={v}" for k, v in special.items())]
        command += [programs / "shared_pool_mpi", 8]
    return run(command, **variables)


def assert_unpinned_everywhere(done, one, why):
    assert done.returncode == PAGEABLE, done.stderr
    texts = answers(done.stdout)
    assert set(texts) == set(range(4)) and texts.pop(one).startswith(f"pageable: {why}(")
    assert all(re.fullmatch("pageable, since another (process|rank) is", text) for text in texts.values())


@pytest.mark.parametrize("one", [0, 3])
@pytest.mark.parametrize("name", SHARED)
def test_one_process_is_refused_and_none_pins(name, one, plain, special_process, driver):
    """Refused at its second segment: it releases the first by itself, and the others release all."""
    special = {"SPECIAL_SIM": driver.script("fail=register:2+:2")}
    done = with_one(one, special, name, plain, special_process, driver, HOSTPIN_MAX_SEGMENT="2M")
    assert_unpinned_everywhere(done, one, f"{driver.prefix}HostRegister")
    fewest, *others = sorted(len(ranges) for ranges in driver.pins().values())
    assert fewest == 1 and len(others) == 3 and min(others) >= 4


@pytest.mark.parametrize("name", SHARED)
def test_what_a_refusal_has_left_is_given_back(name, plain, special_process, cuda):
    """The first segment is not taken back at once: HP_E_STUCK."""
    special = {"SPECIAL_SIM": cuda.script("fail=register:2+:719", "fail=unregister:1:1")}
    done = with_one(2, special, name, plain, special_process, cuda, HOSTPIN_MAX_SEGMENT="2M")
    assert_unpinned_everywhere(done, 2, "cudaHostUnregister")
    assert [call[1] for call in cuda.refusals()] == ["HostRegister", "HostUnregister"] and len(cuda.pins()) == 4


@pytest.mark.parametrize("name", SHARED)
def test_pinned_by_other_code_counts_as_pinned(name, plain, special_process, cuda):
    done = with_one(1, {"SPECIAL_FOREIGN": 1}, name, plain, special_process, cuda)
    assert done.returncode == PINNED, done.stdout + done.stderr
    assert answers(done.stdout) == dict.fromkeys(range(4), "pinned")
    assert len(cuda.pins()) == 3 and [call[4] for call in cuda.refusals()] == [712]


@pytest.mark.parametrize("name", SHARED)
def test_a_driver_that_keeps_pages_ends_the_group(name, plain, special_process, cuda):
    done = with_one(1, {"SPECIAL_SIM": cuda.script("fail=unregister:*:1")}, name, plain, special_process, cuda)
    assert done.returncode == ERROR
    assert re.search(r"^(process|rank) 1: cudaHostUnregister\(.* do not unmap", done.stderr, flags=re.M)


def test_shared_pool_ends_when_a_process_dies(plain, special_process, cuda):
    done = run(shared_pools(plain)["shared_pool"], LD_PRELOAD=special_process, SPECIAL_CHILD=2,
               SPECIAL_SIGNAL=int(signal.SIGSEGV), **cuda.variables())
    assert done.returncode == ERROR and done.stdout == ""


def test_shared_pool_leaves_no_process_behind_when_it_is_killed(plain, cuda):
    command = [str(c) for c in shared_pools(plain)["shared_pool"]]
    variables = environment(**cuda.variables("delay=register:120000"))
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 60
            while len({call[0] for call in cuda.calls()}) < 4 and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            process.kill()
        assert len({call[0] for call in cuda.calls()}) == 4
        process.communicate(timeout=60)  # which returns when the last one that could write has ended


@pytest.mark.parametrize("command", [["shared_pool", 0], ["shared_pool", 1, "x"], ["shared_pool", 1, 1, 1],
                                     ["shared_pool_mpi", "x"], ["shared_pool_mpi", 1, 1]], ids=str)
def test_shared_pool_usage(command, plain):
    done = run([plain / command[0], *command[1:]])
    assert done.returncode == USAGE and "usage: " in done.stderr and done.stdout == ""
