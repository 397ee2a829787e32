"""A pipeline as a process: recover, then commit epoch after epoch, with checkpoints and gc.

    python -m tests.faults.workload HOME STORE ACKS --epochs 20 --cores 2 --seed 1

After `commit` has returned, and not before, the epoch's number is written to ACKS as one line
(`-` is stdout: a pipe that no fault of the disk can reach). Started again on the same folders it
goes on where recovery lands.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import RawIOBase
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.gc import run_gc
from lamina.format.commit import AdoptRecord, CheckpointRecord, CommitRecord, Point
from lamina.format.log import Committed
from lamina.format.manifest import CheckpointManifest, PlacedEntry, with_runs
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.ids import CheckpointId
from lamina.recovery import Recovered, RecoveryConfig, RecoveryManager
from lamina.store.local import LocalStore
from lamina.wal import drop_driver_segments
from lamina.wal.standalone import LogSet
from lamina.wal.standalone.writer import ENTRY_SCHEMA, OPERATOR
from tests.faults.model import (
    SOURCE,
    Folders,
    changes,
    core_of,
    offset_of,
    state_of,
    watermark_of,
)
from tests.support.workspaces import workspace

Acknowledge = Callable[[int], None]
SEGMENT_BYTES = 2 * 1024  # an epoch or two: segments end anywhere between checkpoints
RETAIN = 2
NO_ID = CheckpointId.from_parts(0, 0)  # `commit` fills it in


@dataclass(frozen=True, slots=True)
class Settings:
    seed: int = 1
    cores: int = 2
    checkpoint_every: int = 3


class Pipeline:
    """One life of the process, from recovery to its end."""

    def __init__(self, folders: Folders, settings: Settings, scratch: Path) -> None:
        self._settings = settings
        self._checkpointer = Checkpointer(LocalStore(folders.store), max_concurrent_uploads=1)
        manager = RecoveryManager(
            workspace(folders.home, scratch),
            self._checkpointer,
            config=RecoveryConfig(partitions=settings.cores, max_concurrent=1),
        )
        self._recovered: Recovered = manager.run()
        self._check_hint()
        state = self._recovered.state
        self._next_epoch = state.next_epoch
        self._state = state_of(state)
        self._commits = list(state.replayed)  # after the newest checkpoint
        self._driver = self._recovered.driver
        self._logs = LogSet(
            self._recovered.home,
            settings.cores,
            generation=self._driver.generation,
            segment_bytes=SEGMENT_BYTES,
        )

    def run_epoch(self) -> int:
        """Put, sync every core, decide; when this returns the epoch is acknowledged."""
        epoch = self._next_epoch
        commit = self._prepare(epoch)
        self._driver.commit(commit)
        self._commits.append(commit)
        self._next_epoch = epoch + 1
        return epoch

    def checkpoint_if_due(self) -> None:
        """A full checkpoint now and then, and away with what nobody needs any more."""
        if (self._next_epoch - 1) % self._settings.checkpoint_every == 0:
            self._checkpoint()
            self._sweep()

    def leave_an_epoch_undecided(self) -> None:
        """Runs of an epoch that no COMMIT will ever name."""
        self._prepare(self._next_epoch)

    def close(self) -> None:
        self._logs.close()
        self._recovered.close()

    # an epoch

    def _prepare(self, epoch: int) -> CommitRecord:
        self._logs.set_epoch(epoch)
        for key, value in changes(self._settings.seed, epoch):
            self._change(key, value)
        self._logs.barrier_all()
        self._logs.sync_all()
        return CommitRecord(
            epoch=epoch,
            generation=self._driver.generation,
            parent=self._driver.head,
            follows=self._driver.head,
            partitions=self._settings.cores,
            source_offsets=_offsets(epoch),
            watermark=watermark_of(epoch),
            ranges=self._logs.take_ranges(),
        )

    def _change(self, key: bytes, value: bytes | None) -> None:
        writer = self._logs[core_of(key, self._settings.cores)]
        if value is None:
            writer.append_delete(key)
            self._state.pop(key, None)
        else:
            writer.append_put(key, value)
            self._state[key] = value

    # a checkpoint

    def _checkpoint(self) -> None:
        head = self._driver.head
        assert head is not None
        begin = self._checkpointer.begin(full=True)
        runs = [self._save(begin.id, core, head.epoch) for core in range(self._settings.cores)]
        committed = self._checkpointer.commit(begin, with_runs(_manifest(head), runs))
        self._check_hint()
        self._driver.note_checkpoint(
            CheckpointRecord(begin.id, head.epoch, committed.entry.manifest_sha256)
        )

    def _save(self, id: CheckpointId, core: int, epoch: int) -> PlacedEntry:
        mine = {k: v for k, v in self._state.items() if core_of(k, self._settings.cores) == core}
        data = _stream(mine)
        run = self._checkpointer.save_snapshot(
            id, OPERATOR, core, data, first_epoch=1, last_epoch=epoch, rows=len(mine)
        )
        return PlacedEntry(OPERATOR, core, run)

    def _sweep(self) -> None:
        """R7: what is needed to fall back to the oldest checkpoint that is kept stays."""
        run_gc(self._checkpointer, retain=RETAIN)
        self._check_hint()
        kept: tuple[Committed, ...] = self._checkpointer.list_checkpoints()
        floor = kept[0].epoch
        self._commits = [commit for commit in self._commits if commit.epoch > floor]
        self._driver.rotate(AdoptRecord(self._driver.head, tuple(self._commits)))
        for writer in self._logs.writers:
            writer.rotate()
        self._logs.drop_through(floor)
        drop_driver_segments(self._recovered.home, floor)

    def _check_hint(self) -> None:
        """A failed hint does no harm; this process is strict, so that no fault goes unseen."""
        if self._checkpointer.log.hint_error is not None:
            raise self._checkpointer.log.hint_error


def run(pipeline: Pipeline, epochs: int, acknowledge: Acknowledge) -> None:
    """One life: *epochs* epochs, and the beginning of one more."""
    try:
        for _ in range(epochs):
            acknowledge(pipeline.run_epoch())
            pipeline.checkpoint_if_due()
        pipeline.leave_an_epoch_undecided()
    finally:
        pipeline.close()


def _stream(state: dict[bytes, bytes]) -> bytes:
    """What a snapshot holds: an Arrow stream of one batch."""
    columns = [pa.array(list(state), pa.binary()), pa.array(list(state.values()), pa.binary())]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ENTRY_SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA))
    return sink.getvalue().to_pybytes()


def _offsets(epoch: int) -> dict[str, ConnectorCheckpoint]:
    offset = offset_of(epoch)
    assert offset is not None
    return {SOURCE: ConnectorCheckpoint.with_offsets(offset[0], {"position": offset[1]})}


def _manifest(head: Point) -> CheckpointManifest:
    return CheckpointManifest(
        checkpoint_id=NO_ID,
        epoch=head.epoch,
        timestamp_ms=1,
        commit_digest=head.digest,
        source_offsets=_offsets(head.epoch),
        watermark=watermark_of(head.epoch),
        source_names=(SOURCE,),
    )


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    if options.lie:
        _lie_about(options.lie)
    folders = Folders(options.home, options.store)
    settings = Settings(options.seed, options.cores, options.checkpoint_every)
    scratch = options.home.with_name("scratch")
    with _opened(options.acks) as acks:
        acks.write(b"begin\n")  # from here on a kill hits us and not Python's imports
        for _ in range(options.lives):
            pipeline = Pipeline(folders, settings, scratch)
            run(pipeline, options.epochs, lambda epoch: _write_line(acks, epoch))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A pipeline to be killed")
    parser.add_argument("home", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("acks", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-every", type=int, default=3)
    parser.add_argument("--lives", type=int, default=1, help="recover and go on this many times")
    parser.add_argument("--lie", nargs="+", default=(), help="syncs that do nothing")
    return parser.parse_args(arguments)


def _opened(acks: Path) -> RawIOBase:
    if str(acks) == "-":
        return os.fdopen(sys.stdout.fileno(), "wb", buffering=0, closefd=False)
    return acks.open("ab", buffering=0)


def _write_line(acks: RawIOBase, epoch: int) -> None:
    acks.write(f"{epoch}\n".encode())


def _lie_about(lies: list[str]) -> None:
    """The negative control: a system that says "on disk" and does nothing.

    `fsync` lies about every file, `fsync:/part/` about those with that in their path.
    """
    for lie in lies:
        call, _, part = lie.partition(":")
        setattr(os, call, partial(_lying, getattr(os, call), part))


def _lying(honest: Callable[[int], None], part: str, fd: int) -> None:
    if part not in str(Path(f"/proc/self/fd/{fd}").readlink()):
        honest(fd)


if __name__ == "__main__":
    main()
