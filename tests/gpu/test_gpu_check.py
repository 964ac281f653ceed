"""hostpin-gpu-check itself: it must notice what is wrong. A simulated runtime stands in for a real one here.

Environment: GPU_CHECK the program, GPU_SIMULATED the folder of the simulated runtimes, GPU_HOSTPIN libhostpin.
"""

import json
import os
import pathlib
import subprocess

import pytest

CHECK = os.environ["GPU_CHECK"]
SIMULATED = pathlib.Path(os.environ["GPU_SIMULATED"])
HOSTPIN = os.environ["GPU_HOSTPIN"]
HERE = pathlib.Path(__file__).parent

AS_SIMULATED = ["--simulated", str(SIMULATED)]
AS_REAL = ["--real", "--runtime", str(SIMULATED / "cudart13/libcudart.so.13"),
           "--driver", str(SIMULATED / "cuda/libcuda.so.1")]
# Where a real runtime answers otherwise than the simulation, on purpose.
DIFFERENCES = {"flags-4", "file-shared", "no-access", "device-memory", "fork-after"}


def check(*arguments, script="", hostpin=True):
    command = [CHECK, *arguments] + (["--hostpin", HOSTPIN] if hostpin else [])
    environment = {**os.environ, "HOSTPIN_SIM": script}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


@pytest.fixture
def report(tmp_path):
    """Runs the check and gives its exit status and what it wrote as JSON."""
    def run(*arguments, **options):
        file = tmp_path / "report.json"
        done = check(*arguments, "--json", str(file), **options)
        return done.returncode, json.loads(file.read_text())
    return run


def bad_rows(result):
    return {row["id"] for row in result["behaviours"] if row["agree"] == "no"}


def answers(result):
    return {row["id"]: [one["answer"] for one in row["answers"].values()] for row in result["behaviours"]}


def test_all_behaviours_are_tried_once_per_way():
    listed = [line.split("\t")[0] for line in check("--list").stdout.splitlines()]
    assert len(listed) == len(set(listed)) > 100
    done = check(*AS_SIMULATED)
    table = done.stdout.split("agree\n", 1)[1].split("\n\n", 1)[0]
    tried = sorted(line.split("  ")[0] for line in table.splitlines())
    ways = [[id + " by cudart", id + " by libcuda"] if id.startswith("hp-") else [id] for id in listed]
    assert tried == sorted(sum(ways, []))


def test_good_simulation_is_good(report):
    status, result = report(*AS_SIMULATED)
    assert (status, result["good"], bad_rows(result)) == (0, True, set())
    assert [s["title"] for s in result["subjects"]] == ["simulated 13", "simulated 12", "simulated 11"]


def test_without_libhostpin_the_vendor_calls_are_tried(report):
    status, result = report(*AS_SIMULATED, hostpin=False)
    assert status == 0 and answers(result)
    assert not any(id.startswith("hp-") for id in answers(result))


@pytest.mark.parametrize("script", ["devices=2,attribute=113:1,device_offset=1T", "attribute=88:1,attribute=100:1",
                                    "load_driver=1"])
def test_expectations_follow_the_device(report, script):
    status, result = report(*AS_SIMULATED, script=script)
    assert (status, bad_rows(result)) == (0, set())


def test_second_device_and_read_only_flag_change_the_answers(report):
    _, result = report(*AS_SIMULATED, "--only", "context-last", script="devices=2")
    assert answers(result) == {"context-last-device": ["0 same 1"] * 3}
    _, result = report(*AS_SIMULATED, "--only", "hp-read-only", script="attribute=113:1")
    assert answers(result)["hp-read-only by libcuda"] == ["0 0"] * 3


def test_wrong_code_is_noticed(report):
    status, result = report(*AS_SIMULATED, "--only", "unregister", script="fail=cudaHostUnregister:1:1")
    assert (status, result["good"]) == (1, False)
    assert bad_rows(result) == {"unregister-unknown", "unregister-twice"}


def test_wrong_result_of_libhostpin_is_noticed(report):
    status, result = report(*AS_SIMULATED, "--only", "hp-register", script="fail=register:1:2")
    assert status == 1
    assert bad_rows(result) == {"hp-register by cudart", "hp-register by libcuda"}


def test_death_of_a_behaviour_is_its_answer_only(report):
    status, result = report(*AS_SIMULATED, "--only", "fork")
    assert answers(result)["fork-after"] == ["abort"] * 3
    assert (status, answers(result)["fork-before"]) == (0, ["0"] * 3)


def test_hanging_behaviour_is_ended(report):
    status, result = report(*AS_SIMULATED, "--only", "unregister-null", "--timeout", "1",
                            script="delay=cudaHostUnregister:60000")
    assert (status, answers(result)) == (1, {"unregister-null": ["timeout"] * 3})


def test_real_runtime_that_answers_like_the_simulation_is_noticed(report):
    status, result = report(*AS_SIMULATED, *AS_REAL)
    assert [s["title"] for s in result["subjects"]] == ["simulated 13", "real 13"]
    assert (status, bad_rows(result)) == (1, DIFFERENCES)


def test_simulation_imitates_the_real_device(report):
    script = "devices=2,attribute=113:1,device_offset=1T,driver_version=13010"
    _, result = report(*AS_SIMULATED, *AS_REAL, script=script)
    simulated, real = (s["identity"].split(", ", 1)[1] for s in result["subjects"])
    assert simulated == real and "2 x" in real and "113=1" in real and "91=0" in real
    # With 113 all four flags are known, and only the one for I/O memory is left to be refused.
    assert bad_rows(result) == DIFFERENCES | {"flags-15"}


def test_markdown_has_every_row_and_marks_what_is_wrong(tmp_path):
    file = tmp_path / "table.md"
    done = check(*AS_SIMULATED, *AS_REAL, "--only", "f", "--markdown", str(file))
    rows = [line for line in file.read_text().splitlines() if line.startswith("| ")]
    assert done.returncode == 1
    assert {row.count("|") for row in rows} == {8}
    assert any("`fork-after` | 3 | public report | abort | **abort** | no |" in row for row in rows)
    assert any("`fork-before` | 0 | public report | 0 | 0 | yes |" in row for row in rows)


def test_no_device_is_said_and_is_not_success():
    done = check(*AS_REAL, script="devices=0")
    assert done.returncode == 2
    assert "sees a device" in done.stderr and "100 (cudaErrorNoDevice)" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--simulated", "/nowhere"], ["--real", "--runtime", "/nowhere"], ["--what"],
                                       [*AS_SIMULATED, "--only", "nothing-like-it"], [*AS_SIMULATED, "stray"],
                                       [*AS_SIMULATED, "--only", "register", "--rates=1"]])
def test_what_cannot_be_tried_is_an_error(arguments):
    done = check(*arguments)
    assert done.returncode == 2 and done.stderr.startswith("hostpin-gpu-check: ")


def test_rates_are_measured_and_printed(tmp_path, report):
    table = tmp_path / "table.md"
    status, result = report(*AS_REAL, "--only", "register", "--rates=1", "--markdown", str(table))
    assert status == 0
    assert [size["bytes"] for size in result["rates"]["copies"]] == [64 << 10, 1 << 20]
    for size in result["rates"]["copies"]:
        assert all(size[kind][way] > 0 for kind in ("pageable", "cudaHostAlloc", "hp_register")
                   for way in ("to_device", "to_host", "both"))
    for size in result["rates"]["registering"]:
        assert all(size[call][part] > 0 for call in ("cudaHostRegister", "hp_register")
                   for part in ("cold_ms", "warm_ms", "unregister_ms"))
    assert "| 1 MiB | hp_register |" in table.read_text()


def test_rates_that_fail_are_an_error():
    done = check(*AS_REAL, "--only", "null", "--rates=1", script="fail=cudaHostAlloc:*:2")
    assert done.returncode == 2 and "cudaHostAlloc answers 2" in done.stderr


@pytest.fixture
def device_folder(tmp_path):
    """What run-on-device needs of a machine: a build folder with the program, and a CUDA folder."""
    build, cuda = tmp_path / "build", tmp_path / "cuda"
    for folder in (build / "tests/gpu", build / "src", build / "tests/sim", cuda / "lib64"):
        folder.mkdir(parents=True)
    (build / "tests/gpu/hostpin-gpu-check").symlink_to(CHECK)
    (build / "src/libhostpin.so.1").symlink_to(HOSTPIN)
    (build / "tests/sim/runtimes").symlink_to(SIMULATED)
    (cuda / "lib64/libcudart.so.13").symlink_to(SIMULATED / "cudart13/libcudart.so.13")
    return tmp_path


def run_on_device(folder, script=""):
    environment = {**os.environ, "HOSTPIN_SIM": script, "CUDA_HOME": str(folder / "cuda"), "HOSTPIN_GPU_RATES": "1",
                   "HOSTPIN_TEST_CACHE": str(folder / "no-cache"), "LD_LIBRARY_PATH": str(SIMULATED / "cuda")}
    command = [str(HERE / "run-on-device"), "--build", str(folder / "build"), "--output", str(folder / "RESULTS.md")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def test_run_on_device_writes_what_was_measured(device_folder):
    done = run_on_device(device_folder)
    text = (device_folder / "RESULTS.md").read_text()
    assert done.returncode == 1, done.stderr  # the stand-in is noticed
    assert "real 13" in text and "simulated 13" in text and "`hp-fork by libcuda`" in text and "Copies:" in text
    assert str(device_folder) not in text


def test_run_on_device_writes_nothing_without_a_device(device_folder):
    done = run_on_device(device_folder, script="devices=0")
    assert done.returncode == 2 and "cudaErrorNoDevice" in done.stderr
    assert not (device_folder / "RESULTS.md").exists()
