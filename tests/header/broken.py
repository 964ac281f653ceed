"""A copy of the sources that can be broken, and the ways to break it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
CC, CXX = os.environ.get("CC", "gcc").split(), os.environ.get("CXX", "g++").split()

# As pytest does, but faster.
RUN_TESTS = "import runpy, sys; [f() for name, f in runpy.run_path(sys.argv[1]).items() if name.startswith('test_')]"


class Copy:
    """The sources in a folder of their own, to be broken."""

    def __init__(self, folder):
        self.root = folder
        for part in ("include", "src", "abi"):
            shutil.copytree(ROOT / part, folder / part)
        shutil.copy(ROOT / "CHANGELOG.md", folder)
        (folder / "tests/header").mkdir(parents=True)
        shutil.copy(ROOT / "tests/header/test_header.py", folder / "tests/header")
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)  # the sources may be there only to be read

    def edit(self, file, old, new):
        text = (self.root / file).read_text()
        edited, count = re.subn(old, new, text, flags=re.S)
        assert count == 1, f"{count} times in {file}: {old}"
        (self.root / file).write_text(edited)

    def edit_all(self, edits):
        for edit in edits:
            self.edit(*edit)
        return self

    def library(self, compiler=CXX, optimization="-O0", rest=()):
        """Only api.cpp is compiled, since it alone holds what is exported. Without the rest such a library cannot run,
        but everything that the checks look at is there."""
        lib = self.root / "libhostpin.so"
        script = self.root / "abi/hostpin.map"
        subprocess.run([*compiler, "-std=c++20", "-g", optimization, "-fPIC", "-fno-rtti", "-fvisibility=hidden",
                        "-fvisibility-inlines-hidden", "-shared", "-I", self.root / "include",
                        self.root / "src/api.cpp", *rest, "-o", lib, "-Wl,-soname,libhostpin.so.1",
                        f"-Wl,--version-script={script}"], check=True)
        return lib

    def dump(self, library):
        return subprocess.run([self.root / "abi/dump", library], check=True, capture_output=True).stdout

    def header_passes(self):
        return subprocess.run(self.checks()["header"], cwd=self.root, capture_output=True).returncode == 0

    def failed_checks(self, library):
        failed = set()
        for check, command in self.checks(library).items():
            run = subprocess.run(command, capture_output=True, text=True, cwd=self.root)
            if run.returncode:
                failed.add(check)
                print(f"{check}: {run.stdout}{run.stderr}")
        return failed

    def checks(self, library=""):
        return {
            "symbols": [self.root / "abi/check-symbols", library],
            "dump": [self.root / "abi/check-dump", library],
            "layout": [*CC, "-std=c11", "-Wall", "-Wpadded", "-Werror", "-fsyntax-only", "-I", self.root / "include",
                       self.root / "abi/layout.c"],
            "header": [sys.executable, "-B", "-c", RUN_TESTS, self.root / "tests/header/test_header.py"],
        }


HEADER, SOURCE, SCRIPT = "include/hostpin.h", "src/api.cpp", "abi/hostpin.map"
NEW_FUNCTION = [
    (HEADER, r"(#ifdef __cplusplus\n}\n#endif)",
     r"/* hp_new - nothing. Since 1.99. */\nHP_API int32_t hp_new(void);\n\n\1"),
    (SOURCE, r"(}  // extern \"C\")", r"int32_t hp_new(void) { return 0; }\n\n\1"),
    (SCRIPT, r"\A(.*(HOSTPIN_[\d.]+) {[^{]*)\Z", r"\1HOSTPIN_1.99 {\n  global:\n    hp_new;\n} \2;\n"),
]
NEW_FIELD = [(HEADER, r"uint64_t reserved\[6\];(\n} hp_region;)", r"uint64_t device;\n  uint64_t reserved[5];\1")]

# Each break with the checks that notice it.
BREAKS = {
    "removed function": ([
        (HEADER, r"/\* hp_version_string -.*?\*/\nHP_API const char \*hp_version_string\(void\);\n", ""),
        (SOURCE, r"const char \*hp_version_string\(void\) {.*?\n}\n", ""),
        (SCRIPT, "    hp_version_string;\n", ""),
    ], {"symbols", "dump", "layout", "header"}),
    "changed parameter": ([
        (HEADER, r"(hp_unregister_all\()uint64_t", r"\1uint32_t"),
        (SOURCE, r"(hp_unregister_all\()uint64_t", r"\1uint32_t"),
    ], {"dump", "layout"}),
    "appended field": ([
        (HEADER, r"(uint64_t reserved\[6\];)(\n} hp_region;)", r"\1\n  uint64_t device;\2"),
    ], {"dump", "layout", "header"}),
    "changed return": ([
        (HEADER, r"int32_t (hp_query\()", r"int64_t \1"),
        (SOURCE, r"int32_t (hp_query\()", r"int64_t \1"),
    ], {"dump", "layout"}),
    "changed constant": ([(HEADER, r"(#define HP_E_STUCK \()-6", r"\1-60")], {"layout", "header"}),
    "leaked C++ symbols": ([(SCRIPT, r"  local:\n    \*;\n", "")], {"symbols", "dump"}),
    "leaked C++ function": ([
        (SOURCE, r"(extern \"C\" {)", 'namespace hp { HP_API void leak() {} }\n\n\\1'),
        (SCRIPT, r"(    hp_configure;)", r'    extern "C++" { "hp::leak()"; };\n\1'),
    ], {"symbols", "dump"}),
    "function in another node": ([
        (SCRIPT, r"    hp_version_string;\n(.*)\Z",
         r"\1HOSTPIN_1.99 {\n  global:\n    hp_version_string;\n} HOSTPIN_1.0;\n"),
    ], {"symbols", "dump"}),
    "function that is not recorded": (NEW_FUNCTION, {"symbols", "dump", "header"}),
    "field that is not recorded": (NEW_FIELD, {"dump", "layout", "header"}),
    "two fields of one type swapped": ([
        (HEADER, r"(  uint64_t start;[^\n]*\n)(  uint64_t end;[^\n]*\n)(  uint32_t flags;)", r"\2\1\3"),
    ], {"dump", "layout"}),
    "narrower field": ([(HEADER, r"uint64_t (pause_ns;)", r"uint32_t \1")], {"dump", "layout", "header"}),
    "parameter of another sign": ([
        (HEADER, r"(hp_strerror\()int32_t", r"\1uint32_t"),
        (SOURCE, r"(hp_strerror\()int32_t status\) { return hp::status_text\(",
         r"\1uint32_t status) { return hp::status_text((int32_t)"),
    ], {"dump", "layout"}),
    "parameter that is no longer constant": ([
        (HEADER, r"hp_configure\(const hp_config", "hp_configure(hp_config"),
        (SOURCE, r"hp_configure\(const hp_config", "hp_configure(hp_config"),
    ], {"dump", "layout"}),
    "handle of another type": ([
        (HEADER, r"hp_job_free\(hp_job \*job", "hp_job_free(hp_range *job"),
        (SOURCE, r"hp_job_free\(hp_job \*job(.*?)free_job\(job", r"hp_job_free(hp_range *job\1free_job((hp_job *)job"),
    ], {"dump", "layout"}),
}
