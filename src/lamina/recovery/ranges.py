"""Reads the records that COMMITs name: a segment is opened once for records in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamina.disk.base import Disk
from lamina.format.commit import CommitRecord, WalRange
from lamina.wal.reader import Record, SegmentReader


def read_ranges(disk: Disk, places: Iterable[WalRange]) -> Iterator[Record]:
    """Each record, proven by its checksum; WalDamaged unless it is exactly the one named."""
    reader: SegmentReader | None = None
    for place in places:
        if reader is None or reader.path != place.segment:
            reader = SegmentReader(disk, place.segment)
        yield reader.at(place.offset, place.size, place.crc)


def in_file_order(commits: Iterable[CommitRecord]) -> list[WalRange]:
    """Every range of *commits*, segment by segment, front to back: for those who read all."""
    ranges = [place for commit in commits for place in commit.ranges]
    return sorted(ranges, key=lambda place: (place.segment, place.offset))
