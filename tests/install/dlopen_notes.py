"""What an ELF file says about the libraries that it opens at run time (UAPI.12): dlopen_notes.py FILE prints it as JSON."""
import json
import struct
import sys

OWNER, TYPE = b"FDO\0", 0x407C0C0A
PT_NOTE, PF_W = 4, 2


def round_up(n, alignment):
    return (n + alignment - 1) // alignment * alignment


def note_segments(data):
    """The bytes of each PT_NOTE segment with its alignment and flags. By segments, which remain when sections are stripped."""
    assert data[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, flags, offset, _, _, length, _, alignment = struct.unpack_from("<IIQQQQQQ", data, first + i * size)
        if kind == PT_NOTE:
            yield data[offset:offset + length], alignment, flags


def dlopen_notes(path):
    """The entries of all notes, in the file's order."""
    with open(path, "rb") as file:
        data = file.read()
    entries = []
    for segment, alignment, flags in note_segments(data):
        at = 0
        while at < len(segment):
            owner_size, text_size, kind = struct.unpack_from("<III", segment, at)
            text_at = round_up(at + 12 + owner_size, alignment)
            owner = segment[at + 12:at + 12 + owner_size]
            text = segment[text_at:text_at + text_size]
            at = round_up(text_at + text_size, alignment)
            if (owner, kind) == (OWNER, TYPE):
                assert not flags & PF_W, "the notes may be written to"
                assert len(text) == text_size and text[-1:] == b"\0"
                entries += json.loads(text[:-1])
    return entries


if __name__ == "__main__":
    print(json.dumps(dlopen_notes(sys.argv[1]), indent=2))
