"""Every program in the README is built and run, without a device and on a simulated runtime."""
import os
import re
import subprocess
import sys

import pytest

README = os.environ["HOSTPIN_README"]
INCLUDE = os.environ["HOSTPIN_INCLUDE"]
LIBRARY = os.environ["HOSTPIN_LIBRARY"]  # the shared library's file, under its full version
CUDART = os.environ["HOSTPIN_SIM_CUDART"]

BLOCKS = re.findall(r"^```(c|rust|python)\n(.*?)^```$", open(README).read(), flags=re.M | re.S)


def build(language, text, folder):
    """The command that runs a program, after building it if its language wants that."""
    directory = os.path.dirname(LIBRARY)
    program = str(folder / "program")
    if language == "python":
        (folder / "program.py").write_text(text)
        return [sys.executable, str(folder / "program.py")]
    if language == "c":
        (folder / "program.c").write_text(text)
        command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", str(folder / "program.c"), "-o", program,
                   f"-L{directory}", "-lhostpin"]
    else:
        (folder / "program.rs").write_text(text)
        command = ["rustc", "--edition", "2021", "-D", "warnings", str(folder / "program.rs"), "-o", program, "-L", directory, "-l", "hostpin"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [program]


def run(command, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOSTPIN_")}
    environment.update(variables, LD_LIBRARY_PATH=os.path.dirname(LIBRARY))
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_readme_has_all_three_languages():
    assert {language for language, _ in BLOCKS} == {"c", "rust", "python"}


@pytest.mark.parametrize("language, text", BLOCKS, ids=[f"{i}-{language}" for i, (language, _) in enumerate(BLOCKS)])
def test_program(language, text, tmp_path):
    command = build(language, text, tmp_path)

    pageable = run(command, HOSTPIN_BACKEND="none")
    assert pageable.returncode == 0, pageable.stderr
    assert pageable.stderr.count("\n") == 1 and "memory stays pageable" in pageable.stderr
    if "not pinned" in text:
        assert "not pinned" in pageable.stdout and "backend none" in pageable.stdout

    log = tmp_path / "calls"
    pinned = run(command, HOSTPIN_CUDART=CUDART, HOSTPIN_SIM=f"log={log}")
    assert pinned.returncode == 0 and pinned.stderr == "", pinned.stderr
    assert "not pinned" not in pinned.stdout
    calls = log.read_text()
    assert calls.count("cudaHostRegister") == calls.count("cudaHostUnregister") > 0


def test_variables_and_statuses_are_those_of_the_header():
    readme = open(README).read()
    header = open(os.path.join(INCLUDE, "hostpin.h")).read()
    for name, value in re.findall(r"^#define (HP_OK|HP_PAGEABLE|HP_FOREIGN|HP_E_\w+) \(?(-?\d+)\)?", header, flags=re.M):
        assert f"| `{name}` | {value} |" in readme
    for variable in set(re.findall(r"HOSTPIN_[A-Z_]+", header)):
        assert f"`{variable}`" in readme, variable
