"""Reading a checkpoint's keyed state, at any time and beside a running writer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch, run_files
from lamina.checkpoint.finding import find_checkpoint
from lamina.embedded.opening import STORE
from lamina.embedded.table import Data, one_batch
from lamina.errors import NotFound
from lamina.format.manifest_model import CheckpointManifest
from lamina.ids import CheckpointId
from lamina.recovery.operators import found_states
from lamina.state.operator import OperatorState
from lamina.state.partition import Looked, look_up
from lamina.state.run import TimeRange
from lamina.state.schema import StateSchema
from lamina.state.vnodes import EVERYTHING, SlotRange
from lamina.store import open_store


class Snapshot:
    """The state of one checkpoint; nothing in it ever changes."""

    def __init__(
        self,
        manifest: CheckpointManifest,
        operators: dict[str, OperatorState],
        folder: tempfile.TemporaryDirectory[str],
    ) -> None:
        self.manifest = manifest
        self._operators = operators
        self._folder: tempfile.TemporaryDirectory[str] | None = folder

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._operators))

    def schema(self, table: str) -> StateSchema:
        return self.state(table).schema

    def state(self, table: str) -> OperatorState:
        if table not in self._operators:
            raise NotFound(
                f"there is no table {table!r} in checkpoint {self.manifest.checkpoint_id}",
                advice=f"It has: {', '.join(self.tables) or 'none'}",
            )
        return self._operators[table]

    def get(self, table: str, keys: Data) -> Looked:
        """The values of keys, row by row."""
        return look_up(self.state(table).partitions, one_batch(keys))

    def scan(
        self,
        table: str,
        vnodes: SlotRange = EVERYTHING,
        *,
        since: int | None = None,
        before: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Every row, as key and value columns, block by block."""
        times = None if since is None and before is None else TimeRange(since, before)
        for partition in self.state(table).partitions:
            yield from partition.scan(vnodes, times)

    def to_table(self, table: str) -> pa.Table:
        return pa.Table.from_batches(list(self.scan(table)), self.schema(table).row)

    def close(self) -> None:
        """Remove the files that were fetched."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_snapshot(
    path_or_url: str | Path, at: CheckpointId | str | int | None = None, *, table: str | None = None
) -> Snapshot:
    """A checkpoint's state, by default the newest; by id, savepoint or epoch. Writes nothing.

    Give the folder or the URL that `lamina.open` was given. With *table* only its files are
    fetched.
    """
    text = str(path_or_url)
    base = text if "://" in text else str(Path(text) / STORE)
    checkpointer = Checkpointer(open_store(base, writable=False), vnode_count=None)
    return load_snapshot(checkpointer, at, table=table)


def load_snapshot(
    checkpointer: Checkpointer, at: CheckpointId | str | int | None, *, table: str | None = None
) -> Snapshot:
    """A checkpoint's state, through an existing checkpointer."""
    if at is None:
        at = checkpointer.read_latest()
        if at is None:
            raise NotFound("there is no checkpoint yet", where=checkpointer.store.url)
    manifest = checkpointer.load_manifest(find_checkpoint(checkpointer, at).id)
    folder = tempfile.TemporaryDirectory(prefix="lamina-snapshot-")
    try:
        files = fetch(checkpointer, run_files(manifest, table), Path(folder.name))
        operators = _operators(manifest, files, table)
        return Snapshot(manifest, operators, folder)
    except BaseException:
        folder.cleanup()
        raise


def _operators(
    manifest: CheckpointManifest, files: dict[str, Path], table: str | None
) -> dict[str, OperatorState]:
    operators = {}
    for name, found in found_states(manifest, files, only=table).items():
        schema = found.schema(name)
        if schema is not None:
            operators[name] = OperatorState.open(schema, 1, placed=found.placed)
    return operators
