"""Runs that are in the WAL, mapped in place."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.format.commit import WalRange
from lamina.state.run import Run, run_of_batch
from lamina.wal.reader import SegmentReader


@dataclass(frozen=True, slots=True)
class EpochRange:
    """A run in the WAL: where it is, of which epoch, and P at that time (R13)."""

    place: WalRange
    epoch: int
    partitions: int


def wal_run(disk: Disk, each: EpochRange) -> Run:
    """A committed run, mapped where it is in the WAL, proven by its checksum."""
    return run_in(SegmentReader(disk, each.place.segment), each)


def run_in(reader: SegmentReader, each: EpochRange) -> Run:
    """The same in a segment that is open already."""
    place = each.place
    batch = reader.at(place.offset, place.size, place.crc, mapped=True).batch()
    return run_of_batch(batch, name=run_name(place), first_epoch=each.epoch, last_epoch=each.epoch)


def run_name(place: WalRange) -> str:
    """What a run in the WAL is called in lists: the same for who wrote it and who reads it."""
    return f"{place.segment}:{place.offset}"
