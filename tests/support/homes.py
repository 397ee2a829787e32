"""A small home with its store, the same in every run, for the tests of `wal` and `recover`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint import Checkpointer
from lamina.format.commit import CheckpointRecord, CommitRecord, Point
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    PlacedEntry,
    SinkCommitted,
    with_runs,
)
from lamina.ids import CheckpointId
from lamina.recovery import Recovered, RecoveryConfig, RecoveryManager
from lamina.store import LocalStore
from lamina.testing import ManualClock
from lamina.wal.standalone import LogSet
from tests.support.workspaces import workspace

CHECKPOINTS = (2, 4)
EPOCHS = 6


@dataclass(frozen=True)
class HomeAndStore:
    """Two cores, six acknowledged epochs, checkpoints of epochs 2 and 4, two entries too many."""

    home: Path
    store: Path
    ids: tuple[CheckpointId, ...]

    @property
    def driver(self) -> Path:
        return max((self.home / "driver").glob("*.wal"))

    def core(self, core: int) -> Path:
        return max((self.home / f"core-{core}").glob("*.wal"))

    def name(self, segment: Path) -> str:
        return segment.relative_to(self.home).as_posix()

    def artifact(self, index: int) -> Path:
        return min((self.store / str(self.ids[index])).rglob("*.snap"))

    def copy_to(self, folder: Path) -> HomeAndStore:
        shutil.copytree(self.home, folder / "home")
        shutil.copytree(self.store, folder / "orders")
        return HomeAndStore(folder / "home", folder / "orders", self.ids)


def make_home(folder: Path, *, seed: int = 11) -> HomeAndStore:
    """Run a pipeline by hand: recover, six epochs, two checkpoints, then stop without a word."""
    clock = ManualClock(seed=seed, now_ms=1_762_000_000_000)
    checkpointer = Checkpointer(LocalStore(folder / "orders"), clock=clock)
    manager = RecoveryManager(
        workspace(folder / "home", folder / "scratch"),
        checkpointer,
        config=RecoveryConfig(partitions=2),
        clock=clock,
    )
    recovered = manager.run()
    logs = LogSet(recovered.home, 2, generation=recovered.driver.generation)
    ids = []
    for epoch in range(1, EPOCHS + 1):
        clock.advance(60)
        point = commit_epoch(recovered, logs, epoch)
        if epoch in CHECKPOINTS:
            ids.append(save_checkpoint(checkpointer, recovered, point))
    logs.set_epoch(EPOCHS + 1)
    logs[0].append_put(b"never", b"acknowledged")
    logs[0].append_delete(b"never")
    logs.sync_all()
    logs.close()
    recovered.close()
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    return HomeAndStore(folder / "home", folder / "orders", tuple(ids))


def commit_epoch(recovered: Recovered, logs: LogSet, epoch: int) -> Point:
    logs.set_epoch(epoch)
    logs[0].append_put(b"customer-1", f"total {epoch}".encode())
    logs[0].append_delete(b"\x00\xff\x1b[2J")
    logs[1].append_put(b"customer-2", f"total {epoch * 2}".encode())
    logs.barrier_all()
    logs.sync_all()
    head = recovered.driver.head
    return recovered.driver.commit(
        CommitRecord(
            epoch=epoch,
            generation=recovered.driver.generation,
            parent=head,
            follows=head,
            partitions=2,
            source_offsets=offsets(epoch),
            table_offsets={"users": ConnectorCheckpoint({"version": "4"}, epoch)},
            watermark=1_000_000 * epoch,
            source_watermarks={"clicks": 1_000_000 * epoch},
            ranges=logs.take_ranges(),
        )
    )


def offsets(epoch: int) -> dict[str, ConnectorCheckpoint]:
    return {"clicks": ConnectorCheckpoint({"file": f"part-{epoch}"}, epoch)}


def save_checkpoint(checkpointer: Checkpointer, recovered: Recovered, point: Point) -> CheckpointId:
    """A full state of both partitions, and the note in the driver log that it exists."""
    begin = checkpointer.begin(full=True)
    epoch = point.epoch
    placed = []
    for partition in range(2):
        run = checkpointer.save_snapshot(
            begin.id, "state", partition, state(epoch), first_epoch=1, last_epoch=epoch, rows=1
        )
        placed.append(PlacedEntry("state", partition, run))
    manifest = CheckpointManifest(
        checkpoint_id=begin.id,
        epoch=epoch,
        timestamp_ms=checkpointer.clock.now_ms(),
        generation=begin.generation,
        commit_digest=point.digest,
        pipeline_id="orders",
        source_offsets=offsets(epoch),
        sink_epochs={"lake": epoch},
        sink_commit_statuses={"lake": SinkCommitted()},
        watermark=1_000_000 * epoch,
        source_watermarks={"clicks": 1_000_000 * epoch},
    )
    committed = checkpointer.commit(begin, with_runs(manifest, tuple(placed)))
    recovered.driver.note_checkpoint(
        CheckpointRecord(committed.id, epoch, committed.entry.manifest_sha256)
    )
    return committed.id


def state(epoch: int) -> bytes:
    batch = pa.record_batch({"key": [b"customer"], "value": [f"total {epoch}".encode()]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def tear(segment: Path) -> None:
    """What a power cut leaves: the last record is there in part."""
    os.truncate(segment, segment.stat().st_size - 100)


def flip(segment: Path, offset: int) -> None:
    """One bit of a byte that was synced long ago."""
    with segment.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
