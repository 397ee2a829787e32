"""WAL segments and records; the layout is docs/FORMAT.md section 7.

Segment header, 64 bytes:
offset  size  field
0       8     magic "LAMINAWL"
8       4     format version, 1
12      4     core; 0xFFFFFFFF for the driver
16      16    identity of the home
32      8     generation
40      8     first sequence
48      4     partitions, P
52      8     zero
60      4     CRC32C of bytes 0..60

Record header, 64 bytes, at a multiple of 64; then the payload, padded with zeros to 64:
0       4     magic "LREC"
4       1     kind
5       1     flags; 1: a reader that does not know the kind may pass over it
6       2     zero
8       8     epoch
16      8     first sequence
24      4     count of entries
28      4     payload size
32      8     durable: up to where this segment was synced when the record was written
40      4     blank: how many of the record's 512-byte sectors are all zero
44      12    zero
56      4     CRC32C of header bytes 0..56, payload and padding
60      4     CRC32C of header bytes 0..60

Both record checksums start from the segment header's checksum and the record's own offset: a record
that stands in another segment or at another place does not match.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import google_crc32c

from lamina.errors import Unsupported, WalDamaged

if TYPE_CHECKING:
    import pyarrow as pa

WAL_VERSION: Final = 1
ALIGNMENT: Final = 64
SECTOR: Final = 512
DRIVER_CORE: Final = 0xFFFF_FFFF
PAYLOAD_BYTES_MAX: Final = 1 << 30
"""The same for writers and readers: more is refused here and damage there."""

_SEGMENT = struct.Struct("<8sII16sQQI8s")
_RECORD = struct.Struct("<4sBBHQQIIQI12s")
_CHECKSUM = struct.Struct("<I")
_OFFSET = struct.Struct("<Q")
HEADER_SIZE: Final = 64
_SEGMENT_MAGIC: Final = b"LAMINAWL"
_RECORD_MAGIC: Final = b"LREC"
_OPTIONAL: Final = 1
assert _SEGMENT.size == HEADER_SIZE - 4, "FORMAT.md says a segment header is 64 bytes"
assert _RECORD.size == HEADER_SIZE - 8, "FORMAT.md says a record header is 64 bytes"


class Kind(IntEnum):
    RUN = 1
    BARRIER = 2
    COMMIT = 3
    CHECKPOINT = 4
    TAKEOVER = 5
    ADOPT = 6
    OUTPUT = 7
    MOVED = 8


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Whose log this is: a file that does not belong here is found by its first 64 bytes."""

    home: bytes
    generation: int
    core: int
    partitions: int
    first_sequence: int


@dataclass(frozen=True, slots=True)
class RecordHeader:
    kind: int
    epoch: int
    first_sequence: int
    count: int
    payload_size: int
    durable: int
    blank: int
    payload_crc: int
    optional: bool = False

    @property
    def size(self) -> int:
        """Bytes in the file: header, payload, padding."""
        return HEADER_SIZE + padded(self.payload_size)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def encode_segment_header(header: SegmentHeader) -> bytes:
    assert len(header.home) == 16, "a home's identity is sixteen bytes"
    head = _SEGMENT.pack(
        _SEGMENT_MAGIC,
        WAL_VERSION,
        header.core,
        header.home,
        header.generation,
        header.first_sequence,
        header.partitions,
        bytes(8),
    )
    return head + _CHECKSUM.pack(google_crc32c.value(head))


def decode_segment_header(data: bytes, where: str) -> SegmentHeader | None:
    """The header, or None if the file ends before it does; Corrupt if it is all there and wrong."""
    if len(data) < HEADER_SIZE or not any(data[:HEADER_SIZE]):
        return None
    head, checksum = data[: HEADER_SIZE - 4], data[HEADER_SIZE - 4 : HEADER_SIZE]
    magic, version, core, home, generation, first, partitions, zero = _SEGMENT.unpack(head)
    if magic != _SEGMENT_MAGIC:
        raise WalDamaged("this is not a WAL segment", where=where)
    if version != WAL_VERSION and _CHECKSUM.pack(google_crc32c.value(head)) == checksum:
        raise Unsupported(f"WAL format {version}; this Lamina reads {WAL_VERSION}", where=where)
    if _CHECKSUM.pack(google_crc32c.value(head)) != checksum or any(zero):
        raise WalDamaged("the segment header does not match its checksum", where=where)
    return SegmentHeader(home, generation, core, partitions, first)


def binding_of(segment_header: bytes) -> int:
    """What ties records to their segment: the checksum in its header.

    Not the CRC32C of all 64 bytes: over data and its own CRC that is the same for every segment.
    """
    return _number(segment_header, HEADER_SIZE - 4)


def encode_record(
    payload: Sequence[bytes | pa.Buffer],
    *,
    kind: Kind,
    epoch: int,
    first_sequence: int,
    count: int,
    offset: int,
    durable: int,
    binding: int,
    optional: bool = False,
) -> tuple[bytes, bytes]:
    """The 64 bytes before the payload and the padding behind it; its parts are not copied."""
    size = sum(map(len, payload))
    assert size <= PAYLOAD_BYTES_MAX, "the writer refuses what readers would take for damage"
    assert offset % ALIGNMENT == 0, "records begin at a multiple of 64"
    padding = bytes(padded(size) - size)
    blank = blank_sectors(payload, offset)
    head = _RECORD.pack(
        _RECORD_MAGIC,
        kind,
        _OPTIONAL if optional else 0,
        0,
        epoch,
        first_sequence,
        count,
        size,
        durable,
        blank,
        bytes(12),
    )
    bound = _bind(binding, offset)
    head += _CHECKSUM.pack(_payload_crc(bound, head, (*payload, padding)))
    return head + _CHECKSUM.pack(google_crc32c.extend(bound, head)), padding


def decode_record_header(data: bytes, *, offset: int, binding: int) -> RecordHeader | None:
    """The header at *offset*, or None if these 64 bytes are not one."""
    if len(data) < HEADER_SIZE or data[:4] != _RECORD_MAGIC:
        return None
    if google_crc32c.extend(_bind(binding, offset), bytes(data[:60])) != _number(data, 60):
        return None
    _, kind, flags, _, epoch, first, count, size, durable, blank, _ = _RECORD.unpack(data[:56])
    if size > PAYLOAD_BYTES_MAX:
        return None
    return RecordHeader(
        kind=kind,
        epoch=epoch,
        first_sequence=first,
        count=count,
        payload_size=size,
        durable=durable,
        blank=blank,
        payload_crc=_number(data, 56),
        optional=bool(flags & _OPTIONAL),
    )


def kind_and_size(data: bytes, offset: int) -> tuple[int, int]:
    """Of the record at *offset* in bytes that are proven, how many of them it has."""
    (size,) = struct.unpack_from("<I", data, offset + 28)
    return data[offset + 4], HEADER_SIZE + padded(size)


def payload_matches(
    header: bytes,
    payload: bytes | pa.Buffer,
    padding: bytes | pa.Buffer,
    *,
    offset: int,
    binding: int,
) -> bool:
    """Whether payload and padding are those that the header was written for."""
    found = _payload_crc(_bind(binding, offset), bytes(header[:56]), (payload, padding))
    return found == _number(header, 56)


def blank_sectors(payload: Sequence[bytes | pa.Buffer], offset: int) -> int:
    """How many 512-byte sectors of the record at *offset* are all zero.

    A sector that never reached the disk reads as zeros: more of them than the header says means
    torn. The header's own sector is never one. Only sectors that begin with a zero are looked at,
    so the common case costs one byte in 512.
    """
    import numpy as np  # noqa: PLC0415  slow to import; who reads whole records needs none

    blank = 0
    position = offset + HEADER_SIZE
    for index, part in enumerate(payload):
        data = np.frombuffer(part, dtype=np.uint8)
        lead = -position % SECTOR
        position += len(part)
        starts = data[lead::SECTOR]
        if starts.all():
            continue
        whole = max(0, len(data) - lead) // SECTOR
        sectors = data[lead : lead + whole * SECTOR].reshape(-1, SECTOR)
        suspects = sectors[starts[:whole] == 0]
        blank += len(suspects) - int(np.count_nonzero(suspects.any(axis=1)))
        if len(starts) > whole and starts[-1] == 0:
            rest = [memoryview(part)[lead + whole * SECTOR :], *payload[index + 1 :]]
            blank += _begins_blank(rest)
    return blank


def _begins_blank(parts: Iterable[bytes | pa.Buffer | memoryview]) -> bool:
    """Whether a sector that is spread over parts is all zero, as far as the payload goes."""
    left = SECTOR
    for part in parts:
        if bytes(memoryview(part)[:left]).strip(b"\0"):
            return False
        left -= len(part)
        if left <= 0:
            break
    return True


def _payload_crc(bound: int, head: bytes, parts: Iterable[bytes | pa.Buffer]) -> int:
    crc = int(google_crc32c.extend(bound, head))
    for part in parts:
        crc = int(google_crc32c.extend(crc, part))
    return crc


def _bind(binding: int, offset: int) -> int:
    return int(google_crc32c.extend(binding, _OFFSET.pack(offset)))


def _number(data: bytes, offset: int) -> int:
    return int(_CHECKSUM.unpack_from(data, offset)[0])
