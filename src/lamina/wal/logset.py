"""The logs of all cores of a home, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.errors import UsageError
from lamina.format.commit import WalRange
from lamina.format.wal import Kind
from lamina.wal.home import Home
from lamina.wal.reader import Damaged, Record, SegmentReader, Torn
from lamina.wal.scan import Tail, cores_of, read_tail, segments_of, shared_segments
from lamina.wal.whole import Whole
from lamina.wal.writer import SEGMENT_BYTES, CoreWalWriter


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What a home's core logs hold."""

    segments: int
    bytes: int
    records: int
    epoch_min: int  # of all records kept
    epoch_max: int
    torn_bytes: int


class LogSet:
    """One writer per core, opened together."""

    def __init__(
        self,
        home: Home,
        cores: int,
        *,
        generation: int = 1,
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


def drop_segments(home: Home, floor: int, *, keep: set[str]) -> tuple[str, ...]:
    """Unlink what `droppable` names; oldest first, so that an interruption leaves a suffix."""
    dropped = droppable(home, floor, keep=keep)
    for path in dropped:
        home.disk.unlink(path)
    for folder in sorted({path.rpartition("/")[0] for path in dropped}):
        home.disk.sync_folder(folder)
    return dropped


def droppable(home: Home, floor: int, *, keep: set[str]) -> tuple[str, ...]:
    """Core segments that were made for epochs up to the floor and hold no later ones.

    Nor the one with the newest COMMIT of a core's own log: the next COMMIT names it, and if that
    one is not synced yet, it is the one before that a power cut goes back to.
    """
    found: list[str] = []
    for core in cores_of(home.disk):
        tails = [
            read_tail(home.disk, path, home.identity, judge=False)
            for path in segments_of(home.disk, core)
        ]
        paths = [tail.path for tail in tails]
        left = shared_segments(paths)[:-1]
        heads = sorted((tail.committed, tail.path) for tail in tails if _decides(tail, left))
        stay = in_use(paths, tails) | keep | {path for _, path in heads[-1:]}
        found += [
            tail.path
            for tail in tails
            if tail.path not in stay
            and tail.epoch <= floor
            and not isinstance(tail.end, Damaged)  # nobody knows what else it holds
        ]
    return tuple(found)


def in_use(paths: Sequence[str], tails: Iterable[Tail]) -> set[str]:
    """The segments of a core, of *paths*, that a writer looks at; *tails* of those in question.

    The newest of all, and the newest made under its lock: somebody may append there. And the
    newest of those that has a header: it says which sequence numbers were used.
    """
    begun = shared_segments(tail.path for tail in tails if tail.header is not None)
    return {*paths[-1:], *shared_segments(paths)[-1:], *begun[-1:]}


def _decides(tail: Tail, left: tuple[str, ...]) -> bool:
    """Whether its newest COMMIT is durable: segments are synced when they are left."""
    commit = tail.commit
    return commit is not None and (tail.path in left or commit.end <= tail.durable)


def read_up_to(home: Home, epoch: int) -> Iterator[Record]:
    """Every entry of every core up to an epoch, by epoch, core and sequence.

    Whether an entry counts is not decided here: only COMMITs say so. What stands behind a torn
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
    """Sizes and epochs over all cores."""
    tails: list[Tail] = [
        read_tail(disk, path, home) for core in cores_of(disk) for path in segments_of(disk, core)
    ]
    kept = [tail for tail in tails if tail.records]
    return LogStatistics(
        segments=len(tails),
        bytes=sum(tail.size for tail in tails),
        records=sum(tail.records for tail in tails),
        epoch_min=min((tail.epoch_min for tail in kept), default=0),
        epoch_max=max((tail.epoch for tail in kept), default=0),
        torn_bytes=sum(tail.end.bytes for tail in tails if isinstance(tail.end, Torn)),
    )
