"""A small pipeline in a folder, the same in every run, for the tests of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from lamina.checkpoint import Checkpointer, create_savepoint
from lamina.cli.main import cli
from lamina.format.log import Begin
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    OperatorCheckpoint,
    PlacedEntry,
    SinkCommitted,
    with_runs,
)
from lamina.format.names import CheckpointPaths
from lamina.ids import CheckpointId
from lamina.store import LocalStore
from lamina.testing import ManualClock

NOBODY = 65534


@dataclass(frozen=True)
class Pipeline:
    """Three checkpoints (epochs 10, 20, 30), the savepoint `before-upgrade` on the first."""

    root: Path
    base: str
    ids: tuple[CheckpointId, ...]

    @property
    def folder(self) -> Path:
        return self.root / self.base if self.base else self.root

    def log_entry(self, seq: int) -> Path:
        return self.folder / "log" / f"{seq:020d}.json"

    def manifest(self, index: int) -> Path:
        return self.folder / str(self.ids[index]) / "manifest.json"

    def artifact(self, index: int) -> Path:
        found = (self.folder / str(self.ids[index])).rglob("*.*")
        return next(p for p in sorted(found) if p.suffix in (".snap", ".delta"))


def make_pipeline(root: Path, base: str = "", *, in_flight: bool = True) -> Pipeline:
    """Write the pipeline; *in_flight* leaves a fourth checkpoint unfinished."""
    clock = ManualClock(seed=7, now_ms=1_762_000_000_000)
    checkpointer = Checkpointer(LocalStore(root), CheckpointPaths(base), clock=clock)
    checkpointer.log.take_over("/srv/orders")
    runs: tuple[PlacedEntry, ...] = ()
    ids = []
    for epoch in (10, 20, 30):
        clock.advance(60)
        begin = checkpointer.begin()
        runs = _save(checkpointer, begin, epoch, runs)
        ids.append(checkpointer.commit(begin, _manifest(begin, epoch, runs, clock)).id)
        if epoch == 10:
            create_savepoint(checkpointer, "before-upgrade", begin.id)
    if in_flight:
        clock.advance(60)
        checkpointer.begin()
    return Pipeline(root, CheckpointPaths(base).base, tuple(ids))


def _save(
    checkpointer: Checkpointer, begin: Begin, epoch: int, below: tuple[PlacedEntry, ...]
) -> tuple[PlacedEntry, ...]:
    """A full state at epochs 10 and 30, and only what changed at epoch 20."""
    data = f"state of epoch {epoch} ".encode() * 100
    if epoch == 20:
        run = checkpointer.save_delta(
            begin.id, "totals", 0, data, first_epoch=11, last_epoch=20, rows=5
        )
        return (*below, PlacedEntry("totals", 0, run))
    placed = []
    for partition in range(2):
        run = checkpointer.save_snapshot(
            begin.id, "totals", partition, data, first_epoch=1, last_epoch=epoch, rows=100
        )
        placed.append(PlacedEntry("totals", partition, run))
    return tuple(placed)


def _manifest(
    begin: Begin, epoch: int, runs: tuple[PlacedEntry, ...], clock: ManualClock
) -> CheckpointManifest:
    """At epoch 20 the sink `mail` is one epoch behind: a warning."""
    behind = epoch == 20
    head = CheckpointManifest(
        checkpoint_id=begin.id,
        epoch=epoch,
        timestamp_ms=clock.now_ms(),
        generation=begin.generation,
        parent_id=begin.parent,
        parent_epoch=epoch - 1,
        pipeline_id="orders",
        source_offsets={"clicks": ConnectorCheckpoint({"file": f"part-{epoch}"}, epoch)},
        table_offsets={"users": ConnectorCheckpoint({"version": "4"}, epoch)},
        sink_epochs={"lake": epoch, "mail": epoch - 1 if behind else epoch},
        sink_commit_statuses={
            "lake": SinkCommitted(),
            "mail": Failed("connection refused") if behind else SinkCommitted(),
        },
        operator_states={"counter": OperatorCheckpoint.inline(b"\x01\x02\x03")},
        watermark=1_762_000_000_000_000,
        source_watermarks={"clicks": 1_762_000_000_000_000},
    )
    return with_runs(head, runs)


def lamina(*arguments: str | Path | CheckpointId, env: dict[str, str] | None = None) -> Result:
    """Run a command line in this process; a bug in Lamina fails the test."""
    clean: dict[str, str | None] = dict.fromkeys(("LAMINA_STORE", "LAMINA_BASE", "LAMINA_HOME"))
    result = CliRunner().invoke(cli, [str(each) for each in arguments], env=clean | (env or {}))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(result: Result) -> Any:
    """What stdout says: one JSON document and nothing else."""
    return json.loads(result.stdout)


def tree(root: Path) -> dict[str, bytes]:
    """Every file with its bytes, to show that nothing was changed."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@contextmanager
def without_rights() -> Iterator[None]:
    """Be nobody for a while: root may write into folders that are read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
