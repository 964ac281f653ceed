"""The Rust crates on an installed library: their form, their bindings, their tests, and programs that use them."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

PREFIX = pathlib.Path(os.environ["HOSTPIN_PREFIX"])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
CRATES = SOURCE / "examples" / "rust"
BINDGEN = CRATES / "hostpin-sys" / "bindgen.sh"

HEADER = PREFIX / "include" / "hostpin.h"
PKGCONFIG = next(PREFIX.rglob("hostpin.pc")).parent
LIBRARIES = next(PREFIX.rglob("libhostpin.so.1")).parent
SIMULATION = next(PREFIX.rglob("libhostpin-sim.so.0"))
RUNTIMES = next(PREFIX.rglob("hostpin-sim/cudart12")).parent

NO_GPU = {"HOSTPIN_BACKEND": "none"}
CUDA = {"HOSTPIN_CUDART": str(RUNTIMES / "cudart12" / "libcudart.so.12")}
HIP = {"HOSTPIN_AMDHIP": str(RUNTIMES / "amdhip7" / "libamdhip64.so.7")}
# A device that pins memory which is mapped read-only.
READ_ONLY = {"HOSTPIN_SIM": "attribute=113:1"}


@pytest.fixture(scope="module")
def run():
    """Runs a program with a cargo whose files all go to a folder that is deleted in the end."""
    with tempfile.TemporaryDirectory() as folder:
        others = ("HOSTPIN_", "CARGO_", "RUST_", "RUSTFLAGS", "RUSTDOCFLAGS")
        common = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        common.update(
            # The distribution's tools before those of the user who runs this.
            PATH="/usr/bin:/bin:" + common["PATH"], CARGO_HOME=folder + "/home", CARGO_TARGET_DIR=folder + "/target",
            CARGO_INCREMENTAL="0", CARGO_PROFILE_DEV_DEBUG="0", CARGO_TERM_COLOR="never",
            PKG_CONFIG_PATH=str(PKGCONFIG), LD_LIBRARY_PATH=str(LIBRARIES))

        def run(*command, **variables):
            return subprocess.run(list(map(str, command)), cwd=CRATES, env={**common, **variables}, capture_output=True,
                                  text=True, timeout=300)

        run.target = pathlib.Path(folder, "target")
        fetched = run("cargo", "fetch", "--locked")
        assert fetched.returncode == 0, fetched.stderr
        common["CARGO_NET_OFFLINE"] = "true"
        yield run


def succeeds(done):
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done


def counts(done):
    """Tests that cargo test ran, and tests that it was to leave out."""
    results = re.findall(r"^test result: ok\. (\d+) passed; 0 failed; (\d+) ignored", succeeds(done).stdout, flags=re.M)
    return sum(int(passed) for passed, _ in results), sum(int(ignored) for _, ignored in results)


# ---- Form ------------------------------------------------------------------------------------------------------------


def test_rustfmt(run):
    succeeds(run("cargo", "fmt", "--all", "--check"))


def test_clippy(run):
    succeeds(run("cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"))


def test_documentation(run):
    succeeds(run("cargo", "doc", "--workspace", "--no-deps", "--locked", RUSTDOCFLAGS="-D warnings"))


# ---- Bindings --------------------------------------------------------------------------------------------------------


def bindings(run, header):
    return succeeds(run(BINDGEN, header)).stdout


def test_the_bindings_are_those_of_the_header(run):
    assert bindings(run, HEADER) == (CRATES / "hostpin-sys" / "src" / "bindings.rs").read_text()


@pytest.mark.parametrize("old, new", [
    ("#define HP_E_BUDGET (-14)", "#define HP_E_BUDGET (-15)"),
    ("HP_API uint32_t hp_version(void);", "HP_API uint32_t hp_version(void); HP_API void hp_new(void);"),
    ("hp_unregister(void *ptr);", "hp_unregister(const void *ptr);"),
    ("  uint32_t references; ", "  uint64_t references; "),
])
def test_another_header_has_other_bindings(run, old, new, tmp_path):
    text = HEADER.read_text()
    assert text.count(old) == 1
    changed = tmp_path / "hostpin.h"
    changed.write_text(text.replace(old, new))
    assert bindings(run, changed) != bindings(run, HEADER)


# ---- Tests of the crates ---------------------------------------------------------------------------------------------


def test_without_a_gpu(run):
    passed, left_out = counts(run("cargo", "test", "--workspace", "--locked", **NO_GPU))
    assert passed >= 34 and left_out == 20


@pytest.mark.parametrize("runtime", [CUDA, HIP], ids=["cuda", "hip"])
def test_on_a_simulated_runtime(run, runtime):
    passed, left_out = counts(run("cargo", "test", "--workspace", "--locked", "--", "--include-ignored",
                                  **runtime, **READ_ONLY))
    assert passed >= 54 and left_out == 0


def test_linked_statically(run, tmp_path):
    # No libhostpin.so can be found, so that a program which needed it would not start.
    (tmp_path / SIMULATION.name).symlink_to(SIMULATION)
    passed, left_out = counts(run("cargo", "test", "--workspace", "--tests", "--features", "hostpin/static", "--locked",
                                  "--", "--include-ignored", LD_LIBRARY_PATH=str(tmp_path), **CUDA, **READ_ONLY))
    assert passed >= 37 and left_out == 0


def test_a_library_that_is_not_there_is_named(run, tmp_path):
    check = ["cargo", "check", "--locked", "--target-dir", tmp_path]
    done = run(*check, PKG_CONFIG_PATH="", PKG_CONFIG_LIBDIR=str(tmp_path))
    assert done.returncode != 0 and "libhostpin 1.0 or later was not found. Install it" in done.stderr
    (tmp_path / "hostpin.pc").write_text("""
Name: hostpin
Description: The shared library alone
Version: 1.0.0
Libs: -L${pcfiledir} -lhostpin
""")
    done = run(*check, "--features", "hostpin/static", PKG_CONFIG_PATH=str(tmp_path))
    assert done.returncode != 0 and f'there is no libhostpin.a in ["{tmp_path}"]' in done.stderr


# ---- Programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", [NO_GPU, CUDA], ids=["none", "cuda"])
def test_error_paths_of_a_program_that_aborts_on_panic(run, runtime):
    succeeds(run("cargo", "build", "--profile", "abort", "--example", "error_paths", "--locked"))
    done = succeeds(run(run.target / "abort" / "examples" / "error_paths", **runtime,
                        HOSTPIN_SIM="fail=register:2+:2,fail=unregister:1:1"))
    gpu = "without a" if runtime == NO_GPU else "with a"
    assert done.stdout == f"aborts on panic: true\nsurvived {gpu} GPU\n"


@pytest.mark.parametrize("runtime", [NO_GPU, CUDA, HIP], ids=["none", "cuda", "hip"])
def test_the_example(run, runtime, tmp_path):
    log = tmp_path / "calls"
    done = succeeds(run("cargo", "run", "--quiet", "--locked", "--example", "pool", "200",
                        **runtime, HOSTPIN_SIM=f"log={log}"))
    assert done.stdout.startswith("200 MiB in 4 ranges, 200 blocks in each of 16 layers\n")
    assert "block 199 of layer 3: one copy from 0x" in done.stdout and "done in " in done.stderr
    if runtime == NO_GPU:
        assert "not pinned, which is only slower: no GPU runtime is usable" in done.stdout
    else:
        assert "pinned: copies run by DMA" in done.stdout
        assert log.read_text().count("HostRegister") == log.read_text().count("HostUnregister") == 4


@pytest.mark.parametrize("runtime", [NO_GPU, CUDA], ids=["none", "cuda"])
def test_the_program_of_the_readme_in_a_package_of_its_own(run, runtime, tmp_path):
    program, = re.findall(r"^```rust\n(.*?)^```$", (CRATES / "README.md").read_text(), flags=re.M | re.S)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.rs").write_text("#![deny(warnings)]\n" + program)
    (tmp_path / "Cargo.toml").write_text(f"""
        package = {{ name = "reader", edition = "2021" }}
        dependencies.hostpin.path = "{CRATES / "hostpin"}"
    """)
    shutil.copyfile(CRATES / "Cargo.lock", tmp_path / "Cargo.lock")  # not its mode, which may be read-only
    done = succeeds(run("cargo", "run", "--quiet", "--manifest-path", tmp_path / "Cargo.toml", **runtime))
    assert done.stdout.startswith("only slower: ") if runtime == NO_GPU else (done.stdout, done.stderr) == ("", "")
