"""A small pipeline on the real code, and an independent model of what it has promised.

The model never looks at the log: it is told what an epoch is about to mean (`record`) before the
COMMIT is written, and that it was acknowledged (`ack`) after. State is a dict of dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from lamina.checkpoint import Checkpointer, PartitionData
from lamina.clock import Clock
from lamina.format.commit import (
    AdoptRecord,
    CheckpointRecord,
    CommitRecord,
    Point,
    SinkAhead,
    WalRange,
)
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    PlacedEntry,
    RunEntry,
    with_runs,
)
from lamina.format.names import CheckpointPaths
from lamina.format.pipeline_record import Owner
from lamina.ids import CheckpointId
from lamina.protocol.driver import Commit
from lamina.protocol.recovery import Plan
from lamina.protocol.retention import wal_floor
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, decide_publish
from lamina.recovery import Recovered, RecoveredState, RecoveryConfig, RecoveryManager
from lamina.store.base import Store
from lamina.testing import ManualClock
from lamina.wal import drop_driver_segments, drop_segments
from lamina.wal.driver_log import rule_commit
from lamina.wal.standalone import CoreWalWriter, LogSet
from lamina.wal.standalone.writer import ENTRY_SCHEMA, OPERATOR
from tests.crash.disk import RecordingDisk
from tests.support.workspaces import workspace

CORES = 2
COUNTS = "counts"  # a second operator on the same cores
PIPELINE = Owner("crash")
CONFIG = RecoveryConfig(partitions=CORES, max_concurrent=1)
Place: TypeAlias = tuple[str, int]  # operator and core
Changes: TypeAlias = Mapping[Place, Mapping[bytes, bytes | None]]
State: TypeAlias = Mapping[Place, Mapping[bytes, bytes]]


class Broken(AssertionError):
    """A promise was not kept."""


@dataclass(frozen=True)
class Meant:
    """What one COMMIT means, as its writer meant it."""

    commit: CommitRecord
    state: State


@dataclass
class Truth:
    """What was meant and what was acknowledged, whatever the disk says."""

    meant: dict[str, Meant] = field(default_factory=dict)
    acked: list[Point] = field(default_factory=list)

    def record(self, commit: CommitRecord, state: State) -> None:
        self.meant[commit.digest] = Meant(commit, state)

    def check(self, found: RecoveredState, acked: Iterable[Point]) -> None:
        """Nothing acknowledged is missing, nothing is half there, and all of it is one epoch."""
        head = found.head
        self.check_chain(head, acked)
        expected = self.meant[head.digest].state if head else {}
        if (state := state_of(found)) != expected:
            raise Broken(f"the state of {head} is {state}, not {expected}")
        if not found.report.complete or found.epoch != (head.epoch if head else 0):
            raise Broken(f"{head} is the head, but the state is at epoch {found.epoch}")
        commit = self.meant[head.digest].commit if head else None
        said = (found.source_offsets, found.watermark, found.source_watermarks)
        if said != (_offsets(commit), commit and commit.watermark, _marks(commit)):
            raise Broken(f"offsets and watermark of {head} are {said}")

    def check_chain(self, head: Point | None, acked: Iterable[Point]) -> None:
        """Every acknowledged epoch is in the history of *head*, which somebody has written."""
        if head is not None and head.digest not in self.meant:
            raise Broken(f"nobody has ever committed {head}")
        history = set(self.chain(head))
        for point in acked:
            if point not in history:
                raise Broken(f"the acknowledged {point} is not in the history of {head}")

    def chain(self, head: Point | None) -> list[Point]:
        """The epochs up to *head*, oldest first."""
        walked: list[Point] = []
        while head is not None:
            walked.append(head)
            head = self.meant[head.digest].commit.parent
        return walked[::-1]


@dataclass
class Ledger:
    """A sink with transactions, in the outside world: no crash of ours touches it (R6)."""

    name: str = "ledger"
    applied: list[Point] = field(default_factory=list)
    at: SinkPosition = field(default_factory=lambda: SinkPosition(PIPELINE, 0, None))
    pause: Callable[[str], None] = lambda _: None

    def position(self) -> SinkPosition:
        self.pause(f"look at {self.name}")
        return self.at

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        self.pause(f"fence {self.name}")
        check_fence(self.at, generation)
        self.at = SinkPosition(PIPELINE, generation, self.at.point)
        return self.at

    def publish(self, commit: Commit, generation: int, accepted: SinkAhead | None = None) -> None:
        self.pause(f"publish {commit.epoch}")
        decided = decide_publish(
            self.at, commit, pipeline=PIPELINE, generation=generation, accepted=accepted
        )
        if decided is Publish.NOW:
            self.applied.append(commit.point)
            self.at = SinkPosition(PIPELINE, generation, commit.point)


@dataclass
class Process:
    """One process of the pipeline, from its start to its crash."""

    disk: RecordingDisk
    store: Store
    truth: Truth
    scratch: Path
    seed: int = 0
    segment_bytes: int = 1536
    sink: Ledger | None = None
    acknowledge: Callable[[CommitRecord], None] | None = None
    config: RecoveryConfig = CONFIG

    def __post_init__(self) -> None:
        self.clock: Clock = ManualClock(self.seed)
        self.checkpointer = Checkpointer(
            self.store, CheckpointPaths("p"), max_concurrent_uploads=1, clock=self.clock
        )
        self.logs: LogSet | None = None
        self.pending: list[Commit] = []

    # start

    def recover(self) -> RecoveredState:
        """Claim, look, plan, restore, adopt; the caller judges the state, then `go_on`."""
        sinks = (self.sink,) if self.sink else ()
        self.recovered: Recovered = RecoveryManager(
            workspace(self.disk, self.scratch),
            self.checkpointer,
            sinks=sinks,
            config=self.config,
            clock=self.clock,
        ).run()
        self.home, self.driver = self.recovered.home, self.recovered.driver
        found = self.recovered.state
        self._take(found)
        return found

    def _take(self, found: RecoveredState) -> None:
        plan: Plan = found.plan
        self.state: dict[Place, dict[bytes, bytes]] = {
            place: dict(entries) for place, entries in state_of(found).items()
        }
        self.head, self.next_epoch = found.head, found.next_epoch
        self.since: list[CommitRecord] = list(found.replayed)  # after the newest checkpoint
        self.base = _base(found.manifest)
        self.changed: dict[Place, dict[bytes, bytes | None]] = {}
        for commit in found.replayed:
            self._note(self._changes_of(found, commit))
        self.pending = list(plan.publish.get(self.sink.name, ())) if self.sink else []

    def go_on(self) -> None:
        """Open the logs of all cores and publish what is pending."""
        self.logs = LogSet(
            self.home,
            CORES,
            generation=self.driver.generation,
            epoch=self.head.epoch if self.head else 0,
            segment_bytes=self.segment_bytes,
        )
        self.publish()

    def start(self, acked: Iterable[Point] | None = None) -> RecoveredState:
        """Recover, hold the result to the model, go on."""
        found = self.recover()
        self.truth.check(found, self.truth.acked if acked is None else acked)
        self.go_on()
        return found

    # epochs

    def epoch(self, changes: Changes, *, barrier: bool = False) -> Point:
        """One epoch through the logs of the cores."""
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        return self.commit(epoch, changes, self.append(epoch, changes, barrier=barrier))

    def small_epoch(self, entries: Mapping[bytes, bytes | None]) -> Point:
        """One epoch of one core whose run is in the driver log itself: one sync for all."""
        epoch, self.next_epoch = self.next_epoch, self.next_epoch + 1
        place = self.driver.append_run(batch_of(entries), epoch=epoch)
        return self.commit(epoch, {(OPERATOR, 0): entries}, (place,))

    def append(
        self, epoch: int, changes: Changes, *, barrier: bool = False
    ) -> tuple[WalRange, ...]:
        assert self.logs is not None
        self.logs.set_epoch(epoch)
        for (operator, core), entries in changes.items():
            write_entries(self.logs[core], operator, entries)
        if barrier:
            self.logs.barrier_all()
        self.logs.sync_all()
        return self.logs.take_ranges()

    def commit(self, epoch: int, changes: Changes, ranges: tuple[WalRange, ...]) -> Point:
        """COMMIT in the driver log, then the sink."""
        commit = CommitRecord(
            epoch=epoch,
            generation=self.driver.generation,
            parent=self.head,
            follows=self.head,
            partitions=CORES,
            source_offsets={"orders": ConnectorCheckpoint({"0": str(100 * epoch)}, epoch)},
            watermark=1000 * epoch,
            source_watermarks={"orders": 1000 * epoch + 1},
            ranges=ranges,
        )
        after = applied(self.state, changes)
        self.truth.record(commit, after)
        self.driver.commit(commit)
        self._ack(commit)
        self.state, self.head = after, commit.point
        self.since.append(commit)
        self._note(changes)
        self.pending.append(rule_commit(commit))
        self.publish()
        return commit.point

    def publish(self) -> None:
        while self.sink is not None and self.pending:
            accepted = self.driver.sinks.get(self.sink.name)
            self.sink.publish(self.pending[0], self.driver.generation, accepted)
            del self.pending[0]

    # checkpoints

    def checkpoint(self) -> CheckpointId:
        """The whole state, or what has changed since the checkpoint below; then tell the home."""
        assert self.head is not None
        begin = self.checkpointer.begin()
        below = self.base[1] if self.base and begin.parent == self.base[0] else ()
        runs = [*below, *self._save(begin.id, below)]
        commit = self.truth.meant[self.head.digest].commit
        manifest = CheckpointManifest(
            checkpoint_id=begin.id,
            epoch=commit.epoch,
            timestamp_ms=self.clock.now_ms(),
            commit_digest=self.head.digest,
            source_offsets=commit.source_offsets,
            source_watermarks=commit.source_watermarks,
            watermark=commit.watermark,
        )
        done = self.checkpointer.commit(begin, with_runs(manifest, runs))
        self.base, self.changed, self.since = (begin.id, tuple(runs)), {}, []
        sha256 = done.entry.manifest_sha256
        self.driver.note_checkpoint(CheckpointRecord(begin.id, commit.epoch, sha256))
        return begin.id

    def _save(self, id: CheckpointId, below: Iterable[PlacedEntry]) -> list[PlacedEntry]:
        """The runs of one operator as objects, those of the other in the manifest."""
        assert self.head is not None
        last = self.head.epoch
        covered = {(run.operator, run.partition) for run in below}
        files, runs = [], []
        for place in sorted({*self.state, *self.changed}):
            entries = self.changed.get(place) if place in covered else self.state.get(place)
            if not entries:
                continue
            first = self.since[0].epoch if place in covered else 1
            kind = "delta" if place in covered else "snap"
            data = stream_of(entries)
            if place[0] == OPERATOR:
                files.append(PartitionData(*place, kind, first, last, len(entries), data))
            else:
                run = RunEntry.inline(
                    kind, data, first_epoch=first, last_epoch=last, rows=len(entries)
                )
                runs.append(PlacedEntry(*place, run))
        return [*runs, *self.checkpointer.save_partitions(id, files)]

    def rotate(self) -> None:
        """New parts of every log; the driver's begins with what still matters."""
        assert self.logs is not None
        for writer in self.logs.writers:
            writer.rotate()
        self.driver.rotate(AdoptRecord(self.head, tuple(self.since)))

    def trim(self, retain: int = 1) -> tuple[str, ...]:
        """Drop whole segments below the floor of R7."""
        at = self.sink.at.point if self.sink else self.head
        floor = wal_floor(self.checkpointer.history(), retain, [at.epoch if at else 0])
        keep = {writer.segment for writer in self.logs.writers} if self.logs else set()
        dropped = drop_segments(self.home, floor, keep=keep)
        return (*dropped, *drop_driver_segments(self.home, floor))

    def close(self) -> None:
        if self.logs is not None:
            self.logs.close()
        self.recovered.close()

    # steps

    def _ack(self, commit: CommitRecord) -> None:
        if self.acknowledge is not None:
            self.acknowledge(commit)
        else:
            self.truth.acked.append(commit.point)

    def _note(self, changes: Changes) -> None:
        for place, entries in changes.items():
            self.changed.setdefault(place, {}).update(entries)

    def _changes_of(self, found: RecoveredState, commit: CommitRecord) -> Changes:
        changes: dict[Place, dict[bytes, bytes | None]] = {}
        for place in commit.ranges:
            entries = changes.setdefault((place.operator, place.core), {})
            [record] = found.wal.records([place])
            entries.update(entries_of(record.batch()))
        return changes


def write_entries(
    writer: CoreWalWriter, operator: str, entries: Mapping[bytes, bytes | None]
) -> None:
    """Puts and deletes for the writer's own operator, an Arrow batch for any other."""
    if operator != OPERATOR:
        writer.append_batch(batch_of(entries), operator=operator)
        return
    for key, value in entries.items():
        if value is None:
            writer.append_delete(key)
        else:
            writer.append_put(key, value)


def batch_of(entries: Mapping[bytes, bytes | None]) -> pa.RecordBatch:
    columns = [pa.array(entries.keys(), pa.binary()), pa.array(entries.values(), pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def stream_of(entries: Mapping[bytes, bytes | None]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ENTRY_SCHEMA) as stream:
        stream.write_batch(batch_of(entries))
    return sink.getvalue().to_pybytes()


def entries_of(batch: pa.RecordBatch) -> dict[bytes, bytes | None]:
    return dict(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))


def applied(state: State, changes: Changes) -> dict[Place, dict[bytes, bytes]]:
    """The state after *changes*: newest wins, None deletes, an empty place is no place."""
    after = {place: dict(entries) for place, entries in state.items()}
    for place, entries in changes.items():
        values = {**after.get(place, {}), **entries}
        after[place] = {key: value for key, value in values.items() if value is not None}
    return {place: entries for place, entries in after.items() if entries}


def state_of(found: RecoveredState) -> dict[Place, dict[bytes, bytes]]:
    """What a recovery gives back, as the model's dict of dicts."""
    state: dict[Place, dict[bytes, bytes]] = {}
    for place in found.partitions():
        for batch in found.batches(*place):
            state = applied(state, {place: entries_of(batch)})
    return state


def _base(
    manifest: CheckpointManifest | None,
) -> tuple[CheckpointId, tuple[PlacedEntry, ...]] | None:
    if manifest is None:
        return None
    runs = tuple(
        PlacedEntry(operator, partition, run)
        for operator, found in manifest.operators.items()
        for partition, partition_runs in found.partitions.items()
        for run in partition_runs
    )
    return manifest.checkpoint_id, runs


def _offsets(commit: CommitRecord | None) -> Mapping[str, ConnectorCheckpoint]:
    return commit.source_offsets if commit else {}


def _marks(commit: CommitRecord | None) -> Mapping[str, int]:
    return commit.source_watermarks if commit else {}
