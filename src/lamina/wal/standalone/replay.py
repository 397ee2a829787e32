"""Replays the log of one core that was used on its own, without a driver log.

Entries are released at their COMMIT, in order; what no COMMIT names is dropped and counted. A
COMMIT counts only if its parent does, so a history is one chain without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lamina.disk.base import Disk
from lamina.errors import Diverged, WalDamaged
from lamina.format.commit import CommitRecord, Point, decode_commit
from lamina.format.wal import Kind
from lamina.wal.reader import Record, SegmentReader, Torn
from lamina.wal.scan import check_home, segments_of


@dataclass(frozen=True, slots=True)
class CoreReplay:
    """The committed history of one core's log."""

    disk: Disk
    commits: tuple[CommitRecord, ...]  # oldest first
    entries_dropped: int
    torn: tuple[Torn, ...]

    def batches(self, *, after_epoch: int = 0) -> Iterator[tuple[CommitRecord, pa.RecordBatch]]:
        """Every batch of every epoch after *after_epoch*, oldest first."""
        for commit in self.commits:
            if commit.epoch > after_epoch:
                for place in commit.ranges:
                    reader = SegmentReader(self.disk, place.segment)
                    yield commit, reader.at(place.offset, place.size, place.crc).batch()

    @property
    def entries(self) -> int:
        return sum(place.entries for commit in self.commits for place in commit.ranges)


def replay_core(disk: Disk, core: int, home: bytes, *, base: Point | None = None) -> CoreReplay:
    """Read a core's log to its end. Damage is raised; a torn tail is left aside and reported.

    *base* is the epoch that a checkpoint holds: what is before it may have been dropped.
    """
    commits: list[CommitRecord] = []
    entries = 0
    torn: list[Torn] = []
    paths = segments_of(disk, core)
    for path in paths:
        reader = SegmentReader(disk, path)
        check_home(reader, home)
        for record in reader.records():
            entries += record.header.count
            if record.kind is Kind.COMMIT:
                commits.append(_commit(record, reader))
        if isinstance(reader.end, Torn) and reader.end.bytes:
            torn.append(reader.end)
    chain = _chain(commits, base)
    ranges = [place for commit in commits for place in commit.ranges]
    named = sum(place.entries for place in ranges if place.segment in paths)
    return CoreReplay(disk, chain, entries - named, tuple(torn))


def _commit(record: Record, reader: SegmentReader) -> CommitRecord:
    assert record.payload is not None
    return decode_commit(bytes(record.payload), reader.where(record.offset))


def _chain(commits: list[CommitRecord], base: Point | None) -> tuple[CommitRecord, ...]:
    """From the newest COMMIT back along parents to *base*; a gap is damage, a fork stops."""
    floor = base.epoch if base else 0
    by_digest = {commit.digest: commit for commit in commits if commit.epoch > floor}
    walked: list[CommitRecord] = []
    newest = max(by_digest.values(), key=lambda commit: commit.epoch, default=None)
    at = newest.point if newest else base
    while at != base:
        commit = by_digest.get(at.digest) if at else None
        if commit is None:
            epoch = at.epoch if at else 0
            raise WalDamaged(f"the COMMIT of epoch {epoch} is missing from the log")
        walked.append(commit)
        at = commit.parent
    aside = by_digest.keys() - {commit.digest for commit in walked}
    if aside:
        epochs = sorted(by_digest[digest].epoch for digest in aside)
        raise Diverged(f"epochs {epochs} are committed, and not on the line of the newest one")
    return tuple(reversed(walked))
