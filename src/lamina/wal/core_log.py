"""The log of one core, as a task of a pipeline writes it: runs, for a COMMIT in the driver log.

What the writer stamps (core, epoch, sequence) only ever rises; what it has acknowledged is what
`sync` returned for. Only the ends of the newest segments are read: what the driver log does not
name is not judged (R1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from lamina.disk.base import Disk
from lamina.format.commit import OPERATOR, WalRange
from lamina.format.wal import Kind
from lamina.wal.chain import SegmentChain
from lamina.wal.runs import serialize
from lamina.wal.whole import Whole

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_BYTES = 64 * 1024 * 1024


class CoreLog:
    """One core's writer. Used by one thread; a second process gets a segment of its own (R1)."""

    def __init__(
        self,
        core_id: int,
        disk: Disk,
        *,
        home: bytes,
        generation: int,
        partitions: int,
        epoch: int,
        tag: str,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        chain = SegmentChain(
            disk,
            core_id,
            home=home,
            generation=generation,
            partitions=partitions,
            tag=tag,
            segment_bytes=segment_bytes,
        )
        self._start(core_id, chain, epoch)

    def _start(self, core_id: int, chain: SegmentChain, epoch: int, *, sequence: int = 0) -> None:
        """Continue after everything that is there."""
        self.core_id = core_id
        self._chain = chain
        self._whole = Whole()
        self._taken: list[WalRange] = []  # since the last commit or `take_ranges`
        self._epoch = max([epoch, *(end.epoch for end in chain.ends)])
        self._sequence = max([sequence, *(end.next_sequence for end in chain.ends)])
        try:
            chain.begin(self._epoch, self._sequence)
        except BaseException:
            chain.close()
            raise

    @property
    def segment(self) -> str:
        return self._chain.path

    @property
    def generation(self) -> int:
        return self._chain.generation

    @property
    def epoch(self) -> int:
        return self._epoch

    def append_batch(self, batch: pa.RecordBatch, *, operator: str = OPERATOR) -> WalRange:
        """Append an Arrow batch as it is: one RUN, its rows are its entries."""
        payload = serialize(batch)
        with self._whole.step():
            return self._append_run(payload, batch.num_rows, operator)

    def sync(self) -> None:
        """fdatasync: everything appended so far survives a power cut, or this raises."""
        with self._whole.step():
            self._chain.sync()

    def rotate(self) -> str:
        """Continue in a new segment; returns its path."""
        with self._whole.step():
            self._chain.rotate(self._epoch, self._sequence)
        return self.segment

    def take_ranges(self) -> tuple[WalRange, ...]:
        """What was appended since the last commit or call, for a COMMIT in the driver log."""
        with self._whole.step():
            taken, self._taken = tuple(self._taken), []
        return taken

    def close(self) -> None:
        """Release file and lock. What was not synced may be lost, as after a kill."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append_run(self, payload: list[bytes | pa.Buffer], count: int, operator: str) -> WalRange:
        at = self._chain.append(
            Kind.RUN, payload, epoch=self._run_epoch(), first=self._sequence, count=count
        )
        self._sequence += count
        place = WalRange(operator, self.core_id, at.segment, at.offset, at.size, at.crc, at.entries)
        self._taken.append(place)
        return place

    def _run_epoch(self) -> int:
        return self._epoch
