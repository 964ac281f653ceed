"""abi/check-release, with a release made for the purpose, and on the project's own."""
import os
import pathlib
import shutil
import subprocess

import pytest

from broken import BREAKS, NEW_FUNCTION, ROOT, Copy

LIBRARY, INTERNAL, CUDART = (pathlib.Path(os.environ[v]) for v in ("HOSTPIN_LIBRARY", "HOSTPIN_INTERNAL", "SIM_CUDART"))
# A driver of the machine is none of these tests' business.
PLAIN = {name: os.environ[name] for name in ("PATH", "TMPDIR", "CC") if name in os.environ}
NOT_PINNED = PLAIN | {"HOSTPIN_BACKEND": "none"}
PINNED = PLAIN | {"HOSTPIN_BACKEND": "cuda", "HOSTPIN_CUDART": str(CUDART)}
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
       "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


@pytest.fixture
def released(tmp_path):
    """The sources as they are, with a tag."""
    copy = Copy(tmp_path / "copy")
    (copy.root / "examples").mkdir()
    shutil.copy(ROOT / "examples/pin_buffer.c", copy.root / "examples")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "release"], ["tag", "v1.0.0"]):
        subprocess.run(["git", *command], check=True, cwd=copy.root, env=NOT_PINNED | GIT)
    return copy


def check(copy, library=LIBRARY, environment=NOT_PINNED, tag=()):
    command = [copy.root / "abi/check-release", library, *tag]
    return subprocess.run(command, env=environment | GIT, capture_output=True, text=True)


@pytest.mark.parametrize("environment", [NOT_PINNED, PINNED])
def test_unchanged(released, environment):
    run = check(released, environment=environment)
    assert run.returncode == 0, run.stderr
    assert "built at v1.0.0 runs" in run.stdout


def test_checkout_of_another_user(released):
    run = check(released, environment=NOT_PINNED | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
    assert run.returncode == 0, run.stderr
    assert "built at v1.0.0 runs" in run.stdout


def test_checkout_that_git_cannot_read(released):
    (released.root / ".git").rename(released.root / "hidden")
    assert "is not the top of a git checkout" in check(released).stdout
    (released.root / ".git").write_text("gitdir: /nonexistent\n")
    run = check(released)
    assert run.returncode != 0 and "/nonexistent" in run.stderr


def rebuilt(copy):
    return copy.library(rest=[INTERNAL, "-pthread", "-ldl"])


def test_compatible_changes(released):
    released.edit_all(NEW_FUNCTION + [
        ("include/hostpin.h", "(#define HP_VERSION_MINOR) [0-9]+", r"\1 99"),
        ("include/hostpin.h", r"uint64_t reserved\[8\];(\n} hp_stats;)", r"uint64_t news;\n  uint64_t reserved[7];\1"),
        ("src/api.cpp", "(    out->failed_other = c.failed_other;)", r"\1\n    out->news = 1;"),
    ])
    run = check(released, rebuilt(released))
    assert run.returncode == 0, run.stderr


def test_removed_function(released):
    released.edit_all(BREAKS["removed function"][0])
    run = check(released, rebuilt(released))
    assert run.returncode == 1
    assert "hostpin.h is not what programs were compiled with" in run.stderr
    assert "every_function, built at v1.0.0, ends with 127" in run.stderr and "hp_version_string" in run.stderr
    released.edit("abi/symbols.txt", "hp_version_string[^\n]*\n", "")
    assert "in symbols.txt of v1.0.0 and not today's: hp_version_string" in check(released).stderr


def test_appended_field(released):
    released.edit_all(BREAKS["appended field"][0])
    run = check(released, rebuilt(released))
    assert run.returncode == 1 and "hostpin.h is not what programs were compiled with" in run.stderr
    assert "every_function, built at v1.0.0, ends with 1" in run.stderr and "hp_query" in run.stderr


def test_changed_constant(released):
    released.edit("include/hostpin.h", r"(#define HP_E_INVALID \()-1", r"\1-100")
    run = check(released, rebuilt(released))
    assert run.returncode == 1 and "hostpin.h is not what programs were compiled with" in run.stderr
    assert "every_function, built at v1.0.0, ends with 1" in run.stderr and "HP_E_INVALID" in run.stderr


def test_another_soname(released):
    released.edit("include/hostpin.h", "(#define HP_VERSION_MAJOR) 1", r"\1 2")
    run = check(released)
    assert run.returncode == 0 and "no release 2.x to compare with" in run.stdout
    run = check(released, tag=["v1.0.0"])
    assert run.returncode == 1 and "is not libhostpin.so.2" in run.stderr


def test_this_project():
    run = subprocess.run([ROOT / "abi/check-release", LIBRARY], env=NOT_PINNED, capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stderr
