"""The segments of one core as one log: which file to append to, and when to begin another (R1).

With the lock, and if the newest segment made under it ends on a record boundary, go on there;
otherwise create one. Who has no lock writes to a segment of its own, and nobody else ever does:
it may be alive. Nobody cuts a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lamina.disk.base import Disk, Lock
from lamina.errors import AlreadyExists
from lamina.format.home_names import (
    OWN,
    CoreSegment,
    core_folder,
    core_lock,
    segment_path,
)
from lamina.format.wal import Kind, SegmentHeader
from lamina.wal.reader import Clean
from lamina.wal.scan import End, read_ends, segments_of, shared_segments
from lamina.wal.segment import Placed, SegmentWriter

if TYPE_CHECKING:
    import pyarrow as pa


class SegmentChain:
    """Appends to the newest segment of a core; owned by one writer."""

    def __init__(
        self,
        disk: Disk,
        core: int,
        *,
        home: bytes,
        generation: int,
        partitions: int,
        tag: str,
        segment_bytes: int,
    ) -> None:
        self._disk = disk
        self._core = core
        self._home = home
        self._partitions = partitions
        self._tag = tag
        self._segment_bytes = segment_bytes
        self.generation = generation
        disk.make_folder(core_folder(core))
        self._segment: SegmentWriter | None = None
        self._lock: Lock | None = disk.try_lock(core_lock(core))
        try:
            self.ends = self._read_ends()
            self._epoch = max((end.epoch for end in self.ends), default=0)
            self._segment = self._continue()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        return self._open.path

    @property
    def locked(self) -> bool:
        return self._lock is not None

    @property
    def position(self) -> int:
        return self._open.position

    @property
    def synced_position(self) -> int:
        return self._open.synced_position

    @property
    def _open(self) -> SegmentWriter:
        assert self._segment is not None, "`begin` comes first"
        return self._segment

    def begin(self, epoch: int, sequence: int) -> None:
        """Make sure there is a segment to append to."""
        if self._segment is None:
            self._segment = self._create(epoch, sequence)

    def append(
        self,
        kind: Kind,
        payload: Sequence[bytes | pa.Buffer],
        *,
        epoch: int,
        first: int,
        count: int,
    ) -> Placed:
        """Append one record; epochs only rise, so the last one of a segment has its highest."""
        epoch = max(epoch, self._epoch)
        if self.position >= self._segment_bytes:
            self.rotate(epoch, first)
        self._epoch = epoch
        return self._open.append(kind, payload, epoch=epoch, first_sequence=first, count=count)

    def sync(self) -> None:
        self._open.sync()

    def rotate(self, epoch: int, sequence: int) -> None:
        """Continue in a new segment; the old one is durable before the new one exists."""
        self._open.sync()
        self._open.close()
        self._segment = self._create(epoch, sequence)

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _read_ends(self) -> Sequence[End]:
        return read_ends(self._disk, self._core, self._home)

    def _continue(self) -> SegmentWriter | None:
        newest = self._newest_shared()
        if self._lock is None or newest is None:
            return None
        if self._fits(newest):
            return self._reopen(newest)
        self._sync(newest.path)
        return None

    def _newest_shared(self) -> End | None:
        shared = shared_segments(end.path for end in self.ends)
        return next((end for end in self.ends if end.path in shared[-1:]), None)

    def _reopen(self, end: End) -> SegmentWriter | None:
        assert end.header is not None
        file = self._disk.open(end.path)
        try:
            if file.size != end.size:
                file.close()  # somebody without the lock appends there: leave it to them
                return None
            segment = SegmentWriter(file, end.header, durable=end.durable)
            segment.sync()  # what a killed process wrote must not count as synced before it is
        except BaseException:
            file.close()
            raise
        return segment

    def _sync(self, path: str) -> None:
        """Later COMMITs will name one in here, which a killed process may not have synced."""
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _fits(self, end: End) -> bool:
        return isinstance(end.end, Clean) and self._is_ours(end) and end.size < self._segment_bytes

    def _is_ours(self, end: End) -> bool:
        return (
            end.header is not None
            and end.header.generation == self.generation
            and end.header.partitions == self._partitions
        )

    def _create(self, epoch: int, sequence: int) -> SegmentWriter:
        epoch = max(epoch, self._epoch)
        header = SegmentHeader(self._home, self.generation, self._core, self._partitions, sequence)
        taken = set(segments_of(self._disk, self._core))
        number = 0
        while True:
            tag = self._tag if number == 0 else f"{self._tag}.{number:06d}"
            tag += "" if self.locked else OWN
            path = segment_path(CoreSegment(self._core, self.generation, epoch, tag))
            number += 1
            if path in taken:
                continue
            try:
                return SegmentWriter.create(self._disk, path, header)
            except AlreadyExists:
                continue  # who has no lock may meet others at it
