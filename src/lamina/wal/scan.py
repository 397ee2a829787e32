"""What a folder of segments holds, by their headers: where a new writer may go on."""

from __future__ import annotations

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
from lamina.format.wal import HEADER_SIZE, SegmentHeader
from lamina.wal.reader import Clean, SegmentReader, Torn


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one segment, and what stands before it."""

    path: str
    header: SegmentHeader | None
    end: Clean | Torn
    next_sequence: int
    epoch: int
    durable: int  # up to where its own records prove that it was synced
    records: int
    entries: int
    size: int


def segments_of(disk: Disk, core: int | None) -> tuple[str, ...]:
    """The paths of a core's segments, or the driver's (None), in the order of their names."""
    folder = DRIVER if core is None else core_folder(core)
    kind = DriverSegment if core is None else CoreSegment
    paths = (f"{folder}/{name}" for name in disk.list(folder))
    return tuple(path for path in paths if isinstance(parse_segment(path), kind))


def cores_of(disk: Disk) -> tuple[int, ...]:
    """The cores that have a folder in this home."""
    found = (parse_core_folder(name) for name in disk.list(""))
    return tuple(sorted(core for core in found if core is not None))


def read_tail(disk: Disk, path: str, home: bytes) -> Tail:
    """Walk the headers of a segment; payloads only where nobody has proven them synced."""
    reader = SegmentReader(disk, path)
    check_home(reader, home)
    durable = HEADER_SIZE
    next_sequence = reader.header.first_sequence if reader.header else 0
    epoch = records = entries = 0
    offsets: list[int] = []
    for record in reader.records(payloads=False):
        durable = max(durable, record.header.durable)
        next_sequence = record.header.first_sequence + record.header.count
        epoch = max(epoch, record.epoch)
        offsets.append(record.offset)
        records += 1
        entries += record.header.count
    unproven = next((offset for offset in offsets if offset >= durable), None)
    if unproven is not None:
        for _ in reader.records(unproven):
            pass
    assert reader.end is not None
    return Tail(
        path=path,
        header=reader.header,
        end=reader.end,
        next_sequence=next_sequence,
        epoch=epoch,
        durable=durable,
        records=records,
        entries=entries,
        size=reader.size,
    )


def check_home(reader: SegmentReader, home: bytes) -> None:
    """A file of another home does not belong here, whatever its name says."""
    if reader.header is not None and reader.header.home != home:
        raise WalDamaged(
            f"the segment belongs to the home {reader.header.home.hex()}, not {home.hex()}",
            where=reader.where(0),
        )
