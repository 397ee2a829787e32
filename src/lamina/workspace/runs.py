"""Runs that are in the WAL, mapped in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.format.commit import CommitRecord, WalRange
from lamina.state.run import Run, run_of_batch
from lamina.wal.reader import Record
from lamina.workspace.ranges import RangeReader


@dataclass(frozen=True, slots=True)
class EpochRange:
    """A run in the WAL: where it is, of which epoch, and P at that time (R13)."""

    place: WalRange
    epoch: int
    partitions: int


def ranges_of(commits: Iterable[CommitRecord]) -> list[EpochRange]:
    """Where the runs of commits lie, in their order."""
    return [
        EpochRange(place, commit.epoch, commit.partitions)
        for commit in commits
        for place in commit.ranges
    ]


def wal_runs(reader: RangeReader, ranges: Iterable[EpochRange]) -> Iterator[Run]:
    """Committed runs, mapped where they are in the WAL, proven by their checksums."""
    ranges = list(ranges)
    records = reader.records((each.place for each in ranges), mapped=True)
    for each, record in zip(ranges, records, strict=True):
        yield _run(each, record)


def wal_run(disk: Disk, each: EpochRange) -> Run:
    """A committed run, mapped where it is in the WAL, proven by its checksum."""
    (run,) = wal_runs(RangeReader(disk), [each])
    return run


def _run(each: EpochRange, record: Record) -> Run:
    name = run_name(each.place)
    return run_of_batch(record.batch(), name=name, first_epoch=each.epoch, last_epoch=each.epoch)


def run_name(place: WalRange) -> str:
    """What a run in the WAL is called in lists: the same for who wrote it and who reads it."""
    return f"{place.segment}:{place.offset}"
