"""What a folder of segments holds, by their headers: where a new writer may go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.errors import WalDamaged
from lamina.format.home_names import (
    DRIVER,
    CoreSegment,
    DriverSegment,
    core_folder,
    parse_core_folder,
    parse_segment,
)
from lamina.format.wal import DRIVER_CORE, HEADER_SIZE, Kind, SegmentHeader
from lamina.wal.reader import Clean, Damaged, SegmentReader, Torn


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one segment, and what stands before it."""

    path: str
    header: SegmentHeader | None
    end: Clean | Torn | Damaged
    next_sequence: int
    epoch: int  # the highest of its records, and of its name
    committed: int  # the highest of a COMMIT before the end
    durable: int  # up to where its own records prove that it was synced
    records: int
    entries: int
    size: int


def segments_of(disk: Disk, core: int | None) -> tuple[str, ...]:
    """The paths of a core's segments, or the driver's (None), oldest first by what names say."""
    folder = DRIVER if core is None else core_folder(core)
    found = [(name_of(f"{folder}/{name}"), f"{folder}/{name}") for name in disk.list(folder)]
    return tuple(path for name, path in sorted((n, path) for n, path in found if n is not None))


def shared_segments(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that were made under the lock of their core: the last one may be gone on with."""
    names = ((parse_segment(path), path) for path in paths)
    return tuple(p for name, p in names if isinstance(name, CoreSegment) and not name.own)


def name_of(path: str) -> tuple[int, int, str] | None:
    """The parts of a segment's name in their order; text alone would put a.000001 before a."""
    match parse_segment(path):
        case CoreSegment(_, generation, epoch, tag):
            return generation, epoch, tag
        case DriverSegment(generation, number):
            return generation, number, ""
        case None:
            return None


def cores_of(disk: Disk) -> tuple[int, ...]:
    """The cores that have a folder in this home."""
    found = (parse_core_folder(name) for name in disk.list(""))
    return tuple(sorted(core for core in found if core is not None))


def read_tail(disk: Disk, path: str, home: bytes, *, judge: bool = True) -> Tail:
    """Walk the headers of a segment; payloads only where nobody has proven them synced.

    Without *judge* damage is not raised but told by `end`: bytes that no COMMIT names do not
    exist, and those that one names are proven one by one (R1).
    """
    try:
        reader = SegmentReader(disk, path)
    except WalDamaged as error:
        if judge:
            raise
        return _unreadable(disk, path, error)
    check_home(reader, home)
    durable = HEADER_SIZE
    next_sequence = reader.header.first_sequence if reader.header else 0
    name = parse_segment(path)
    epoch = name.epoch if isinstance(name, CoreSegment) else 0
    records = entries = 0
    offsets: list[int] = []
    commits: list[tuple[int, int]] = []  # offset, epoch
    end: Clean | Torn | Damaged | None
    try:
        for record in reader.records(payloads=False):
            durable = max(durable, record.header.durable)
            next_sequence = record.header.first_sequence + record.header.count
            epoch = max(epoch, record.epoch)
            if record.kind is Kind.COMMIT:
                commits.append((record.offset, record.epoch))
            offsets.append(record.offset)
            records += 1
            entries += record.header.count
        unproven = next((offset for offset in offsets if offset >= durable), None)
        if unproven is not None:
            for _ in reader.records(unproven):
                pass
        end = reader.end
    except WalDamaged as error:
        if judge:
            raise
        end = Damaged(reader.position, reader.size - reader.position, f"damaged: {error.message}")
    assert end is not None
    return Tail(
        path=path,
        header=reader.header,
        end=end,
        next_sequence=next_sequence,
        epoch=epoch,
        committed=max((e for offset, e in commits if offset < end.end), default=0),
        durable=durable,
        records=records,
        entries=entries,
        size=reader.size,
    )


def _unreadable(disk: Disk, path: str, error: WalDamaged) -> Tail:
    """A segment without a header: only its name speaks."""
    name = parse_segment(path)
    size = disk.size(path)
    return Tail(
        path=path,
        header=None,
        end=Damaged(0, size, f"damaged: {error.message}"),
        next_sequence=0,
        epoch=name.epoch if isinstance(name, CoreSegment) else 0,
        committed=0,
        durable=0,
        records=0,
        entries=0,
        size=size,
    )


def check_home(reader: SegmentReader, home: bytes) -> None:
    """A file of another home, core or generation does not belong here, whatever its name says."""
    header, name = reader.header, parse_segment(reader.path)
    if header is None:
        return
    if header.home != home:
        raise WalDamaged(
            f"the segment belongs to the home {header.home.hex()}, not {home.hex()}",
            where=reader.where(0),
        )
    if name is None:
        return
    core = name.core if isinstance(name, CoreSegment) else DRIVER_CORE
    if (header.core, header.generation) != (core, name.generation):
        raise WalDamaged(
            f"the segment is of core {header.core} and generation {header.generation}, its name "
            f"says {core} and {name.generation}",
            where=reader.where(0),
        )
