"""A checkpoint as one tar file; the layout is docs/FORMAT.md section 13.

<id>/manifest.json          the very bytes that the commit log vouches for
lamina-export-1.sha256      a line for the manifest and for each file, as `sha256sum -c` reads them
<path>                      each file that the manifest names, sorted by path
two blocks of zeros         and nothing behind them

Every header follows from name and size, so the same checkpoint is the same tar; and a reader can
compare each header with the only one that is right there.

offset  size  field of a header (ustar)
0       100   name, padded with zeros; a longer one is in a pax record before, and cut here
100     8     mode 0000644, then uid, gid: 0000000
124     12    size in octal; one of 8 GiB or more is in a pax record, and 0 here
136     12    mtime: 0
148     8     checksum: sum of all bytes with spaces here, in octal
156     1     type: `0` a file, `x` pax records
257     8     `ustar`, 0, `00`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lamina.errors import Corrupt, Unsupported
from lamina.format.names import parse_id
from lamina.ids import CheckpointId

BLOCK = 512
NAME_MAX = 100
SIZE_MAX = 0o77777777777
END = bytes(2 * BLOCK)
SUMS = "lamina-export-1.sha256"
_SUMS_OF_ANY_VERSION = "lamina-export-"
_MANIFEST = "/manifest.json"
ADVICE = "An export is read as it was written: make it again with `lamina export`"
_TYPES = {
    **dict.fromkeys((b"0", b"\0", b"7"), "a file"),
    **dict.fromkeys((b"1", b"2"), "a link"),
    **dict.fromkeys((b"3", b"4"), "a device"),
    **dict.fromkeys((b"x", b"g"), "a pax header"),
    **dict.fromkeys((b"K", b"L"), "a GNU header"),
    b"5": "a folder",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive, by what its header says."""

    name: str
    size: int

    @property
    def header(self) -> bytes:
        """The blocks before its bytes."""
        name = self.name.encode()
        records = b""
        if len(name) > NAME_MAX:
            records += _record(b"path", name)
        if self.size > SIZE_MAX:
            records += _record(b"size", b"%d" % self.size)
        head = _block(name[:NAME_MAX], 0 if self.size > SIZE_MAX else self.size, b"0")
        if not records:
            return head
        return _block(b"pax", len(records), b"x") + records + bytes(padding(len(records))) + head

    @property
    def total_size(self) -> int:
        """With header and padding."""
        return len(self.header) + self.size + padding(self.size)


def padding(size: int) -> int:
    """How many zeros follow so many bytes."""
    return -size % BLOCK


def manifest_member(id: CheckpointId, size: int) -> Member:
    return Member(f"{id}{_MANIFEST}", size)


def read_manifest_header(block: bytes, where: str) -> tuple[CheckpointId, int]:
    """The first header: which checkpoint this is, and the size of its manifest.

    Corrupt if the archive does not begin as an export does.
    """
    name = _text(block[:NAME_MAX])
    id = parse_id(name.removesuffix(_MANIFEST)) if name.endswith(_MANIFEST) else None
    size = _octal(block[124:136])
    is_possible = id is not None and size is not None and 0 <= size <= SIZE_MAX
    if is_possible and block == Member(name, size or 0).header:
        assert id is not None
        return id, size or 0
    raise Corrupt(
        "this is not an export of Lamina: it does not begin with the manifest of a checkpoint",
        where=where,
        advice="`lamina export` makes one; a folder of LaminarDB is imported by its path",
    )


def read_sums_header(block: bytes, where: str) -> int:
    """The second header: the size of the list of digests."""
    size = _octal(block[124:136]) if len(block) == BLOCK else None
    expected = Member(SUMS, size if size is not None and 0 <= size <= SIZE_MAX else 0)
    check_header(block, expected, where)
    return expected.size


def check_header(found: bytes, expected: Member, where: str) -> None:
    """What stands where *expected* must begin; Corrupt says what is there instead."""
    if found == expected.header:
        return
    if len(found) < len(expected.header):
        raise truncated(where)
    block = found[:BLOCK]
    name = _text(block[:NAME_MAX])
    if expected.name == SUMS and name.startswith(_SUMS_OF_ANY_VERSION) and name != SUMS:
        raise Unsupported(f"an export of a newer release: it has {name[:80]!r}", where=where)
    what = (
        "the end of the archive" if not any(block) else _TYPES.get(block[156:157], "something else")
    )
    named = f" {name[:80]!r}" if any(block) else ""
    size = _octal(block[124:136])
    amount = f" of {size} bytes" if any(block) and size is not None else ""
    raise Corrupt(
        f"here is {what}{named}{amount} where the file {expected.name!r} of {expected.size} bytes "
        "must be",
        where=where,
        advice=ADVICE,
    )


def truncated(where: str) -> Corrupt:
    return Corrupt("the archive is cut short", where=where, advice="Copy or export it again")


def foreign_end(where: str) -> Corrupt:
    return Corrupt("something follows the last file of the archive", where=where, advice=ADVICE)


def foreign_padding(where: str) -> Corrupt:
    return Corrupt("there are bytes between two files of the archive", where=where, advice=ADVICE)


def encode_sums(files: Iterable[tuple[str, str]]) -> bytes:
    """Digest and name of each file, in the order of the archive."""
    return "".join(f"{digest}  {name}\n" for digest, name in files).encode()


def total_size(members: Iterable[Member]) -> int:
    """Bytes of the whole archive."""
    return sum(member.total_size for member in members) + len(END)


def _block(name: bytes, size: int, kind: bytes) -> bytes:
    fields = [
        name.ljust(NAME_MAX, b"\0"),
        b"0000644\0" + b"0000000\0" * 2,
        b"%011o\0" % size,
        b"%011o\0" % 0,
        b" " * 8,
        kind,
        bytes(100),
        b"ustar\00000",
        bytes(247),
    ]
    block = b"".join(fields)
    assert len(block) == BLOCK
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _record(key: bytes, value: bytes) -> bytes:
    """`27 path=...`: the number is the length of the record, itself included."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while len(rest) + len(b"%d" % length) != length:
        length = len(rest) + len(b"%d" % length)
    return b"%d%s" % (length, rest)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "backslashreplace")


def _octal(field: bytes) -> int | None:
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        return None


def blocks_of(size: int, part: int) -> Iterator[int]:
    """How many bytes to read next, until *size* are read."""
    while size > 0:
        yield min(size, part)
        size -= min(size, part)
