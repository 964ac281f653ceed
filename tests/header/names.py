"""The header declares nothing outside hp_ and HP_, and just the functions that the version script exports."""
import re
import sys

header, version_script = sys.argv[1:]


text = open(header).read()
code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)

macros = re.findall(r"^#\s*define\s+(\w+)", code, flags=re.M)
assert macros, "no macros found"
strange = [m for m in macros if not m.startswith("HP_") and m != "HOSTPIN_H"]
assert not strange, f"macros outside HP_: {strange}"

functions = set(re.findall(r"\b(hp_\w+)\s*\(", code))
exported = set(re.findall(r"^\s*(hp_\w+);", open(version_script).read(), flags=re.M))
assert functions == exported, f"only in the header: {functions - exported}, only exported: {exported - functions}"

types = re.findall(r"^}\s*(\w+);|^typedef struct \w+ (\w+);", code, flags=re.M)
strange = [t for pair in types for t in pair if t and not t.startswith("hp_")]
assert types and not strange, f"types outside hp_: {strange}"

for forbidden in (r"\benum\b", r"\bstatic\b", r"\binline\b", r"\.\.\.", r"\w+\s*:\s*\d+\s*;"):
    assert not re.search(forbidden, code), f"{forbidden} in the header: bindings do not take it"

comments = "".join(re.findall(r"/\*.*?\*/", text, flags=re.S))
for function in functions:
    assert re.search(rf"\b{function} - ", comments), f"{function} has no description"
assert len(re.findall(r"Since \d+\.\d+", comments)) >= len(functions), "a function without its 'Since'"
