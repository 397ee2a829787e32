"""A piece of a driver segment, an object of a remote home; docs/FORMAT.md section 11.

offset  size  field
0       8     magic "LAMINAPC"
8       4     format version, 1
12      4     flags; 1: the data, to its end, has an ADOPT
16      16    identity of the home
32      8     sequence: the number in the object's name
40      8     generation of the segment
48      8     number of the segment
56      8     offset in the segment of the first byte of data
64      8     size of data
72      16    writer id: two pieces of the same bytes are told apart by it
88      4     CRC32C of data
92      4     CRC32C of bytes 0..92 and of the segment header
96      64    header of the segment
160     n     data
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c

from lamina.errors import Unsupported, WalDamaged
from lamina.format.home_names import DriverSegment, segment_path
from lamina.format.wal import HEADER_SIZE, Kind, decode_segment_header, kind_and_size

PIECE_VERSION: Final = 1
PIECE_HEADER_SIZE: Final = 160
_MAGIC: Final = b"LAMINAPC"
_ADOPTS: Final = 1
_PIECE = struct.Struct("<8sII16sQQQQQ16sI")
_CHECKSUM = struct.Struct("<I")
_HEAD_SIZE: Final = _PIECE.size + _CHECKSUM.size
assert _HEAD_SIZE + HEADER_SIZE == PIECE_HEADER_SIZE, "FORMAT.md says 160 bytes before the data"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a driver segment, and which."""

    sequence: int
    home: bytes
    segment: DriverSegment
    offset: int
    segment_header: bytes
    data: bytes
    writer: bytes
    adopts: bool = False  # with it an ADOPT is whole: from there on the log has no holes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def path(self) -> str:
        """Of the segment, in a home."""
        return segment_path(self.segment)

    @property
    def is_claim(self) -> bool:
        """Whether a process begins with it: such a piece stays for ever."""
        return self.offset == 0 and self.segment.number == 0


def encode_piece(piece: Piece) -> bytes:
    assert len(piece.home) == 16, "a home's identity is sixteen bytes"
    assert len(piece.writer) == 16, "a writer id is sixteen bytes"
    assert len(piece.segment_header) == HEADER_SIZE, "a segment header is 64 bytes"
    head = _PIECE.pack(
        _MAGIC,
        PIECE_VERSION,
        _ADOPTS if piece.adopts else 0,
        piece.home,
        piece.sequence,
        piece.segment.generation,
        piece.segment.number,
        piece.offset,
        len(piece.data),
        piece.writer,
        google_crc32c.value(piece.data),
    )
    crc = google_crc32c.value(head + piece.segment_header)
    return head + _CHECKSUM.pack(crc) + piece.segment_header + piece.data


def decode_piece(data: bytes, where: str) -> Piece:
    """The piece; WalDamaged unless every byte is as it was written."""
    if len(data) < PIECE_HEADER_SIZE or data[:8] != _MAGIC:
        raise WalDamaged("this object is not a piece of a log", where=where)
    head = data[: _PIECE.size]
    (checksum,) = _CHECKSUM.unpack_from(data, _PIECE.size)
    header = data[_HEAD_SIZE:PIECE_HEADER_SIZE]
    if google_crc32c.value(head + header) != checksum:
        raise WalDamaged("the header of the piece does not match its checksum", where=where)
    _, version, flags, home, sequence, generation, number, offset, size, writer, crc = (
        _PIECE.unpack(head)
    )
    if version != PIECE_VERSION:
        message = f"a piece of format {version}; this Lamina reads {PIECE_VERSION}"
        raise Unsupported(message, where=where)
    content = data[PIECE_HEADER_SIZE:]
    if len(content) != size:
        message = f"the piece should have {size} bytes of data and has {len(content)}"
        raise WalDamaged(message, where=where)
    if google_crc32c.value(content) != crc:
        raise WalDamaged("the data of the piece does not match its checksum", where=where)
    found = decode_segment_header(header, where)
    if found is None or (found.home, found.generation) != (home, generation):
        raise WalDamaged("the piece and its segment header do not belong together", where=where)
    segment = DriverSegment(generation, number)
    return Piece(sequence, home, segment, offset, header, content, writer, bool(flags & _ADOPTS))


def has_adopt(data: bytes, offset: int) -> bool:
    """Whether an ADOPT is among these whole records; *offset* is where in the segment they are."""
    at = HEADER_SIZE if offset == 0 else 0
    while at + HEADER_SIZE <= len(data):
        kind, size = kind_and_size(data, at)
        if kind == Kind.ADOPT:
            return True
        at += size
    return False
