"""The installed header as cffi takes it, and what hostpin.py says of the same functions, structures and constants."""
import ctypes
import os
import re
import subprocess
import sys

import cffi
import pytest
from variants import HEADER, LIBRARY, MODULES, VARIANTS

os.environ["HOSTPIN_LIBRARY"] = str(LIBRARY)
os.environ.update(VARIANTS["none"], HOSTPIN_LOG="off")
sys.path.insert(0, str(MODULES))
import hostpin  # noqa: E402

STRUCTURES = {
    "hp_range": hostpin._Range, "hp_copy": hostpin._Copy, "hp_job_options": hostpin._JobOptions,
    "hp_progress": hostpin._Progress, "hp_region": hostpin._Region, "hp_backend_info": hostpin._BackendInfo,
    "hp_stats": hostpin.Stats, "hp_config": hostpin._Config,
}


def preprocess(*options):
    """The header without directives and attributes. cffi parses neither."""
    command = ["cc", *options, "-E", "-P", "-D__attribute__(x)=", str(HEADER)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def parse(*options):
    ffi = cffi.FFI()
    ffi.cdef(preprocess(*options))
    return ffi


FFI = parse()
LIB = FFI.dlopen(str(LIBRARY))


def same_type(declared, ours):
    """Whether a ctypes type is what the header declares."""
    if declared.kind == "void":
        return ours is None
    if declared.kind == "primitive":
        unsigned = declared.cname.startswith("unsigned ")
        kinds = (ctypes.c_uint32, ctypes.c_uint64) if unsigned else (ctypes.c_int32, ctypes.c_int64)
        return ours in kinds and ctypes.sizeof(ours) == FFI.sizeof(declared)
    if declared.kind == "array":
        return ours._length_ == declared.length and same_type(declared.item, ours._type_)
    if declared.kind == "function":  # a pointer to one
        return same_type(declared.result, ours._restype_) and len(declared.args) == len(ours._argtypes_) \
            and all(map(same_type, declared.args, ours._argtypes_))
    target = declared.item  # of a pointer
    if target.cname in STRUCTURES:
        return ours is ctypes.POINTER(STRUCTURES[target.cname])
    if target.cname == "char":
        return ours is ctypes.c_char_p
    if target.kind in ("void", "struct"):  # hp_job is opaque
        return ours is ctypes.c_void_p
    return ours is ctypes.POINTER(ours._type_) and same_type(target, ours._type_)


@pytest.mark.parametrize("standard", ["c99", "c11", "c17", "gnu17"])
def test_cffi_takes_the_header(standard):
    ffi = parse("-std=" + standard)
    assert ffi.sizeof("hp_stats") == FFI.sizeof("hp_stats")


def test_the_library_can_be_used_through_cffi():
    assert FFI.string(LIB.hp_version_string()) == b"1.0.0"
    memory = FFI.new("char[4096]")
    assert LIB.hp_register(memory, 4096, 0) == 1 and LIB.hp_unregister(memory) == 0
    region = FFI.new("hp_region *", {"struct_size": FFI.sizeof("hp_region")})
    assert LIB.hp_query(FFI.cast("void *", 2**63 + 4096), 4096, region) == 1
    assert LIB.hp_unregister(FFI.cast("void *", 2**63 + 4096)) == -3
    assert b"0x8000000000001000" in FFI.string(LIB.hp_last_error())


def test_every_function_has_its_types():
    declared = set(re.findall(r"\b(hp_\w+)\s*\(", preprocess())) - {"hp_job"}
    assert declared == set(hostpin._FUNCTIONS) and len(declared) == 22
    for name in declared:
        function, ours = FFI.typeof(getattr(LIB, name)), getattr(hostpin.lib, name)
        assert not function.ellipsis
        assert len(ours.argtypes) == len(function.args), name
        for position, (argument, type_) in enumerate(zip(function.args, ours.argtypes)):
            assert same_type(argument, type_), (name, position, argument, type_)
        assert same_type(function.result, ours.restype), (name, function.result, ours.restype)


def test_every_structure_has_its_fields():
    assert set(re.findall(r"^} (hp_\w+);", preprocess(), flags=re.M)) == set(STRUCTURES)
    for name, ours in STRUCTURES.items():
        declared = FFI.typeof(name)
        assert [field for field, _ in declared.fields] == [field[0] for field in ours._fields_], name
        assert FFI.sizeof(declared) == ctypes.sizeof(ours), name
        for (field, description), (_, type_) in zip(declared.fields, ours._fields_):
            assert description.offset == getattr(ours, field).offset, (name, field)
            assert same_type(description.type, type_), (name, field, description.type, type_)
        if "struct_size" in dict(declared.fields):
            assert ours().struct_size == FFI.sizeof(declared)


def test_every_constant_has_its_value():
    header = HEADER.read_text()
    found = re.findall(r"^#define HP_(\w+) (\(?-?(?:0x)?[0-9a-f]+u?\)?)(?= |$)", header, flags=re.M)
    constants = {name: int(value.strip("()").rstrip("u"), 0) for name, value in found}
    assert len(constants) == len(re.findall(r"^#define HP_\w+ [^_]", header, flags=re.M))
    ours = {status.name: status.value for status in hostpin.Status}
    for prefix, kind in [("REGISTER_", hostpin.Register), ("BACKEND_", hostpin.Backend), ("CAP_", hostpin.Capability),
                         ("JOB_", hostpin.JobState), ("LOG_", hostpin.LogLevel)]:
        ours.update({prefix + member.name: member.value for member in kind})
    major, minor, patch = map(int, hostpin.__version__.split("."))
    ours.update(VERSION_MAJOR=major, VERSION_MINOR=minor, VERSION_PATCH=patch)
    assert constants == ours
    assert hostpin.lib.hp_version() == major << 16 | minor << 8 | patch
