"""Records of the WAL that COMMITs name, each proven by its checksum once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamina.disk.base import Disk
from lamina.format.commit import CommitRecord, WalRange
from lamina.wal.reader import Proven, Record, SegmentReader


class RangeReader:
    """Remembers what it has proven: the checksum of a record is computed at its first reading."""

    def __init__(self, disk: Disk, proven: Proven | None = None) -> None:
        """*proven* are records that were checked before: a scan of the log reads some of them."""
        self._disk = disk
        self._proven: Proven = set() if proven is None else proven

    @property
    def where(self) -> str:
        """For people."""
        return self._disk.root

    def records(self, places: Iterable[WalRange], *, mapped: bool = False) -> Iterator[Record]:
        """Each record; WalDamaged unless it is exactly the one named. A segment is opened once.

        Read, so that a disk which fails raises an error here; or *mapped* where it lies.
        """
        readers: dict[str, SegmentReader] = {}
        for place in places:
            if place.segment not in readers:
                readers[place.segment] = SegmentReader(self._disk, place.segment, self._proven)
            yield readers[place.segment].at(place.offset, place.size, place.crc, mapped=mapped)

    def unproven(self, commits: Iterable[CommitRecord]) -> list[WalRange]:
        """The ranges of *commits* that nobody has checked, segment by segment, front to back."""
        ranges = [place for commit in commits for place in commit.ranges]
        left = [
            place
            for place in ranges
            if (place.segment, place.offset, place.size, place.crc) not in self._proven
        ]
        return sorted(left, key=lambda place: (place.segment, place.offset))

    def sync(self, commits: Iterable[CommitRecord]) -> None:
        """Make the segments durable that *commits* name: they were read from the page cache."""
        for segment in sorted({place.segment for c in commits for place in c.ranges}):
            file = self._disk.open(segment)
            try:
                file.sync()
            finally:
                file.close()
