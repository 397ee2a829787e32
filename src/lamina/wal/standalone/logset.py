"""The logs of all cores of a home, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.errors import UsageError
from lamina.format.commit import WalRange
from lamina.format.wal import Kind
from lamina.wal.core_log import SEGMENT_BYTES
from lamina.wal.dropping import drop_segments
from lamina.wal.home import Home
from lamina.wal.reader import Record, SegmentReader, Torn
from lamina.wal.scan import all_segments, cores_of, read_tail, segments_of
from lamina.wal.standalone.writer import CoreWalWriter
from lamina.wal.whole import Whole


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What a home's logs hold, the driver's and every core's."""

    segments: int
    bytes: int
    records: int
    epoch_min: int  # of all records that belong to an epoch
    epoch_max: int
    torn_bytes: int


class LogSet:
    """One writer per core, opened together."""

    def __init__(
        self,
        home: Home,
        cores: int,
        *,
        generation: int | None = None,
        epoch: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        if cores < 1:
            raise UsageError(f"a log set has at least one core, not {cores}")
        self._home = home
        self._whole = Whole()
        self.writers: tuple[CoreWalWriter, ...] = ()
        try:
            for core in range(cores):
                writer = CoreWalWriter(
                    core,
                    home.disk,
                    home=home.identity,
                    generation=generation,
                    partitions=cores,
                    epoch=epoch,
                    segment_bytes=segment_bytes,
                    commits_here=False,
                )
                self.writers += (writer,)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, core: int) -> CoreWalWriter:
        return self.writers[core]

    def set_epoch(self, epoch: int) -> None:
        for writer in self.writers:
            writer.set_epoch(epoch)

    def barrier_all(self) -> None:
        """Close the current epoch in every log."""
        for writer in self.writers:
            writer.append_epoch_barrier()

    def sync_all(self) -> None:
        """Every log durable; if one fails, that one is finished and this raises."""
        for writer in self.writers:
            writer.sync()

    def take_ranges(self) -> tuple[WalRange, ...]:
        """What was appended since the last call: what a COMMIT in the driver log names.

        If it is interrupted, what some cores gave is lost: the next call refuses to go on without.
        """
        with self._whole.step():
            return tuple(found for writer in self.writers for found in writer.take_ranges())

    @property
    def low_water_mark(self) -> int:
        """The epoch that every core has reached."""
        return min(writer.epoch for writer in self.writers)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()

    def drop_through(self, floor: int) -> tuple[str, ...]:
        """Drop whole segments whose records are all of epochs up to *floor* (R7)."""
        open_now = {writer.segment for writer in self.writers}
        return drop_segments(self._home, floor, keep=open_now)


def read_up_to(home: Home, epoch: int) -> Iterator[Record]:
    """Every entry of every core up to an epoch, by epoch, core and sequence.

    Whether an entry counts is not decided here: only COMMITs say so. What follows a torn
    place is left aside.
    """
    tails = [
        (core, read_tail(home.disk, path, home.identity))
        for core in cores_of(home.disk)
        for path in segments_of(home.disk, core)
    ]
    places = [
        (record.epoch, core, record.header.first_sequence, record)
        for core, tail in tails
        for record in SegmentReader(home.disk, tail.path).records(payloads=False)
        if record.kind is Kind.RUN and record.epoch <= epoch and record.offset < tail.end.end
    ]
    for _, _, _, record in sorted(places, key=lambda place: place[:3]):
        reader = SegmentReader(home.disk, record.segment)
        yield reader.at(record.offset, record.header.size, record.header.payload_crc)


def statistics(disk: Disk, home: bytes) -> LogStatistics:
    """Sizes and epochs over the driver log and all cores."""
    tails = [read_tail(disk, path, home) for path in all_segments(disk)]
    kept = [tail for tail in tails if tail.epoch_min]
    return LogStatistics(
        segments=len(tails),
        bytes=sum(tail.size for tail in tails),
        records=sum(tail.records for tail in tails),
        epoch_min=min((tail.epoch_min for tail in kept), default=0),
        epoch_max=max((tail.epoch for tail in kept), default=0),
        torn_bytes=sum(tail.end.bytes for tail in tails if isinstance(tail.end, Torn)),
    )
