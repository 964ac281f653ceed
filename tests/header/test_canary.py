"""The checks of the interface fail for a library that was broken on purpose, each kind of break by the checks that
broken.py names, and pass for what is allowed."""
import subprocess

import pytest

from broken import BREAKS, HEADER, NEW_FIELD, NEW_FUNCTION, SOURCE, Copy


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


@pytest.mark.parametrize("broken", BREAKS)
def test_break_is_noticed(copy, broken):
    edits, noticed_by = BREAKS[broken]
    assert copy.edit_all(edits).failed_checks(copy.library()) == noticed_by


@pytest.mark.parametrize("line", [
    "#define OTHER 1", "#define HP_NEW 1", "typedef int32_t other_t;", "typedef struct other other;",
    "typedef struct hp_new { int32_t a; } hp_new;", "extern int32_t hp_new;", "HP_API int32_t other(void);",
    "HP_API int32_t hp_new(void);", "static inline int32_t hp_new(void) { return 0; }", "enum { HP_NEW };",
    "/** Documentation. */",
])
def test_line_in_the_header_is_noticed(copy, line):
    assert copy.header_passes()
    copy.edit(HEADER, r"(#ifdef __cplusplus\n}\n#endif)", line + r"\n\1")
    assert not copy.header_passes()


@pytest.mark.parametrize("comment,other", [("Since 1.0. ", ""), ("Since 1.0. ", "Since 1.1. "), ("hp_version - ", "")])
def test_comment_of_a_function_is_noticed(copy, comment, other):
    copy.edit(HEADER, r"(/\* hp_version - [^/]*\*/)", lambda found: found[1].replace(comment, other))
    assert not copy.header_passes()


@pytest.mark.parametrize("optimization", ["-O0", "-O2"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_unbroken_passes(copy, compiler, optimization):
    assert copy.failed_checks(copy.library([compiler], optimization)) == set()


def test_stripped_library_is_refused(copy):
    library = copy.edit_all(BREAKS["changed return"][0]).library()
    subprocess.run(["strip", library], check=True)
    plainly = subprocess.run(["abidiff", "--no-architecture", copy.root / "abi/hostpin.abi", library])
    assert plainly.returncode == 0, "abidiff sees it by itself now: check-dump need not look for debug information"
    assert copy.failed_checks(library) == {"dump", "layout"}


def test_dump_is_the_same_from_everywhere(copy, tmp_path):
    other = Copy(tmp_path / "elsewhere/deeper")
    assert copy.dump(copy.library()) == other.dump(other.library(optimization="-O2"))


def test_recorded_function_passes(copy):
    copy.edit_all(NEW_FUNCTION + [
        ("abi/symbols.txt", r"\Z", "hp_new HOSTPIN_1.99 1.99\n"),
        ("abi/layout.c", r"\Z", "FUNCTION(int32_t, hp_new, (void));\n"),
    ])
    library = copy.library()
    (copy.root / "abi/hostpin.abi").write_bytes(copy.dump(library))
    assert copy.failed_checks(library) == {"symbols"}, "not named in CHANGELOG.md"
    copy.edit("CHANGELOG.md", "(## 1.0.0)", r"## 1.99.0 - unreleased\n\n- `hp_new` does nothing.\n\n\1")
    assert copy.failed_checks(library) == set()


def test_recorded_field_passes(copy):
    copy.edit_all(NEW_FIELD + [
        ("abi/layout.c", r"RESERVED\(hp_region, reserved, 6, 48\);",
         "FIELD(hp_region, uint64_t, device, 48);\nRESERVED(hp_region, reserved, 5, 56);"),
    ])
    library = copy.library()
    (copy.root / "abi/hostpin.abi").write_bytes(copy.dump(library))
    assert copy.failed_checks(library) == set()


def test_inside_of_a_job_is_not_compared(copy):
    copy.edit(SOURCE, r"(extern \"C\" {)", r"struct hp_job { int member; };\n"
              r"int inside(hp_job *job);\nint inside(hp_job *job) { return job->member; }\n\n\1")
    assert copy.failed_checks(copy.library()) == set()


def test_suppressions_are_read(copy):
    copy.edit_all(BREAKS["appended field"][0])
    copy.edit("abi/suppressions", r"\Z", "[suppress_type]\n  name = hp_region\n")
    assert "dump" not in copy.failed_checks(copy.library())
