"""The log of one core (seed 003): puts, deletes, Arrow batches, barriers, commits.

Entries are collected and framed as one columnar RUN at 64 KiB, at a barrier, a commit or a sync.
What the writer stamps (core, epoch, sequence) only ever rises; what it has acknowledged is what
`sync` returned for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import pyarrow as pa

from lamina.disk.base import Disk
from lamina.errors import Refused, UsageError
from lamina.format.canonical import sha256_hex
from lamina.format.commit import (
    OPERATOR,
    CheckpointRecord,
    CommitRecord,
    Point,
    WalRange,
    checked_commit,
    decode_commit,
    encode_checkpoint,
)
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.wal import Kind
from lamina.wal.core_log import SEGMENT_BYTES, CoreLog
from lamina.wal.reader import SegmentReader
from lamina.wal.runs import ENTRY_SCHEMA, serialize
from lamina.wal.scan import Tail
from lamina.wal.standalone.chain import CuttableChain

FRAME_BYTES = 64 * 1024


class CoreWalWriter(CoreLog):
    """A core's log that is used on its own."""

    def __init__(
        self,
        core_id: int,
        disk: Disk,
        *,
        home: bytes,
        generation: int | None = None,
        partitions: int = 1,
        epoch: int = 0,
        tag: str = "library",
        segment_bytes: int = SEGMENT_BYTES,
        commits_here: bool = True,
        to_cut: bool = False,
    ) -> None:
        """With *commits_here* this log decides on its own, so damage anywhere in it stops.

        Without, the driver log decides, and what it does not name is not judged (R1): only the
        ends of the newest segments are read. Without a *generation* the newest one continues.
        *to_cut* is for `open_at`.
        """
        self._disk = disk
        self._partitions = partitions
        self._pending: list[bytes | None] = []  # key, value, key, value, ...
        self._room = FRAME_BYTES  # left in the frame
        self._commits_here = commits_here
        self._head: Point | None = None
        self._cuttable = CuttableChain(
            disk,
            core_id,
            home=home,
            generation=generation,
            partitions=partitions,
            tag=tag,
            segment_bytes=segment_bytes,
            judge=commits_here,
            to_cut=to_cut,
        )
        try:
            self._head = _last_commit(disk, self._cuttable.tails)
            self._start(core_id, self._cuttable, epoch, sequence=self._cuttable.cut_sequence)
        except BaseException:
            self._cuttable.close()
            raise
        self._synced_sequence = self._sequence

    @classmethod
    def open_at(
        cls,
        core_id: int,
        disk: Disk,
        position: int,
        *,
        home: bytes,
        generation: int | None = None,
        partitions: int = 1,
    ) -> Self:
        """Go on at *position* of the newest segment; what stood behind it is kept aside.

        Also if that segment is torn: up to there it is not.
        """
        writer = cls(
            core_id, disk, home=home, generation=generation, partitions=partitions, to_cut=True
        )
        try:
            writer.truncate(position)
        except BaseException:
            writer.close()
            raise
        return writer

    # what it is at

    @property
    def position(self) -> int:
        """The end of the segment; entries that are not framed yet come after it."""
        return self._chain.position

    @property
    def synced_position(self) -> int:
        """What survives a power cut: the only position fit for a manifest."""
        return self._chain.synced_position

    @property
    def sequence(self) -> int:
        """The number that the next entry gets; no later writer of this core uses it again."""
        return self._sequence + len(self._pending) // 2

    @property
    def entries_since_sync(self) -> int:
        """Entries that a power cut now would take, framed or not."""
        return self.sequence - self._synced_sequence

    @property
    def head(self) -> Point | None:
        """The last epoch that was committed in this log."""
        return self._head

    def set_epoch(self, epoch: int) -> None:
        """Move on to a later epoch; what was collected stays in the one it was put in."""
        if epoch < self._epoch:
            raise Refused(f"epoch {epoch} after epoch {self._epoch}: epochs only rise")
        if epoch > self._epoch:
            self._frame()
            self._epoch = epoch

    # appending

    def append_put(self, key: bytes, value: bytes) -> None:
        """Collect one entry; its number is what `sequence` was before."""
        self._room -= len(key) + len(value)  # first: what has no length is not collected
        pending = self._pending
        pending += (key, value)  # at once: no interrupt comes in between
        if self._room <= 0:
            self._frame()

    def append_delete(self, key: bytes) -> None:
        """Collect a delete; its number is what `sequence` was before."""
        self._room -= len(key)
        pending = self._pending
        pending += (key, None)
        if self._room <= 0:
            self._frame()

    def append_batch(self, batch: pa.RecordBatch, *, operator: str = OPERATOR) -> WalRange:
        self._frame()
        return super().append_batch(batch, operator=operator)

    def append_epoch_barrier(self) -> int:
        """Everything of this epoch comes before this record; returns its offset."""
        self._frame()
        with self._whole.step():
            return self._append(Kind.BARRIER, b"")

    def append_commit(
        self,
        source_offsets: Mapping[str, ConnectorCheckpoint],
        watermark: int | None = None,
        *,
        table_offsets: Mapping[str, ConnectorCheckpoint] | None = None,
        source_watermarks: Mapping[str, int] | None = None,
    ) -> Point:
        """Decide the epoch: everything put since the last commit, with these offsets.

        It counts once `sync` has returned.
        """
        self._frame()
        self._check_commit()
        commit = CommitRecord(
            epoch=self._epoch,
            generation=self.generation,
            parent=self._head,
            follows=self._head,
            partitions=self._partitions,
            source_offsets=source_offsets,
            table_offsets=table_offsets or {},
            watermark=watermark,
            source_watermarks=source_watermarks or {},
            ranges=tuple(self._taken),
        )
        data = checked_commit(commit)
        point = Point(commit.epoch, sha256_hex(data))
        with self._whole.step():
            self._append(Kind.COMMIT, data)
            self._taken = []
            self._head = point
        return point

    def take_ranges(self) -> tuple[WalRange, ...]:
        self._frame()
        return super().take_ranges()

    def append_checkpoint(self, record: CheckpointRecord) -> int:
        """Note that a checkpoint exists; recovery holds the store to it. Returns its offset."""
        self._frame()
        with self._whole.step():
            return self._append(Kind.CHECKPOINT, encode_checkpoint(record))

    def sync(self) -> None:
        self._frame()
        super().sync()
        self._synced_sequence = self._sequence

    # segments

    def rotate(self) -> str:
        self._frame()
        path = super().rotate()
        self._synced_sequence = self._sequence
        return path

    def reset(self) -> str:
        """Continue as a new generation, in a new segment. Sequence numbers are not used again.

        What stands in older segments goes when whole segments are dropped, not here.
        """
        self._frame()
        with self._whole.step():
            self._chain.generation += 1
            self._taken = []
            self._chain.rotate(self._epoch, self._sequence)
            self._synced_sequence = self._sequence
        return self.segment

    def truncate(self, position: int) -> str | None:
        """Cut this segment at a record boundary; what is cut is kept, its path returned."""
        self._frame()
        with self._whole.step():
            kept = self._cuttable.truncate(position, self._sequence)
            self._synced_sequence = self._sequence
            if self._commits_here:
                self._head = _last_commit(self._disk, self._cuttable.read_tails())
            self._taken = [
                r for r in self._taken if r.segment != self.segment or r.offset < position
            ]
        return kept

    def __repr__(self) -> str:
        return (
            f"CoreWalWriter(core_id={self.core_id}, segment={self.segment!r}, "
            f"position={self.position}, synced_position={self.synced_position}, "
            f"epoch={self.epoch}, sequence={self.sequence})"
        )

    # steps

    def _frame(self) -> None:
        """Write what was collected as one RUN of the current epoch.

        What cannot be written stays collected, so that no later commit goes without it.
        """
        self._whole.check()
        if not self._pending:
            return
        keys, values = self._pending[::2], self._pending[1::2]
        try:
            columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            batch = pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UsageError(f"keys and values are bytes: {error}") from error
        payload = serialize(batch)
        with self._whole.step():
            self._append_run(payload, len(keys), OPERATOR)
            self._pending, self._room = [], FRAME_BYTES

    def _run_epoch(self) -> int:
        """What comes after a COMMIT is of a later epoch, also before anybody has set one."""
        return max(self._epoch, self._head.epoch + 1 if self._head else 0)

    def _append(self, kind: Kind, payload: bytes) -> int:
        first = self._sequence
        return self._chain.append(kind, [payload], epoch=self._epoch, first=first, count=0).offset

    def _check_commit(self) -> None:
        if not self._commits_here:
            raise Refused(
                f"the driver log decides for core {self.core_id}",
                advice="Commit there, naming what take_ranges returns",
            )
        if not self._chain.locked:
            raise Refused(
                f"another process has the lock of core {self.core_id}: only it commits here",
                advice="Commit in the driver log, or open this log again when the other is gone",
            )
        last = self._head.epoch if self._head else 0
        if self._epoch <= last or self._epoch < 1:
            raise Refused(
                f"epoch {self._epoch} cannot be committed after epoch {last}",
                advice="Call set_epoch with a higher number first",
            )


def _last_commit(disk: Disk, tails: Iterable[Tail]) -> Point | None:
    """The newest COMMIT of a core's own log, across its segments."""
    commits = [tail.commit for tail in tails if tail.commit]
    if not commits:
        return None
    newest = max(commits, key=lambda record: record.epoch)
    reader = SegmentReader(disk, newest.segment)
    found = reader.at(newest.offset, newest.header.size, newest.header.payload_crc)
    assert found.payload is not None
    return decode_commit(bytes(found.payload), reader.where(newest.offset)).point
