"""The notes by which packagers learn what the library opens: complete, true, and there in every kind of program."""
import os
import subprocess

import pytest

from dlopen_notes import dlopen_notes

PREFIX = os.environ["HOSTPIN_PREFIX"]
SOURCE = os.environ["HOSTPIN_SOURCE"]
LIBRARY = PREFIX + "/lib/libhostpin.so"
FEATURES = {"cuda": "cuda", "hip": "hip", "level-zero": "level_zero"}  # and the backend's name

# Takes the place of the loader's, so that nothing that this machine has is found, and tells what was asked for.
DLOPEN = """
#include <dlfcn.h>
#include <stdio.h>
void *dlopen(const char *file, int mode) {
  if (!(mode & RTLD_NOLOAD)) printf("dlopen %s\\n", file);
  return 0;
}
"""


def run(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def features(path):
    return sorted(entry["feature"] for entry in dlopen_notes(path))


def test_the_notes_are_complete():
    notes = dlopen_notes(LIBRARY)
    assert [note["feature"] for note in notes] == list(FEATURES)
    for note in notes:
        assert set(note) == {"feature", "description", "priority", "soname"}
        assert note["priority"] == "suggested" and note["description"]
        assert note["soname"] and all(".so." in soname for soname in note["soname"])


@pytest.mark.parametrize("feature", FEATURES)
def test_the_sonames_are_those_that_are_opened_in_that_order(feature, tmp_path):
    (tmp_path / "dlopen.c").write_text(DLOPEN)
    run("cc", "-shared", "-fPIC", tmp_path / "dlopen.c", "-o", tmp_path / "dlopen.so")
    # Not through run(): without a backend, hostpin-info fails.
    shown = subprocess.run([PREFIX + "/bin/hostpin-info"], capture_output=True, text=True, timeout=100,
                           env={"LD_PRELOAD": f"{tmp_path}/dlopen.so", "LD_LIBRARY_PATH": PREFIX + "/lib",
                                "HOSTPIN_BACKEND": FEATURES[feature]})
    opened = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("dlopen ")]
    (note,) = [note for note in dlopen_notes(LIBRARY) if note["feature"] == feature]
    assert opened == note["soname"]


def test_a_static_program_has_them(tmp_path):
    (tmp_path / "program.c").write_text("#include <hostpin.h>\nint main(void) { return hp_unregister_all(0); }\n")
    run("cc", "-O2", "-flto", tmp_path / "program.c", "-o", tmp_path / "program", f"-I{PREFIX}/include",
        PREFIX + "/lib/libhostpin.a", "-lstdc++", "-pthread", "-Wl,--gc-sections", "-s")
    assert features(tmp_path / "program") == sorted(FEATURES)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("built_in", [[], ["cuda"], ["hip"], ["level-zero"], list(FEATURES)], ids=" ".join)
def test_each_backend_that_is_built_in_has_one(built_in, compiler, tmp_path):
    defines = [f"-DHOSTPIN_{backend.upper()}={int(feature in built_in)}" for feature, backend in FEATURES.items()]
    run(compiler, "-std=c++20", "-O2", "-flto", "-fPIC", "-shared", *defines, f"-I{SOURCE}/include",
        SOURCE + "/src/built_in.cpp", "-o", tmp_path / "library.so", "-nostdlib", "-Wl,--gc-sections", "-s")
    assert features(tmp_path / "library.so") == sorted(built_in)
