"""Reads every byte of a segment and finds every damaged place, not only the first.

Behind damage it goes on at the next record whose header matches its checksum there. A torn end is
a note: it is what a crash leaves behind, and a recovery passes over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import google_crc32c
import pyarrow as pa

from lamina.disk.base import Disk
from lamina.errors import LaminaError, NotFound, Unsupported, WalDamaged
from lamina.format.commit import (
    CommitRecord,
    decode_adopt,
    decode_checkpoint,
    decode_commit,
    decode_moved,
    decode_takeover,
)
from lamina.format.findings import Severity
from lamina.format.home_names import CoreSegment, parse_segment
from lamina.format.wal import (
    DRIVER_CORE,
    HEADER_SIZE,
    Kind,
    SegmentHeader,
    binding_of,
    decode_record_header,
)
from lamina.wal.reader import Clean, Record, SegmentReader, Torn

_WINDOW = 1 << 20
RESTORE = "Restore the file from a copy; `lamina recover --dry-run` says what a start would do"
_PLACE = re.compile(r"(?P<path>.*), byte (?P<offset>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, where it is, what should be there, and what to do about it."""

    severity: Severity
    code: str
    path: str
    offset: int
    message: str
    expected: str = ""
    actual: str = ""
    advice: str = ""


@dataclass
class Examined:
    """What one segment holds, every byte of it."""

    path: str
    size: int
    records: int = 0
    entries: int = 0
    end: Clean | Torn | None = None  # None if the end itself is damaged
    troubles: list[Trouble] = field(default_factory=list)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # offset: size and CRC
    commits: dict[str, tuple[int, CommitRecord]] = field(default_factory=dict)  # by digest

    @property
    def ok(self) -> bool:
        return not any(each.severity is Severity.ERROR for each in self.troubles)


def examine_all(
    disk: Disk, paths: Iterable[str], home: bytes | None, report: Callable[[str, int], None]
) -> Iterator[Examined]:
    """Read segments to their ends; those that a running pipeline drops meanwhile are left out.

    *report* is told a segment and how many of its bytes are done.
    """
    for path in paths:
        try:
            found = examine(disk, path, home, partial(report, path))
        except NotFound:
            continue
        report(path, found.size)
        yield found


def examine(disk: Disk, path: str, home: bytes | None, report: Callable[[int], None]) -> Examined:
    """Read one segment to its end. *report* is told how many of its bytes are done."""
    found = Examined(path, disk.size(path))
    try:
        reader = SegmentReader(disk, path)
    except (WalDamaged, Unsupported) as error:
        found.troubles.append(_damage(disk, path, error, 0))
        return found
    if reader.header is not None:
        found.troubles += _belongs(reader.header, path, home)
    at: int | None = HEADER_SIZE
    while at is not None:
        at = _read_on(disk, reader, at, found, report)
    if isinstance(found.end, Torn):
        found.troubles.append(_torn(path, found.end))
    return found


def missing_ranges(examined: Mapping[str, Examined]) -> Iterator[Trouble]:
    """What COMMITs name and whole segments do not have: a cut at a record boundary looks clean.

    One that is gone is `lost_segments`' to judge; a damaged one has troubles of its own.
    """
    commits = {
        digest: (each.path, at, commit)
        for each in examined.values()
        for digest, (at, commit) in each.commits.items()
    }
    for path, at, commit in commits.values():
        for place in commit.ranges:
            segment = examined.get(place.segment)
            if segment is None or not segment.ok:
                continue
            there = segment.places.get(place.offset)
            if there != (place.size, place.crc):
                yield Trouble(
                    Severity.ERROR,
                    WalDamaged.code,
                    path,
                    at,
                    f"the COMMIT of epoch {commit.epoch} names byte {place.offset} of "
                    f"{place.segment}",
                    f"{place.size} bytes with CRC {place.crc:08x}",
                    f"{there[0]} bytes with CRC {there[1]:08x}" if there else "no record",
                    RESTORE,
                )


def place_of(error: LaminaError, otherwise: int) -> int:
    """The byte that an error of the reader names."""
    named = _PLACE.fullmatch(error.where)
    return int(named["offset"]) if named else otherwise


def batch_of(record: Record, where: str) -> pa.RecordBatch:
    """The batch of a RUN, safe to look into; WalDamaged if its bytes are not a batch."""
    try:
        batch = record.batch()
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise WalDamaged(f"a RUN is not a valid Arrow batch: {error}", where=where) from error
    if batch.num_rows != record.header.count:
        raise WalDamaged(
            f"a RUN of {batch.num_rows} rows; its header says {record.header.count}", where=where
        )
    return batch


def _read_on(
    disk: Disk,
    reader: SegmentReader,
    start: int,
    found: Examined,
    report: Callable[[int], None],
) -> int | None:
    """Read from *start* to the end; or to damage, and return where the next record begins."""
    at = start
    try:
        for record in reader.records(start):
            _take(record, reader.where(record.offset), found)
            at = record.end
            report(at)
    except (WalDamaged, Unsupported) as error:
        bad = place_of(error, at)
        found.troubles.append(_damage(disk, found.path, error, bad))
        return _next_record(disk, found.path, bad + HEADER_SIZE)
    found.end = reader.end
    return None


def _take(record: Record, where: str, found: Examined) -> None:
    """A record whose checksums hold: what it says must make sense, too."""
    found.records += 1
    found.entries += record.header.count
    found.places[record.offset] = (record.header.size, record.header.payload_crc)
    assert record.payload is not None
    try:
        commits = _commits(record, bytes(record.payload), where)
    except WalDamaged as error:
        found.troubles.append(
            Trouble(
                Severity.ERROR,
                error.code,
                found.path,
                record.offset,
                error.message,
                advice=RESTORE,
            )
        )
        return
    found.commits |= {commit.digest: (record.offset, commit) for commit in commits}


def _commits(record: Record, data: bytes, where: str) -> Iterable[CommitRecord]:
    match record.kind:
        case Kind.COMMIT:
            commit = decode_commit(data, where)
            if commit.epoch != record.epoch:
                message = f"a COMMIT of epoch {commit.epoch}; its header says {record.epoch}"
                raise WalDamaged(message, where=where)
            return (commit,)
        case Kind.ADOPT:
            return decode_adopt(data, where).commits
        case Kind.TAKEOVER:
            decode_takeover(data, where)
        case Kind.CHECKPOINT:
            decode_checkpoint(data, where)
        case Kind.RUN:
            batch_of(record, where)
        case Kind.MOVED:
            decode_moved(data, where)
        case Kind.BARRIER | Kind.OUTPUT:
            pass
    return ()


def _belongs(header: SegmentHeader, path: str, home: bytes | None) -> Iterator[Trouble]:
    """A segment says whose it is, and its name must say the same."""
    name = parse_segment(path)
    assert name is not None, path
    core = name.core if isinstance(name, CoreSegment) else DRIVER_CORE
    said = (
        ("home", header.home.hex(), header.home.hex() if home is None else home.hex()),
        ("generation", str(header.generation), str(name.generation)),
        ("core", _core(header.core), _core(core)),
    )
    for what, actual, expected in said:
        if actual != expected:
            message = f"the segment is of another {what}"
            yield Trouble(
                Severity.ERROR, WalDamaged.code, path, 0, message, expected, actual, RESTORE
            )


def _core(core: int) -> str:
    return "driver" if core == DRIVER_CORE else str(core)


def _torn(path: str, end: Torn) -> Trouble:
    message = f"torn: {end.reason}; {end.bytes} bytes are left aside"
    return Trouble(Severity.NOTE, "", path, end.end, message)


def _damage(disk: Disk, path: str, error: LaminaError, offset: int) -> Trouble:
    expected, actual = _compare(disk, path, offset)
    return Trouble(
        Severity.ERROR, error.code, path, offset, error.message, expected, actual, RESTORE
    )


def _compare(disk: Disk, path: str, offset: int) -> tuple[str, str]:
    """What the checksums at a damaged place say, and what they should; FORMAT.md section 7."""
    data = disk.read(path, offset, HEADER_SIZE)
    magic = b"LREC" if offset else b"LAMINAWL"
    if data[: len(magic)] != magic:
        return f"{magic.hex()} ({magic.decode()})", data[: len(magic)].hex() or "the end"
    if offset == 0:
        return _numbers(data[60:], google_crc32c.value(data[:60]))
    binding = binding_of(disk.read(path, 0, HEADER_SIZE))
    bound = google_crc32c.extend(binding, offset.to_bytes(8, "little"))
    header = decode_record_header(data, offset=offset, binding=binding)
    if header is None:
        return _numbers(data[60:], google_crc32c.extend(bound, data[:60]))
    body = disk.read(path, offset + HEADER_SIZE, header.size - HEADER_SIZE)
    return _numbers(data[56:60], google_crc32c.extend(google_crc32c.extend(bound, data[:56]), body))


def _numbers(stored: bytes, computed: int) -> tuple[str, str]:
    """Nothing if the checksum holds: then the message alone says what is wrong."""
    expected = int.from_bytes(stored, "little")
    return ("", "") if expected == computed else (f"CRC {expected:08x}", f"CRC {computed:08x}")


def _next_record(disk: Disk, path: str, start: int) -> int | None:
    """Where the next record begins whose header holds at its place; None if there is none."""
    binding = binding_of(disk.read(path, 0, HEADER_SIZE))
    for window in range(start, disk.size(path), _WINDOW):
        data = disk.read(path, window, _WINDOW + HEADER_SIZE)
        at = data.find(b"LREC")
        while 0 <= at < _WINDOW:
            head = data[at : at + HEADER_SIZE]
            if decode_record_header(head, offset=window + at, binding=binding) is not None:
                return window + at
            at = data.find(b"LREC", at + 1)
    return None
