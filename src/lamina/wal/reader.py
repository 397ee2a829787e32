"""Reads segments: records, then how the file ends.

Clean    the last record ends where the file does
Torn     the file ends inside a record, or a sector of it never reached the disk (R14)
damage   anything else: raised, with place, expected and actual

Torn is believed only of bytes that nobody has synced: if a later record says that the segment was
durable beyond the torn place, the place is damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Union

from lamina.disk.base import Disk
from lamina.errors import Unsupported, WalDamaged
from lamina.format.wal import (
    ALIGNMENT,
    HEADER_SIZE,
    Kind,
    RecordHeader,
    SegmentHeader,
    binding_of,
    blank_sectors,
    decode_record_header,
    decode_segment_header,
    padded,
    payload_matches,
)

if TYPE_CHECKING:
    import pyarrow as pa

_WINDOW = 1 << 20
_LAST_WINDOWS = (1 << 14, 1 << 20, 1 << 23)
"""How far back from the end the last record is looked for, step by step."""
_MAGIC = b"LREC"
_KNOWN = frozenset(map(int, Kind))

Proven = set[tuple[str, int, int, int]]
"""Records whose payload was read and found good: segment, offset, size, CRC."""


Bytes = Union[bytes, "pa.Buffer"]
Part = Callable[[int, int], Bytes]
"""Some bytes of a segment, by offset and size."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record and where it is; the payload has been checked if it is there."""

    segment: str
    offset: int
    header: RecordHeader
    payload: Bytes | None  # mapped ones are Arrow's

    @property
    def kind(self) -> Kind:
        return Kind(self.header.kind)

    @property
    def epoch(self) -> int:
        return self.header.epoch

    @property
    def end(self) -> int:
        return self.offset + self.header.size

    def batch(self) -> pa.RecordBatch:
        """The Arrow batch of a RUN; its buffers are those of the payload, not copies."""
        import pyarrow as pa  # noqa: PLC0415  slow to import; who only reads decisions needs none

        assert self.payload is not None, "read it with payloads"
        try:
            return pa.ipc.open_stream(pa.py_buffer(self.payload)).read_next_batch()
        except (pa.ArrowInvalid, StopIteration) as error:
            where = f"{self.segment}, byte {self.offset}"
            raise WalDamaged(f"a RUN is not a valid Arrow batch: {error}", where=where) from error


@dataclass(frozen=True, slots=True)
class Clean:
    end: int


@dataclass(frozen=True, slots=True)
class Torn:
    """Where the readable part ends, how many bytes are left aside, and why."""

    end: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged:
    """The first bad place of a segment whose bytes nobody needs to believe (R1)."""

    end: int
    bytes: int
    reason: str


class SegmentReader:
    """One segment file. Reading changes nothing and maps nothing unless `mapped` is asked for."""

    def __init__(self, disk: Disk, path: str, proven: Proven | None = None) -> None:
        """With *proven* every good payload is noted there, and `at` does not check it again."""
        self._disk = disk
        self._proven = proven
        self.path = path
        size = disk.size(path)
        head = disk.read(path, 0, HEADER_SIZE)
        self.size = max(size, len(head))  # its writer may be at it: the header came just now
        self.header: SegmentHeader | None = decode_segment_header(head, self.where(0))
        if self.header is None and self.size > HEADER_SIZE:
            # The header is synced before the first record exists.
            raise WalDamaged("the segment header is missing", where=self.where(0))
        self._binding = binding_of(head) if self.header else 0
        self.end: Clean | Torn | None = None if self.header else Torn(0, self.size, "no header yet")
        self.position = HEADER_SIZE
        """Where `records` stands: everything before it was found good."""

    def records(self, start: int = HEADER_SIZE, *, payloads: bool = True) -> Iterator[Record]:
        """Every record from *start* on; afterwards `end` says how the file ends.

        Without *payloads* only headers are read, and only they are checked.
        """
        self.position = start
        while self.header is not None:
            found = self._next(self.position, payloads=payloads)
            if not isinstance(found, Record):
                self.end = found
                return
            self.position = found.end
            if found.header.kind in _KNOWN:
                yield found

    def from_epoch(self, epoch: int, *, payloads: bool = True) -> Iterator[Record]:
        """Every record from the first one of *epoch* or later on; those before it are skipped.

        Only what is proven synced is: the rest may be torn, and then nothing counts behind it.
        """
        hopped: list[int] = []
        durable = HEADER_SIZE
        for record in self.records(payloads=False):
            durable = max(durable, record.header.durable)
            if record.epoch >= epoch:
                unproven = next((offset for offset in hopped if offset >= durable), record.offset)
                if self._whole(unproven, record.offset):
                    yield from self.records(record.offset, payloads=payloads)
                return
            hopped.append(record.offset)

    def _whole(self, start: int, end: int) -> bool:
        """Whether the records from *start* to *end* are all there; if not, `end` says why."""
        return start == end or any(record.end >= end for record in self.records(start))

    def at(self, offset: int, size: int, crc: int, *, mapped: bool = False) -> Record:
        """The record a COMMIT names; WalDamaged unless it is exactly that one."""
        where = self.where(offset)
        if self.header is None or offset + size > self.size or offset % ALIGNMENT:
            raise WalDamaged(
                f"a record of {size} bytes is missing: the file has only {self.size} bytes",
                where=where,
            )
        part = self._mapped_part if mapped else self._part
        head = bytes(part(offset, HEADER_SIZE))
        header = decode_record_header(head, offset=offset, binding=self._binding)
        if header is None:
            raise WalDamaged("the record header does not match its checksum", where=where)
        if header.size != size or header.payload_crc != crc:
            raise WalDamaged(
                f"the record has {header.size} bytes and CRC {header.payload_crc:08x}; "
                f"{size} and {crc:08x} are named",
                where=where,
            )
        payload, padding = self._payload(offset, header, part)
        known = self._proven is not None and (self.path, offset, size, crc) in self._proven
        if not known and not self._matches(head, payload, padding, header, offset):
            raise WalDamaged(f"the payload does not match its CRC {crc:08x}", where=where)
        return Record(self.path, offset, header, payload)

    @cached_property
    def _mapping(self) -> pa.Buffer:
        """One for all records: a process may have some ten thousand mappings, and no more."""
        return self._disk.map(self.path)

    def last(self) -> Record | None:
        """The record that ends where the file does, found from there; its payload is not read.

        None if there is none near the end: the file may be torn, empty, or end with a large one.
        """
        end = self.size
        for reach in _LAST_WINDOWS if self.header else ():
            start = max(HEADER_SIZE, (self.size - reach) // ALIGNMENT * ALIGNMENT)
            data = self._disk.read(self.path, start, end - start)
            at = data.rfind(_MAGIC)
            while at >= 0:
                head, offset = data[at : at + HEADER_SIZE], start + at
                header = decode_record_header(head, offset=offset, binding=self._binding)
                if header is not None:
                    whole = offset + header.size == self.size and header.kind in _KNOWN
                    return Record(self.path, offset, header, None) if whole else None
                at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
            end = start
        return None

    def where(self, offset: int) -> str:
        return f"{self._disk.root}/{self.path}, byte {offset}"

    def _next(self, offset: int, *, payloads: bool) -> Record | Clean | Torn:
        left = self.size - offset
        if left < 0 or offset % ALIGNMENT:
            raise WalDamaged(
                f"no record begins here: the file has {self.size} bytes", where=self.where(offset)
            )
        if left == 0:
            return Clean(offset)
        head = self._disk.read(self.path, offset, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return self._torn(offset, "the file ends inside a record header")
        header = decode_record_header(head, offset=offset, binding=self._binding)
        if header is None:
            return self._bad_header(offset)
        if left < header.size:
            return self._torn(offset, "the file ends inside a record")
        self._check_kind(header, offset)
        if not payloads:
            return Record(self.path, offset, header, None)
        return self._with_payload(offset, head, header)

    def _with_payload(self, offset: int, head: bytes, header: RecordHeader) -> Record | Torn:
        payload, padding = self._payload(offset, header, self._part)
        if self._matches(head, payload, padding, header, offset):
            return Record(self.path, offset, header, payload)
        blank = blank_sectors([payload], offset)
        if blank > header.blank:
            return self._torn(offset, f"{blank - header.blank} sectors never reached the disk")
        raise WalDamaged(
            f"the payload of {header.payload_size} bytes does not match its CRC "
            f"{header.payload_crc:08x}",
            where=self.where(offset),
        )

    def _bad_header(self, offset: int) -> Torn:
        sector = self._disk.read(self.path, offset, 512 - offset % 512)
        if any(sector):
            raise WalDamaged(
                "the record header does not match its checksum", where=self.where(offset)
            )
        return self._torn(offset, "the sector of the record header never reached the disk")

    def _torn(self, offset: int, reason: str) -> Torn:
        """Torn, unless something behind it proves that this place was once durable."""
        for record in self._scan_behind(offset + ALIGNMENT):
            if record.durable > offset:
                raise WalDamaged(
                    f"{reason}, but this segment was synced up to byte {record.durable}",
                    where=self.where(offset),
                )
        return Torn(offset, self.size - offset, reason)

    def _scan_behind(self, start: int) -> Iterator[RecordHeader]:
        """Whatever still looks like a record of this segment, at any place it could begin."""
        for window in range(start, self.size, _WINDOW):
            # Not beyond the size that was looked at: its writer may have gone on since.
            size = min(_WINDOW + HEADER_SIZE, self.size - window)
            data = self._disk.read(self.path, window, size)
            at = data.find(_MAGIC)
            while 0 <= at < _WINDOW:
                head = data[at : at + HEADER_SIZE]
                header = decode_record_header(head, offset=window + at, binding=self._binding)
                if header is not None:
                    yield header
                at = data.find(_MAGIC, at + 1)

    def _check_kind(self, header: RecordHeader, offset: int) -> None:
        if header.kind not in _KNOWN and not header.optional:
            raise Unsupported(
                f"a record of the unknown kind {header.kind}", where=self.where(offset)
            )

    def _payload(self, offset: int, header: RecordHeader, part: Part) -> tuple[Bytes, Bytes]:
        """The payload and the padding behind it."""
        size = header.payload_size
        start, padding = offset + HEADER_SIZE, padded(size) - size
        return part(start, size), part(start + size, padding) if padding else b""

    def _part(self, offset: int, size: int) -> bytes:
        return self._disk.read(self.path, offset, size)

    def _mapped_part(self, offset: int, size: int) -> pa.Buffer:
        return self._mapping[offset : offset + size]

    def _matches(
        self, head: bytes, payload: Bytes, padding: Bytes, header: RecordHeader, offset: int
    ) -> bool:
        good = payload_matches(head, payload, padding, offset=offset, binding=self._binding)
        if good and self._proven is not None:
            self._proven.add((self.path, offset, header.size, header.payload_crc))
        return good
