"""What a recovery gives back: the exact acknowledged state, as streams, and how it got there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lamina.checkpoint.parallel import run_all
from lamina.errors import Corrupt
from lamina.format.commit import CommitRecord, Point, WalRange
from lamina.format.manifest_model import CheckpointManifest, ConnectorCheckpoint, RunEntry
from lamina.os_errors import typed_errors
from lamina.protocol.identity import PartChange
from lamina.protocol.recovery import Plan, Skipped
from lamina.workspace.ranges import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa

Work = Callable[[str, int, "Iterator[pa.RecordBatch]"], None]
"""Takes the batches of one (operator, partition), oldest first; the newest value of a key wins."""


@dataclass(frozen=True, slots=True)
class LeftAside:
    """Bytes of a WAL file that do not count, and why."""

    path: str
    offset: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """For people: what was restored, what was left aside and why, file by file."""

    checkpoint: str | None
    checkpoint_epoch: int
    epoch: int  # what the state is at
    head_epoch: int  # what was acknowledged; higher only if a limit stopped the replay
    epochs_replayed: int
    entries_replayed: int
    entries_dropped: int  # in the WAL, and named by no accepted COMMIT
    skipped: tuple[Skipped, ...]
    left_aside: tuple[LeftAside, ...]
    given_up: tuple[Point, ...]
    given_up_home: str | None  # what it acknowledged after `head_epoch` is given up too, unknown
    watermark_regressions: tuple[int, ...]  # epochs whose watermark is below their parent's
    bytes_restored: int
    bytes_replayed: int
    seconds: float
    changes: tuple[PartChange, ...] = ()  # what the pipeline was in `epoch`, and is not today

    @property
    def complete(self) -> bool:
        return self.epoch == self.head_epoch

    @property
    def torn_bytes(self) -> int:
        return sum(each.bytes for each in self.left_aside)


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """The state at *head*: runs of the checkpoint, then the WAL's, as streams of Arrow batches."""

    wal: RangeReader
    plan: Plan
    manifest: CheckpointManifest | None
    replayed: tuple[CommitRecord, ...]  # oldest first
    files: Mapping[str, Path]  # where the proven artifacts of the checkpoint lie
    report: RecoveryReport
    generation: int = 0
    _places: dict[tuple[str, int], list[WalRange]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for commit in self.replayed:
            for place in commit.ranges:
                self._places.setdefault((place.operator, place.core), []).append(place)

    @property
    def head(self) -> Point | None:
        return self.plan.head

    @property
    def epoch(self) -> int:
        return self.report.epoch

    @property
    def next_epoch(self) -> int:
        return self.plan.next_epoch

    @property
    def has_state(self) -> bool:
        return self.manifest is not None or bool(self.replayed)

    @property
    def source_offsets(self) -> Mapping[str, ConnectorCheckpoint]:
        last = self._last()
        return last.source_offsets if last is not None else {}

    @property
    def table_offsets(self) -> Mapping[str, ConnectorCheckpoint]:
        last = self._last()
        return last.table_offsets if last is not None else {}

    @property
    def watermark(self) -> int | None:
        last = self._last()
        return last.watermark if last is not None else None

    @property
    def source_watermarks(self) -> Mapping[str, int]:
        last = self._last()
        return last.source_watermarks if last is not None else {}

    def partitions(self) -> tuple[tuple[str, int], ...]:
        """Every (operator, partition) that has state."""
        found = set(self._places)
        if self.manifest is not None:
            for name, operator in self.manifest.operators.items():
                found |= {(name, partition) for partition in operator.partitions}
        return tuple(sorted(found))

    def batches(self, operator: str, partition: int) -> Iterator[pa.RecordBatch]:
        """One partition's state, oldest first, one batch in memory at a time."""
        if self.manifest is not None and operator in self.manifest.operators:
            for run in self.manifest.operators[operator].partitions.get(partition, ()):
                yield from self._run_batches(run)
        for record in self.wal.records(self._places.get((operator, partition), ())):
            yield record.batch()

    def apply(self, work: Work, *, parallel: int = 1) -> None:
        """Give every partition's batches to *work*, several partitions at once."""
        run_all(
            self.partitions(),
            lambda place: work(place[0], place[1], self.batches(*place)),
            limit=parallel,
        )

    def _last(self) -> CommitRecord | CheckpointManifest | None:
        return self.replayed[-1] if self.replayed else self.manifest

    def _run_batches(self, run: RunEntry) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415  slow to import; a plan reads no rows

        inline = run.decode_inline()
        where = run.path or "inline run"
        source = pa.py_buffer(inline) if inline is not None else self._mapped(where)
        try:
            yield from pa.ipc.open_stream(source)
        except pa.ArrowInvalid as error:
            raise Corrupt(f"a run is not a valid Arrow stream: {error}", where=where) from error

    def _mapped(self, path: str) -> pa.Buffer:
        import pyarrow as pa  # noqa: PLC0415

        file = self.files[path]
        with typed_errors(file):
            return pa.memory_map(str(file), "r").read_buffer()
