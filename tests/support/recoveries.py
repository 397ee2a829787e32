"""A small pipeline for the tests of recovery: a home, a store, and a dict of what it promised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint import Checkpointer, PartitionData
from lamina.disk import LocalDisk
from lamina.format.commit import CheckpointRecord, CommitRecord, Point
from lamina.format.log import Committed
from lamina.format.names import CheckpointPaths
from lamina.format.pipeline_record import Owner
from lamina.protocol.sinks import SinkPosition
from lamina.recovery import (
    Proof,
    Recovered,
    RecoveredState,
    RecoveryConfig,
    RecoveryManager,
    Scan,
    rehearse,
)
from lamina.recovery.rehearsal import look
from lamina.store import MemoryStore, Store
from lamina.testing import ManualClock
from lamina.wal.home import read_home
from lamina.wal.standalone import LogSet
from tests.support.checkpoints import manifest_of
from tests.support.wal_logs import apply, batch_of, driver_commit, offsets
from tests.support.workspaces import workspace

OPERATOR = "state"
Changes = Mapping[bytes, bytes | None]


@dataclass
class MemorySink:
    """A sink that only says where it is."""

    name: str = "out"
    at: Point | None = None
    generation: int = 0

    def position(self) -> SinkPosition:
        return SinkPosition(Owner("p"), self.generation, self.at)

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        self.generation = generation
        return self.position()


@dataclass
class Pipeline:
    """Runs epochs on the real code; *state* is what every acknowledged one has made of it."""

    root: Path
    store: Store = field(default_factory=MemoryStore)
    cores: int = 2
    sinks: tuple[MemorySink, ...] = ()
    home: str = "home"
    state: dict[bytes, bytes] = field(default_factory=dict)
    processes: int = 0
    commits: list[CommitRecord] = field(default_factory=list)

    @property
    def disk(self) -> LocalDisk:
        return LocalDisk(self.root / self.home)

    def checkpointer(self) -> Checkpointer:
        clock = ManualClock(self.processes)
        return Checkpointer(self.store, CheckpointPaths("p"), clock=clock)

    def manager(self, config: RecoveryConfig | None = None) -> RecoveryManager:
        self.processes += 1
        self._checkpointer = self.checkpointer()
        return RecoveryManager(
            workspace(self.disk, self.root / "scratch"),
            self._checkpointer,
            sinks=self.sinks,
            config=config or RecoveryConfig(partitions=self.cores),
            clock=ManualClock(self.processes),
        )

    def look(self) -> Scan:
        """What a dry run sees."""
        return look(read_home(self.disk), self.checkpointer(), self.sinks)

    def preview(
        self, *, until_epoch: int | None = None, entries_max: int | None = None
    ) -> RecoveredState:
        """What a start would restore, without one."""
        proof = Proof(
            scratch=self.root / "scratch", until_epoch=until_epoch, entries_max=entries_max
        )
        return rehearse(read_home(self.disk), self.checkpointer(), proof=proof).state

    def start(self, config: RecoveryConfig | None = None) -> RecoveredState:
        """A process: recover, then be ready for epochs."""
        self.recovered: Recovered = self.manager(config).run()
        self.logs = LogSet(
            self.recovered.home, self.cores, generation=self.recovered.driver.generation
        )
        return self.recovered.state

    def stop(self) -> None:
        """As a kill: files and locks go, nothing is synced."""
        self.logs.close()
        self.recovered.close()

    def epoch(self, epoch: int, changes: Changes, *, at: int | None = None) -> Point:
        """Append to the core of each key, sync, COMMIT."""
        commit = self.prepare(epoch, changes, at=at)
        point = self.recovered.driver.commit(commit)
        self.commits.append(commit)
        for key, value in changes.items():
            apply(self.state, batch_of({key: value}))
        return point

    def prepare(self, epoch: int, changes: Changes, *, at: int | None = None) -> CommitRecord:
        """Everything before the COMMIT."""
        self.logs.set_epoch(epoch)
        for core, writer in enumerate(self.logs.writers):
            own = {k: v for k, v in changes.items() if core_of(k, self.cores) == core}
            if own:
                writer.append_batch(batch_of(own))
        self.logs.sync_all()
        at = epoch * 100 if at is None else at
        return driver_commit(
            self.recovered.driver,
            epoch,
            self.logs.take_ranges(),
            partitions=self.cores,
            source_offsets=offsets(source=at),
            source_watermarks={"source": at},
            watermark=at,
        )

    def checkpoint(self, *, full: bool = False, note: bool = True) -> Committed:
        """What the state is now, a snapshot per core: every checkpoint here stands alone."""
        head = self.recovered.driver.head
        assert head is not None
        begin = self._checkpointer.begin(full=full)
        parts = [
            PartitionData(
                OPERATOR, core, "snap", 0, head.epoch, 1, stream_of(self._own(core).items())
            )
            for core in range(self.cores)
        ]
        runs = self._checkpointer.save_partitions(begin.id, parts)
        commit = next(c for c in reversed(self.commits) if c.point == head)
        manifest = replace(
            manifest_of(head.epoch, runs),
            commit_digest=head.digest,
            source_offsets=commit.source_offsets,
            source_names=tuple(sorted(commit.source_offsets)),
            source_watermarks=commit.source_watermarks,
            watermark=commit.watermark,
        )
        committed = self._checkpointer.commit(begin, manifest)
        if note:
            self.recovered.driver.note_checkpoint(
                CheckpointRecord(committed.id, head.epoch, committed.entry.manifest_sha256)
            )
        return committed

    def _own(self, core: int) -> dict[bytes, bytes]:
        return {k: v for k, v in self.state.items() if core_of(k, self.cores) == core}

    def damage(self, committed: Committed) -> None:
        """One artifact of a checkpoint is not what its manifest says."""
        key = next(
            info.key
            for info in self.store.list()
            if str(committed.id) in info.key and info.key.endswith(".snap")
        )
        self.store.put(key, self.store.get(key)[:-1] + b"?")


def core_of(key: bytes, cores: int) -> int:
    return sum(key) % cores


def stream_of(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    batch = batch_of(dict(items))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def recovered_state(found: RecoveredState) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for place in found.partitions():
        for batch in found.batches(*place):
            apply(state, batch)
    return state
