"""The header declares nothing outside hp_ and HP_, what it declares is what abi/ records, and bindings can take it."""
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "include/hostpin.h").read_text()
COMMENTS = "".join(re.findall(r"/\*.*?\*/", TEXT, flags=re.S))
CODE = re.sub(r"/\*.*?\*/", "", TEXT, flags=re.S)
DECLARATIONS = re.sub(r'^#.*?(?<!\\)$|extern "C" {|^}$', "", CODE, flags=re.M | re.S)
LAYOUT = re.sub(r"^#.*?(?<!\\)$", "", (ROOT / "abi/layout.c").read_text(), flags=re.M | re.S)
SYMBOLS = {line.split()[0]: line.split()[2]
           for line in (ROOT / "abi/symbols.txt").read_text().splitlines() if not line.startswith("#")}


def macros():
    return dict(re.findall(r"^#\s*define\s+(\w+)(?: +(\(-\d+\)|\w+)\s*$)?", CODE, flags=re.M))


def structures():
    """The fields of each structure, with their types."""
    found = {}
    for name, body in re.findall(r"struct (\w+)\s*{(.*?)}", DECLARATIONS, flags=re.S):
        fields = [re.match(r"\s*(.*?)\s*(\w+)(?:\[(\d+)\])?$", f).groups() for f in body.split(";") if f.strip()]
        found[name] = fields
    return found


def test_names():
    assert macros() and not [m for m in macros() if not m.startswith("HP_")]
    # Without bodies and parameter lists, whose names are not global, only the declared names and their types are left.
    outside = re.sub(r"\([^()]*\)", "", re.sub(r"{[^}]*}", "", DECLARATIONS))
    while "(" in outside:
        outside = re.sub(r"\([^()]*\)", "", outside)
    words = set(re.findall(r"\w+", outside))
    types = {"typedef", "struct", "const", "void", "char", "int32_t", "int64_t", "uint32_t"}
    assert "hp_register" in words and "hp_region" in words
    assert not [w for w in words - types if not w.startswith(("hp_", "HP_"))]


def test_functions_are_recorded():
    functions = re.findall(r"^HP_API[^;(]*?(\w+)\(", DECLARATIONS, flags=re.M)
    assert sorted(functions) == sorted(SYMBOLS)
    for declaration in filter(str.strip, re.sub(r"{[^}]*}", "", DECLARATIONS).split(";")):
        assert declaration.split()[0] in ("typedef", "HP_API"), f"not exported: {declaration}"


def test_functions_are_described():
    for function, since in SYMBOLS.items():
        # From its name to the end of the comment, which is where the version stands.
        description = re.search(rf"/\* {function} - (?:(?!\*/).)*?Since (\d+\.\d+)\. \*/", TEXT, flags=re.S)
        assert description, f"{function} has no description that ends in 'Since'"
        assert description[1] == since, f"{function}: {since} in symbols.txt, {description[1]} in the header"


def test_layout_lists_everything():
    values = {name: value.strip("()").removesuffix("u") for name, value in macros().items()
              if value and not name.startswith("HP_VERSION_")}
    assert set(macros()) - set(values) == {"HP_HEADER_H", "HP_API", "HP_MUST_CHECK"} | {
        f"HP_VERSION_{part}" for part in ("MAJOR", "MINOR", "PATCH")}
    assert dict(re.findall(r"^VALUE\((\w+), ([-\w]+)\);", LAYOUT, flags=re.M)) == values

    fields = []
    for name, members in structures().items():
        fields += [("RESERVED", f"{name}, {field}, {count}") if count else ("FIELD", f"{name}, {kind}, {field}")
                   for kind, field, count in members]
    assert sorted(re.findall(r"^SIZE\((\w+), \d+\);", LAYOUT, flags=re.M)) == sorted(structures())
    listed = re.findall(r"^(FIELD|RESERVED)\((.*), \d+\);", LAYOUT, flags=re.M)
    assert sorted(listed) == sorted(fields)

    assert sorted(re.findall(r"^FUNCTION\([^,]+, (\w+),", LAYOUT, flags=re.M)) == sorted(SYMBOLS)


def test_bindings_take_it():
    for forbidden in (r"\benum\b", r"\bstatic\b", r"\binline\b", r"\.\.\.", r"\w+\s*:\s*\d+\s*;"):
        assert not re.search(forbidden, CODE), f"{forbidden} in the header: bindings do not take it"
    # Rust's tools make documentation of the comments, and try to compile indented code in it.
    assert "@code" not in COMMENTS and "/**" not in COMMENTS
