"""The header compiles in every version of C and C++ that it promises, by gcc and clang, warnings being errors."""
import pathlib
import subprocess

import pytest

INCLUDE = pathlib.Path(__file__).parents[2] / "include"
# As both compilers of Debian 12 spell C23 and C++23.
C, CPP = ["c99", "c11", "c17", "c2x"], ["c++17", "c++20", "c++2b"]
COMPILERS = [(compiler, std) for compilers, stds in ((("gcc", "clang"), C), (("g++", "clang++"), CPP))
             for compiler in compilers for std in stds]
# What the libraries of others are compiled with.
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wundef", "-Wconversion"]
STRICT_OF = {"c": ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wold-style-definition"],
             "c++": ["-Wold-style-cast", "-Wzero-as-null-pointer-constant"]}


def complaints(compiler, std, include, source="#include <hostpin.h>\n"):
    language = "c++" if "++" in std else "c"
    return subprocess.run([compiler, f"-std={std}", *STRICT, *STRICT_OF[language], "-fsyntax-only", "-I", include,
                           "-x", language, "-"], input=source, capture_output=True, text=True).stderr


@pytest.mark.parametrize("compiler,std", COMPILERS)
def test_compiles(compiler, std):
    assert complaints(compiler, std, INCLUDE) == ""
    # Included twice, and after what it needs itself.
    assert complaints(compiler, std, INCLUDE, "#include <stdint.h>\n" + 2 * "#include <hostpin.h>\n") == ""


# What would have to be noticed, and where.
MISTAKES = {
    "a line that is no declaration": ("HP_API int32_t hp_new(void) int;", C + CPP),
    "a word of C++": ("HP_API int32_t hp_new(void *new);", CPP),
    "a structure without a name": ("typedef struct hp_new { struct { int32_t a; }; } hp_new;", ["c99"] + CPP),
    "a declaration without parameters": ("HP_API int32_t hp_new();", ["c99", "c11", "c17"]),
    "a type that is not declared": ("HP_API ssize_t hp_new(void);", C + CPP),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake, tmp_path):
    line, noticed_in = MISTAKES[mistake]
    header = (INCLUDE / "hostpin.h").read_text()
    end = header.rindex("#ifdef __cplusplus")
    (tmp_path / "hostpin.h").write_text(header[:end] + line + "\n" + header[end:])
    for compiler, std in COMPILERS:
        noticed = complaints(compiler, std, tmp_path) != ""
        # C23 made () what (void) is; clang 14 has not learned it yet.
        if mistake == "a declaration without parameters" and std == "c2x":
            continue
        assert noticed == (std in noticed_in), (compiler, std)
