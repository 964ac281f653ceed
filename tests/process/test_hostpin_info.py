"""The command hostpin-info, and the man pages.

HOSTPIN_INFO      the built command
HOSTPIN_SIM_DIRS  the folder of the simulated runtimes (cudart12/libcudart.so.12 and so on)
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "include/hostpin.h").read_text()
INFO_PAGE = ROOT / "src/tools/hostpin-info.1"
LIBRARY_PAGE = ROOT / "src/tools/hostpin.3"
INFO = os.environ["HOSTPIN_INFO"]
SIM = Path(os.environ["HOSTPIN_SIM_DIRS"])

MIB = 1 << 20
GIB = 1 << 30
BACKENDS = ["cuda", "hip", "level_zero"]
SECTIONS = ["Library", "Backend", "Runtimes", "System"]
NONE = {"HOSTPIN_BACKEND": "none"}

KEYS = {
    "library": ["version", "file"],
    "backend": ["name", "devices", "capabilities", "max_segment"],
    "system": ["kernel", "kernel_pin_limit", "wsl", "memory_total", "memory_available", "memory_usable", "cgroup_limit",
               "budget", "memlock_soft", "memlock_hard", "page_size", "thp", "thp_shmem", "huge_pages", "numa_nodes"],
    "trial": ["bytes", "pinned", "status", "meaning", "message", "register_ns", "gib_per_s", "segments",
              "unregister_status", "unregister_message", "unregister_ns", "start_ns"],
    "rates": ["bytes", "status", "message", "ways"],
}
WAY_KEYS = ["name", "register_ns", "gib_per_s"]
WAYS = ["cold", "cold, prefault", "cold, huge", "warm", "warm, prefault"]
RUNTIME_KEYS = ["backend", "in_use", "reason", "file", "version", "version_number", "driver_version",
                "driver_version_number"]


def info(*arguments, env=None, **kwargs):
    """Runs the command with no variable of the library's set but those of `env`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOSTPIN_", "FAKE_"))}
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([INFO, *arguments], env=clean | (env or {}), stderr=subprocess.PIPE, timeout=120, **kwargs)


def table(*arguments, env=None, code=0):
    done = info(*arguments, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout.decode()


def report(*arguments, env=None, code=0):
    done = info("--json", *arguments, env=env)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def row(text, name, section=None):
    """The value of a row, with its continuation lines joined by spaces."""
    if section:
        text = re.search(rf"^{section}[^\n]*\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)[1]
    found = re.search(rf"^  {re.escape(name)}  +(.*(?:\n {{18}}.*)*)", text, re.M)
    assert found, f"no row {name!r} in\n{text}"
    return re.sub(r"\n *", " ", found[1])


def sim(name, file, variable="HOSTPIN_CUDART", script=""):
    path = SIM / name / file
    assert path.exists(), path
    return {variable: str(path), "HOSTPIN_SIM": script}


def cudart(script="", **env):
    return sim("cudart12", "libcudart.so.12", script=script) | env


# ---- Help, version, usage --------------------------------------------------------------------------------------------


def test_version_is_that_of_the_header():
    number = ".".join(re.search(rf"#define HP_VERSION_{part} (\d+)", HEADER)[1] for part in ("MAJOR", "MINOR", "PATCH"))
    assert table("--version") == f"hostpin-info {number}\n"
    assert report(env=NONE)["library"]["version"] == number
    assert row(table(env=NONE), "version", "Library") == number


def test_help_names_the_options_of_the_man_page():
    page = INFO_PAGE.read_text()
    options = set(re.findall(r"\.It Fl -(\w+)", page))
    assert options == {"pin", "bench", "plot", "json", "help", "version"}
    assert options == set(re.findall(r"^ +--(\w+)", table("--help"), re.M))


@pytest.mark.parametrize("size", ["", "0", "0K", "-1", "+1", "1.5G", "64MB", "64MiB", "K", "abc", " 1", "1 ", "0x10",
                                  "16777216T", "17592186044416T", "18446744073709551616", "99999999999999999999999"])
@pytest.mark.parametrize("form", [lambda size: ["--pin", size], lambda size: [f"--pin={size}"],
                                  lambda size: ["--bench", size]])
def test_garbage_sizes_are_wrong_usage(form, size):
    done = info(*form(size), env=NONE)
    assert done.returncode == 2
    assert done.stdout == b""
    assert f"not '{size}'" in done.stderr.decode()
    assert b"--help" in done.stderr


@pytest.mark.parametrize("arguments", [["--bogus"], ["-x"], ["--pin"], ["--bench"], ["--json=1"], ["stray"], ["--json", "stray"],
                                       ["--", "stray"]])
def test_unknown_arguments_are_wrong_usage(arguments):
    done = info(*arguments, env=NONE)
    assert done.returncode == 2
    assert done.stdout == b""
    assert arguments[-1].split("=")[0].lstrip("-").encode() in done.stderr
    assert b"--help" in done.stderr


@pytest.mark.parametrize("arguments, words", [
    (["--plot", "rates.svg"], "--plot needs --bench"),
    (["--bench", "1M", "--plot", "rates.jpg"], "must end in .svg or .png, not 'rates.jpg'"),
    (["--bench", "1M", "--plot", ".svg"], "must end in .svg or .png, not '.svg'"),
    (["--bench", "1M", "--plot", ".png"], "must end in .svg or .png, not '.png'"),
    (["--bench", "1M", "--pin", "1M"], "--bench and --pin do not go together"),
])
def test_options_that_do_not_go_together(arguments, words, tmp_path):
    done = info(*arguments, env=cudart(), cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (2, b"", [])
    assert words in done.stderr.decode()


@pytest.mark.parametrize("option", ["pin", "bench"])
@pytest.mark.parametrize("size, words", [("1000T", "1000 TiB"), ("1536T", "1.5 PiB"), ("8388608T", "8 EiB")])
def test_size_above_the_memory_is_refused_before_it_is_touched(option, size, words):
    done = info(f"--{option}", size, env=NONE)
    assert done.returncode == 2
    assert done.stdout == b""
    assert f"--{option} {words} is more than the".encode() in done.stderr


# ---- Output that cannot be written ------------------------------------------------------------------------------------


FORMS = [["--help"], ["--version"], ["--json"], [], ["--pin", "64K"], ["--json", "--pin", "64K"], ["--bench", "64K"]]


@pytest.mark.parametrize("arguments", FORMS)
def test_full_disk(arguments):
    with open("/dev/full", "w") as full:
        done = info(*arguments, env=cudart(), stdout=full)
    assert done.returncode == 3
    assert b"cannot be written: No space left on device" in done.stderr


@pytest.mark.parametrize("arguments", FORMS)
def test_closed_stdout(arguments):
    done = info(*arguments, env=cudart(), stdout=None, preexec_fn=lambda: os.close(1))
    assert done.returncode == 3
    assert b"cannot be written: Bad file descriptor" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_file_that_a_runtime_opens_does_not_become_stdout(preload, arguments, tmp_path):
    node = tmp_path / "node"
    done = info(*arguments, env=preload | {"FAKE_NODE": str(node)}, stdout=None, preexec_fn=lambda: os.close(1))
    assert done.returncode == 3
    assert node.read_bytes() == b""


def test_closed_stdin_and_stderr():
    clean = {"HOSTPIN_BACKEND": "none", "HOSTPIN_BUDGET": "nonsense"}
    done = subprocess.run([INFO, "--json"], env=clean, stdout=subprocess.PIPE, timeout=120,
                          preexec_fn=lambda: (os.close(0), os.close(2)))
    assert done.returncode == 0
    assert json.loads(done.stdout)["system"]["budget"] is None


# ---- No backend -------------------------------------------------------------------------------------------------------


def test_table_without_a_backend():
    text = table(env=NONE)
    assert re.findall(r"^\S.*", text, re.M) == SECTIONS
    assert row(text, "in use").startswith("none: memory stays pageable")
    for name in BACKENDS:
        assert row(text, name) == "passed over: the configuration says backend none"
    assert "devices" not in text


def test_json_without_a_backend():
    r = report(env=NONE)
    assert list(r) == ["library", "backend", "runtimes", "system", "trial", "rates"]
    for name in ("library", "backend", "system"):
        assert list(r[name]) == KEYS[name]
    assert r["backend"]["name"] == "none"
    assert (r["backend"]["devices"], r["backend"]["capabilities"]) == (0, [])
    assert r["trial"] is None
    assert r["runtimes"] == [{"backend": name, "in_use": False, "reason": "the configuration says backend none",
                              "file": None, "version": None, "version_number": 0, "driver_version": None,
                              "driver_version_number": 0} for name in BACKENDS]


def test_library_file_is_the_one_that_is_loaded():
    file = Path(report(env=NONE)["library"]["file"])
    assert file.is_file() and file.name.startswith("libhostpin.so.1")


def test_default_choice_is_consistent():
    r = report()
    used = [runtime["backend"] for runtime in r["runtimes"] if runtime["in_use"]]
    assert used == ([] if r["backend"]["name"] == "none" else [r["backend"]["name"]])
    for runtime in r["runtimes"]:
        assert list(runtime) == RUNTIME_KEYS
        assert (runtime["reason"] is None) == runtime["in_use"] == (runtime["file"] is not None)


def test_trial_without_a_backend():
    text = table("--pin", "64K", env=NONE, code=1)
    assert "Trial pin of 64 KiB\n" in text
    assert row(text, "result") == "not pinned: the memory stays pageable"
    assert len(row(text, "reason")) > 20
    trial = report("--pin", "64K", env=NONE, code=1)["trial"]
    assert list(trial) == KEYS["trial"]
    assert (trial["bytes"], trial["pinned"], trial["status"], trial["segments"]) == (65536, False, 1, 0)
    assert trial["meaning"] == "not pinned: the memory stays pageable"
    assert trial["message"] == row(text, "reason")
    assert trial["gib_per_s"] is trial["start_ns"] is None


# ---- Simulated backends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, file, variable, backend, version", [
    ("cudart11", "libcudart.so.11.0", "HOSTPIN_CUDART", "cuda", r"11\.\d+"),
    ("cudart12", "libcudart.so.12", "HOSTPIN_CUDART", "cuda", r"12\.\d+"),
    ("cudart13", "libcudart.so.13", "HOSTPIN_CUDART", "cuda", r"13\.\d+"),
    ("amdhip5", "libamdhip64.so.5", "HOSTPIN_AMDHIP", "hip", r"5\.2\.21153"),
    ("amdhip6", "libamdhip64.so.6", "HOSTPIN_AMDHIP", "hip", r"6\.4\.43484"),
    ("amdhip7", "libamdhip64.so.7", "HOSTPIN_AMDHIP", "hip", r"7\.0\.51831"),
])
def test_runtime_in_use(name, file, variable, backend, version):
    env = sim(name, file, variable, "devices=3,driver_version=13000")
    r = report(env=env)
    assert (r["backend"]["name"], r["backend"]["devices"]) == (backend, 3)
    assert "device_pointer" in r["backend"]["capabilities"]
    assert r["backend"]["max_segment"] >= GIB
    for runtime in r["runtimes"]:
        if runtime["backend"] != backend:
            assert not runtime["in_use"] and runtime["reason"] == f"not looked for: {backend} was found first"
            continue
        assert runtime["in_use"] and runtime["reason"] is None
        assert runtime["file"] == env[variable]
        assert re.fullmatch(version, runtime["version"])
        if backend == "cuda":
            assert (runtime["driver_version"], runtime["driver_version_number"]) == ("13.0", 13000)
    text = table(env=env)
    assert row(text, "in use") == backend
    assert row(text, "devices") == "3"
    assert "device pointers" in row(text, "capabilities")
    assert re.match(f"in use, version {version}, driver ", row(text, backend))
    assert f"\n                  {env[variable]}\n" in text


def test_level_zero_on_the_device_that_intels_driver_simulates():
    done = subprocess.run([ROOT / "tests/process/with-intel-simulation", INFO, "--json", "--pin", "1M"],
                          capture_output=True, env=os.environ | {"HOSTPIN_BACKEND": "level_zero"}, timeout=120)
    assert done.returncode == 0, done.stderr
    r = json.loads(done.stdout)
    assert r["trial"]["pinned"] and r["backend"]["capabilities"] == []
    runtime = r["runtimes"][2]
    assert "libze_loader.so.1" in runtime["file"]
    assert re.fullmatch(r"1\.\d+\.\d+", runtime["version"])
    assert re.fullmatch(r"1\.\d+\.\d{5}", runtime["driver_version"])


@pytest.mark.parametrize("size, size_bytes", [("1", 1), ("4097", 4097), ("64k", 65536), ("64M", 64 * MIB), ("1G", GIB)])
def test_trial_is_pinned_and_released(size, size_bytes, tmp_path):
    log = tmp_path / "calls"
    trial = report(f"--pin={size}", env=cudart(f"log={log},delay=register:2"))["trial"]
    assert (trial["bytes"], trial["pinned"], trial["status"], trial["meaning"]) == (size_bytes, True, 0, "done")
    assert trial["message"] is trial["unregister_message"] is None
    assert trial["segments"] == 1
    assert trial["unregister_status"] == 0 and trial["unregister_ns"] > 0
    assert trial["register_ns"] >= 2_000_000 and trial["start_ns"] >= 2_000_000
    assert trial["gib_per_s"] == pytest.approx(size_bytes / GIB / (trial["register_ns"] / 1e9), rel=1e-4)
    calls = log.read_text()
    assert calls.count("cudaHostRegister") == calls.count("cudaHostUnregister") == 2


def test_trial_in_the_table():
    text = table("--pin", "4M", env=cudart(HOSTPIN_MAX_SEGMENT="1M"))
    assert re.search(r"\n\nTrial pin of 4 MiB\n", text)
    assert re.fullmatch(r"pinned in [\d.]+ [mun]?s, [\d.]+ GiB/s", row(text, "result"))
    assert row(text, "segments") == "4"
    assert re.fullmatch(r"in [\d.]+ [mun]?s", row(text, "release"))
    assert row(text, "driver start").endswith("(a first pin of one page)")
    assert row(text, "segment limit") == "1 MiB in one driver call"


def test_refused_trial():
    env = cudart("fail=register:*:2")
    text = table("--pin", "1M", env=env, code=1)
    assert row(text, "result") == "not pinned: the memory stays pageable"
    assert "cudaHostRegister" in row(text, "reason")
    trial = report("--pin", "1M", env=env, code=1)["trial"]
    assert (trial["status"], trial["pinned"], trial["start_ns"]) == (1, False, None)
    assert "cudaHostRegister" in trial["message"]


def test_trial_above_the_budget_is_an_error():
    trial = report("--pin", "2M", env=cudart(HOSTPIN_BUDGET="1M"), code=3)["trial"]
    assert (trial["status"], trial["pinned"]) == (-14, False)
    assert trial["start_ns"] > 0
    assert "budget" in row(table("--pin", "2M", env=cudart(HOSTPIN_BUDGET="1M"), code=3), "result")


def test_trial_that_the_driver_does_not_release():
    """The first release is that of the page that starts the driver."""
    env = cudart("fail=unregister:2+:1")
    trial = report("--pin", "1M", env=env, code=3)["trial"]
    assert (trial["pinned"], trial["unregister_status"]) == (True, -6)
    assert trial["unregister_message"]
    assert row(table("--pin", "1M", env=env, code=3), "release").startswith("failed: ")


def test_trial_that_the_driver_takes_in_part_and_does_not_give_back():
    """What is stuck is tried again, so that it does not stay pinned."""
    env = cudart("fail=register:3+:2,fail=unregister:2:1", HOSTPIN_MAX_SEGMENT="1M")
    trial = report("--pin", "4M", env=env, code=3)["trial"]
    assert (trial["status"], trial["pinned"], trial["segments"]) == (-6, False, 1)
    assert (trial["unregister_status"], trial["unregister_message"]) == (0, None)
    assert trial["unregister_ns"] > 0


def test_segments_of_the_trial_alone_are_counted():
    trial = report("--pin", "1M", env=cudart("fail=unregister:1:1"))["trial"]
    assert (trial["segments"], trial["unregister_status"]) == (1, 0)


def test_trial_has_its_memory_and_is_the_first_to_go():
    """While the driver pins, every page is there, and the kernel would end this process before others."""
    with subprocess.Popen([INFO, "--pin", "64M"], env=os.environ | cudart("delay=register:1000"),
                          stdout=subprocess.PIPE) as running:
        seen = []
        while running.poll() is None:
            try:
                status = Path(f"/proc/{running.pid}/status").read_text()
                adjustment = Path(f"/proc/{running.pid}/oom_score_adj").read_text()
                seen.append((int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) >= 65536, adjustment == "1000\n"))
            except (OSError, TypeError):  # it has ended
                pass
            time.sleep(0.01)
    assert running.returncode == 0
    assert (True, True) in seen


# ---- The benchmark ----------------------------------------------------------------------------------------------------


def test_rates(tmp_path):
    log = tmp_path / "calls"
    rates = report("--bench", "2M", env=cudart(f"log={log}"))["rates"]
    assert list(rates) == KEYS["rates"]
    assert (rates["bytes"], rates["status"], rates["message"]) == (2 * MIB, 0, None)
    assert [way["name"] for way in rates["ways"]] == WAYS
    for way in rates["ways"]:
        assert list(way) == WAY_KEYS
        assert way["gib_per_s"] == pytest.approx(2 * MIB / GIB / (way["register_ns"] / 1e9), rel=1e-4)
    calls = log.read_text()
    assert calls.count("cudaHostRegister") == calls.count("cudaHostUnregister") == 1 + 2 * 3 * len(WAYS)


def test_rates_in_the_table_and_in_a_picture(tmp_path):
    picture = tmp_path / "rates.svg"
    done = info("--bench", "2M", "--plot", str(picture), env=cudart("delay=register:2"))
    assert (done.returncode, done.stderr) == (0, b"")  # progress is for terminals
    text = done.stdout.decode()
    assert "\n\nRates of pinning 2 MiB\n" in text
    shown = [re.match(r"([\d.]+ GiB/s), [\d.]+ [mun]?s: ", row(text, name))[1] for name in WAYS]
    drawn = [e.text for e in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert drawn == ["Rates of pinning 2 MiB", *sum(zip(WAYS, shown), ())]


def test_png_picture(tmp_path):
    picture = tmp_path / "rates.png"
    done = info("--bench", "64K", "--plot", str(picture), env=cudart("delay=register:2"))
    assert (done.returncode, done.stderr) == (0, b"")
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert width > 300 and height > 30 * len(WAYS)


def test_png_picture_without_the_converter(tmp_path):
    done = info("--bench", "64K", "--plot", "rates.png", env=cudart(PATH=str(tmp_path)), cwd=tmp_path)
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (2, b"", [])
    assert b"rsvg-convert is needed (Debian: librsvg2-bin" in done.stderr


def test_progress_of_the_benchmark_on_a_terminal():
    main, terminal = os.openpty()
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HOSTPIN_")}
    subprocess.run([INFO, "--bench", "64K"], env=clean | cudart(), stdout=subprocess.DEVNULL, stderr=terminal, check=True,
                   timeout=120)
    shown = os.read(main, 65536).decode()
    os.close(main), os.close(terminal)
    assert shown.startswith("\rmeasuring: 1 of 15\rmeasuring: 2 of 15")
    assert shown.endswith("\rmeasuring: 15 of 15\r\x1b[K")


@pytest.mark.parametrize("env, code, status", [
    (NONE, 1, 1), (cudart("fail=register:*:2"), 1, 1), (cudart(HOSTPIN_BUDGET="1M"), 3, -14),
    (cudart("fail=unregister:2+:1"), 3, -6),
], ids=["no backend", "refused", "over the budget", "not released"])
def test_benchmark_that_fails(env, code, status, tmp_path):
    picture = tmp_path / "rates.svg"
    rates = report("--bench", "2M", "--plot", str(picture), env=env, code=code)["rates"]
    assert (rates["status"], rates["ways"]) == (status, [])
    assert rates["message"]
    assert not picture.exists()
    assert row(table("--bench", "2M", env=env, code=code), "reason")


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("name", ["none/rates.svg", "none/rates.png", "folder.svg"])
def test_picture_that_cannot_be_written_is_told_before_the_benchmark(tmp_path, name, form):
    (tmp_path / "folder.svg").mkdir()
    log = tmp_path / "calls"
    done = info(*form, "--bench", "64K", "--plot", str(tmp_path / name), env=cudart(f"log={log}"))
    assert (done.returncode, done.stdout) == (3, b"")
    assert f"{name} cannot be written: {'Is a' if name == 'folder.svg' else 'No such file or'} directory" in done.stderr.decode()
    assert not log.exists() or "cudaHostRegister" not in log.read_text()


@pytest.mark.parametrize("name, words", [("rates.svg", "cannot be written: No space left on device"),
                                         ("rates.png", "cannot be written by rsvg-convert")])
def test_rates_come_before_a_picture_that_fails(tmp_path, name, words):
    picture = tmp_path / name
    picture.symlink_to("/dev/full")
    rates = report("--bench", "64K", "--plot", str(picture), env=cudart(), code=3)["rates"]
    assert [way["name"] for way in rates["ways"]] == WAYS
    done = info("--bench", "64K", "--plot", str(picture), env=cudart())
    assert done.returncode == 3
    assert "GiB/s" in row(done.stdout.decode(), "cold", "Rates of pinning")
    assert f"{name} {words}" in done.stderr.decode()


def test_picture_of_before_stays_when_the_benchmark_fails(tmp_path):
    picture = tmp_path / "rates.svg"
    picture.write_text("of before")
    info("--bench", "64K", "--plot", str(picture), env=NONE)
    assert picture.read_text() == "of before"


def test_the_table_comes_before_the_trial():
    """A driver that ends the process must not take with it what is known."""
    done = info("--pin", "1M", env=cudart("init=0,fork=abort,fail=register:*:1"))
    assert done.stdout.decode().index("System\n") < done.stdout.decode().index("Trial pin")


# ---- Another machine --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def preload(tmp_path_factory):
    library = tmp_path_factory.mktemp("fake") / "fake_machine.so"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    "-o", library, "-I", ROOT / "include", Path(__file__).parent / "fake_machine.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verify_asan_link_order=0"} | NONE


def machine(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return {"FAKE_ROOT": str(root)}


@pytest.fixture
def large(preload, tmp_path):
    return preload | machine(tmp_path, {
        "proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\nMemAvailable:   33554432 kB\n",
        "proc/self/cgroup": "0::/pod/task\n",
        "sys/fs/cgroup/pod/memory.max": f"{6 * GIB}\n",
        "sys/fs/cgroup/pod/memory.current": f"{5 * GIB}\n",
        "sys/fs/cgroup/pod/memory.stat": f"anon {GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}\n",
        "sys/fs/cgroup/pod/task/memory.max": "max\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size [advise] never deny force\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "0\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
        "sys/devices/system/node/online": "0-1,4\n",
    }) | {"FAKE_RELEASE": "6.12.4-amd64", "FAKE_MEMLOCK": "8388608 -1"}


def test_large_machine(large):
    assert report(env=large | {"HOSTPIN_BUDGET": "50%"})["system"] == {
        "kernel": "6.12.4-amd64", "kernel_pin_limit": GIB, "wsl": False, "memory_total": 64 * GIB,
        "memory_available": 4 * GIB, "memory_usable": 6 * GIB, "cgroup_limit": 6 * GIB,
        "budget": pytest.approx(3 * GIB, abs=100), "memlock_soft": 8 * MIB, "memlock_hard": None, "page_size": os.sysconf("SC_PAGESIZE"), "thp": "always",
        "thp_shmem": "advise", "numa_nodes": 3,
        "huge_pages": [{"page_size": 2 * MIB, "free": 3, "total": 8}, {"page_size": GIB, "free": 0, "total": 0}]}


def test_large_machine_in_the_table(large):
    text = table(env=large | {"HOSTPIN_BUDGET": "1536M"})
    assert row(text, "kernel") == ("6.12.4-amd64: kernels 6.11 to 6.13 are known to refuse pins above 2 GiB in one "
                                   "driver call")
    assert row(text, "memory") == ("6 GiB usable by this process (limit of its cgroup), the machine has 64 GiB; "
                                   "4 GiB available now")
    assert row(text, "pin budget") == "1.5 GiB (HOSTPIN_BUDGET)"
    assert row(text, "locked memory") == ("8 MiB soft, unlimited hard (RLIMIT_MEMLOCK). GPU drivers usually do not count "
                                          "it.")
    assert row(text, "THP") == "always; shared memory: advise"
    assert row(text, "huge pages") == "2 MiB: 3 of 8 free; 1 GiB: none set aside"
    assert row(text, "NUMA nodes") == "3"
    assert row(text, "WSL") == "no"


def test_bare_machine(preload, tmp_path):
    env = preload | {"FAKE_ROOT": str(tmp_path), "FAKE_MEMLOCK": "65536 65536",
                     "FAKE_RELEASE": "5.15.153.1-microsoft-standard-WSL2"}
    system = report(env=env)["system"]
    unknown = ["kernel_pin_limit", "memory_total", "memory_available", "memory_usable", "cgroup_limit", "budget", "thp",
               "thp_shmem"]
    assert {key: system[key] for key in unknown} == dict.fromkeys(unknown)
    assert (system["wsl"], system["huge_pages"], system["numa_nodes"]) == (True, [], 1)
    assert (system["memlock_soft"], system["memlock_hard"]) == (65536, 65536)
    text = table(env=env)
    assert row(text, "kernel") == env["FAKE_RELEASE"]
    assert row(text, "WSL").startswith("yes: ")
    assert row(text, "memory") == "unknown"
    assert row(text, "pin budget") == "none"
    assert row(text, "locked memory").startswith("64 KiB soft, 64 KiB hard ")
    assert row(text, "THP") == row(text, "huge pages") == "the kernel has none"


@pytest.mark.parametrize("release, limited", [("6.10.14", False), ("6.11.0", True), ("6.13.9", True), ("6.14.0", False),
                                              ("7.12.0", False)])
def test_kernels_that_refuse_large_pins(preload, release, limited):
    system = report(env=preload | {"FAKE_RELEASE": release})["system"]
    assert (system["kernel_pin_limit"] is not None) == limited


def test_available_memory_bounds_the_trial(preload, tmp_path):
    env = preload | machine(tmp_path, {"proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 8192 kB\n"})
    assert report(env=env)["system"]["cgroup_limit"] is None
    done = info("--pin", "9M", env=env)
    assert done.returncode == 2
    assert b"--pin 9 MiB is more than the 8 MiB of memory that are available" in done.stderr
    assert info("--pin", "8M", env=env).returncode == 1


def v2(path, limit, usage=None, inactive=None):
    files = {f"sys/fs/cgroup{path}/memory.max": f"{limit}\n"}
    if usage is not None:
        files[f"sys/fs/cgroup{path}/memory.current"] = f"{usage}\n"
    if inactive is not None:
        files[f"sys/fs/cgroup{path}/memory.stat"] = f"anon 1\ninactive_anon 2\ninactive_file {inactive}\n"
    return files


UNLIMITED = 9223372036854771712


def v1(path, limit, usage=None, inactive=None):
    files = {f"sys/fs/cgroup/memory{path}/memory.limit_in_bytes": f"{limit}\n"}
    if usage is not None:
        files[f"sys/fs/cgroup/memory{path}/memory.usage_in_bytes"] = f"{usage}\n"
    if inactive is not None:
        files[f"sys/fs/cgroup/memory{path}/memory.stat"] = f"inactive_file 7\ntotal_inactive_file {inactive}\n"
    return files


# Of a machine with 64 GiB, 32 of them available: what this process may use, what of it is left, by which files.
CGROUPS = {
    "v1": (6, 6, "4:memory:/a\n", v1("/a", 6 * GIB)),
    "v1 in use": (6, 3, "4:memory:/a\n", v1("/a", 6 * GIB, 4 * GIB, GIB)),
    "v1 nested, outer": (6, 2, "4:memory:/a/b\n", v1("/a/b", UNLIMITED, GIB, 0) | v1("/a", 6 * GIB, 4 * GIB, 0)),
    "v1 nested, inner": (5, 1, "4:memory:/a/b\n", v1("/a/b", 5 * GIB, 4 * GIB, 0) | v1("/a", 6 * GIB, 4 * GIB, 0)),
    "v1 nested, less left outside": (5, 2, "4:memory:/a/b\n", v1("/a/b", 5 * GIB, 0) | v1("/a", 6 * GIB, 4 * GIB)),
    "v1 unlimited": (64, 32, "4:memory:/a\n", v1("/a", UNLIMITED, 9 * GIB, 0) | v1("", UNLIMITED, 9 * GIB, 0)),
    "v1 with others": (6, 6, "4:cpu,memory,pids:/a\n", v1("/a", 6 * GIB)),
    "v1 in a container": (6, 5, "4:memory:/docker/0123\n0::/docker/0123\n", v1("", 6 * GIB, GIB, 0)),
    "v1 of the root": (6, 6, "4:memory:/\n", v1("", 6 * GIB)),
    "v1 beside v2": (6, 6, "4:memory:/a\n0::/\n", v1("/a", 6 * GIB)),
    "not memory: a path": (64, 32, "6:cpu:/memory-hog\n", v1("/memory-hog", 6 * GIB)),
    "not memory: a path like a list": (64, 32, "6:cpu:/a,memory,b\n", v1("/a,memory,b", 6 * GIB)),
    "not memory: a part of a word": (64, 32, "6:memory2,inmemory:/a\n", v1("/a", 6 * GIB)),
    "not memory: a name": (64, 32, "6:name=memory:/a\n", v1("/a", 6 * GIB)),
    "v2": (6, 6, "0::/a\n", v2("/a", 6 * GIB)),
    "v2 in use": (6, 3, "0::/a\n", v2("/a", 6 * GIB, 4 * GIB, GIB)),
    "v2 nested": (6, 2, "0::/a/b\n", v2("/a/b", "max", GIB, 0) | v2("/a", 6 * GIB, 4 * GIB, 0)),
    "v2 in a container": (6, 5, "0::/docker/0123\n", v2("", 6 * GIB, GIB, 0)),
    "v2 above its limit": (6, 0, "0::/a\n", v2("/a", 6 * GIB, 7 * GIB, 0)),
    "v2 with more inactive than in use": (6, 6, "0::/a\n", v2("/a", 6 * GIB, GIB, 2 * GIB)),
    "v2 above what is available": (48, 32, "0::/a\n", v2("/a", 48 * GIB, 0, 0)),
}


@pytest.mark.parametrize("usable, available, cgroup, files", CGROUPS.values(), ids=CGROUPS)
def test_limit_of_the_cgroup_and_what_is_left_in_it(preload, tmp_path, usable, available, cgroup, files):
    env = preload | machine(tmp_path, files | {"proc/self/cgroup": cgroup,
                                               "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n"})
    system = report(env=env)["system"]
    assert system["memory_total"] == 64 * GIB
    assert (system["memory_usable"], system["memory_available"]) == (usable * GIB, available * GIB)
    assert system["cgroup_limit"] == (usable * GIB if usable < 64 else None)


def test_what_is_left_in_the_cgroup_bounds_the_trial(preload, tmp_path):
    env = preload | machine(tmp_path, v1("/a", 64 * MIB, 60 * MIB, 4 * MIB) | {
        "proc/self/cgroup": "4:memory:/a\n", "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n"})
    for option in ("pin", "bench"):
        done = info(f"--{option}", "9M", env=env)
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"--{option} 9 MiB is more than the 8 MiB of memory that are available".encode() in done.stderr
    assert info("--pin", "8M", env=env).returncode == 1


def test_this_machine():
    """What the stand-in for a machine cannot show: that the real files are the ones that are read."""
    system = report(env=NONE)["system"]
    meminfo = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    assert system["memory_total"] == int(meminfo["MemTotal"]) * 1024
    assert 0 < system["memory_usable"] <= system["memory_total"]
    assert system["kernel"] == os.uname().release
    thp = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    assert system["thp"] == (re.search(r"\[(\w+)\]", thp.read_text())[1] if thp.exists() else None)
    assert len(system["huge_pages"]) == len(list(Path("/sys/kernel/mm/hugepages").glob("*")))


def test_bad_budget_is_a_warning_of_the_library():
    done = info("--json", env=NONE | {"HOSTPIN_BUDGET": "lots"})
    assert done.returncode == 0
    assert b"HOSTPIN_BUDGET=lots" in done.stderr
    assert json.loads(done.stdout)["system"]["budget"] is None


# ---- What the library may answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer, version, driver", [
    ("2 12040 13000", "12.4", "13.0"),
    ("2 11080 0", "11.8", None),
    ("3 60443484 60443484", "6.4.43484", "6.4.43484"),
    ("3 50221153 0", "5.2.21153", None),
    ("3 71200042 0", "7.12.42", None),
    ("4 17301516 17012946", "1.8.12", "1.3.39122"),
    ("4 0 16998419", None, "1.3.24595"),
])
def test_versions_are_those_that_people_know(preload, answer, version, driver):
    env = preload | {"FAKE_BACKEND": answer}
    runtime = next(r for r in report(env=env)["runtimes"] if r["in_use"])
    assert (runtime["version"], runtime["driver_version"]) == (version, driver)
    assert row(table(env=env), runtime["backend"]).startswith(
        f"in use, version {version or 'unknown'}, driver {driver or 'unknown'}")


NASTY = 'quote " backslash \\ newline \n tab \t escape \x1b[31m control \x01 \x7f and ünïcödé 𝄞'


def test_json_escapes_what_it_must(preload):
    assert {r["reason"] for r in report(env=preload | {"FAKE_BACKEND": "1", "FAKE_REASON": NASTY})["runtimes"]} == {NASTY}


@pytest.mark.parametrize("bad", [b"\xff", b"\x80", b"\xc0\xaf", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80",
                                 b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_json_is_utf8_whatever_a_reason_holds(preload, bad):
    done = info("--json", env={os.fsencode(k): os.fsencode(v) for k, v in preload.items()}
                | {b"FAKE_BACKEND": b"1", b"FAKE_REASON": b"a" + bad + b"z"})
    reason = json.loads(done.stdout.decode("utf-8", "strict"))["runtimes"][0]["reason"]
    assert re.fullmatch("a\ufffd+z", reason)


def test_table_has_no_control_characters_and_80_columns(preload):
    path = "/" + "long/" * 30 + "libcudart.so.12"
    text = table(env=preload | {"FAKE_BACKEND": "1", "FAKE_REASON": f"{NASTY} {path} " + "ünï wörds " * 40})
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert f"\n                  {path}\n" in text
    assert [line for line in text.splitlines() if len(line) > 80] == ["                  " + path] * 3
    assert sum(len(line) > 70 for line in text.splitlines()) > 10


@pytest.mark.parametrize("status", [2, -1, -6, -9])
def test_other_statuses_of_a_trial_are_errors(preload, status):
    trial = report("--pin", "1M", env=preload | {"FAKE_REGISTER": str(status)}, code=3)["trial"]
    assert (trial["status"], trial["pinned"], trial["segments"]) == (status, False, 0)
    assert trial["gib_per_s"] is trial["start_ns"] is None


def test_error_of_the_library(preload):
    done = info("--json", env=preload | {"FAKE_BACKEND": "-9"})
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"hostpin-info: out of memory\n"


# ---- The man pages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [INFO_PAGE, LIBRARY_PAGE], ids=lambda page: page.name)
def test_man_page_is_clean(page):
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", page], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shown = subprocess.run(["mandoc", "-Tutf8", "-O", "width=78", page], capture_output=True, check=True).stdout.decode()
    assert [line for line in re.sub(".\b", "", shown).splitlines() if len(line) > 80] == []


def test_library_page_names_all_of_the_header():
    page = LIBRARY_PAGE.read_text()
    functions = set(re.findall(r"\b(hp_\w+)\(", "\n".join(l for l in HEADER.splitlines() if l.startswith("HP_API"))))
    assert len(functions) >= 15
    assert set(re.findall(r"^\.F[no] (hp_\w+) ?.*$", page.split(".Sh DESCRIPTION")[0], re.M)) == functions
    described = page.split(".Sh DESCRIPTION")[1]
    assert {f for f in functions if not re.search(rf"^\.Fn {f}\b", described, re.M)} == set()
    variables = set(re.findall(r"HOSTPIN_[A-Z_]+", HEADER))
    assert len(variables) >= 9
    assert set(re.findall(r"^\.It Ev (\w+)", page, re.M)) == variables
    statuses = dict(re.findall(r"#define (HP_(?:OK|PAGEABLE|FOREIGN|E_\w+)) \(?(-?\d+)\)?", HEADER))
    assert dict(re.findall(r"^\.It Dv (HP_\w+)\n\.Pq \\?(-?\d+)", page, re.M)) == statuses


def test_info_page_names_all_keys():
    page = INFO_PAGE.read_text().split(".Ss JSON")[1]
    named = set(re.findall(r"\b[a-z_]+\b", " ".join(re.findall(r"^\.(?:It )?Cm (.*)", page, re.M))))
    assert {*KEYS, "runtimes", *sum(KEYS.values(), []), *RUNTIME_KEYS, *WAY_KEYS, "free", "total"} - named == set()


def test_example_of_the_library_page_compiles(tmp_path):
    program = re.search(r"\.Bd -literal -offset indent\n(#include.*?)\.Ed", LIBRARY_PAGE.read_text(), re.S)[1]
    source = tmp_path / "example.c"
    source.write_text(program.replace("\\en", "\\n"))
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I",
                    ROOT / "include", source], check=True)
