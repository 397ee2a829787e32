"""The embedded store: put, get, scan, commit, checkpoint, rewind. docs/library.md begins with it.

Everything a process has written since the last commit becomes one epoch: one run per table and
partition in the driver log, then its COMMIT, then one sync. Checkpoints are made beside the epochs.
One process writes; readers open a checkpoint of their own choice (snapshot.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint import create_savepoint
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch, run_files
from lamina.checkpoint.finding import find_checkpoint
from lamina.checkpoint.savepoints import Savepoint
from lamina.checkpoint.state import check_readable
from lamina.disk import OpenedBy
from lamina.embedded.byte_table import BYTE_TABLE, BYTES, Puts, check_bytes, value_of
from lamina.embedded.loading import load_states
from lamina.embedded.offsets import Offsets, Standing, connectors
from lamina.embedded.saves import Saves
from lamina.embedded.table import Table
from lamina.errors import Refused, StoreError, UsageError
from lamina.format.commit import CommitRecord, Point
from lamina.format.log import Committed
from lamina.format.manifest_model import CheckpointManifest, ConnectorCheckpoint
from lamina.format.names import check_name
from lamina.ids import CheckpointId
from lamina.protocol.recovery import point_of
from lamina.recovery.manager import Recovered
from lamina.recovery.state import RecoveryReport
from lamina.state.merge import Merge
from lamina.state.operator import OperatorState
from lamina.state.schema import StateSchema
from lamina.workspace.base import Workspace
from lamina.workspace.ranges import RangeReader


class EmbeddedStore:
    """Made by `lamina.open`. One process owns it at a time; do not share it between threads."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        recovered: Recovered,
        space: Workspace,
        *,
        partitions: int,
        retain: int,
        compression: str | None = None,
    ) -> None:
        state = recovered.state
        self._checkpointer = checkpointer
        self._recovered = recovered
        self._driver = recovered.driver
        self._space = space
        self._folder = folder = space.run_files
        self._partitions = partitions
        self.report: RecoveryReport = state.report
        self._head: Point | None = state.head
        self._next_epoch = state.next_epoch
        self._at: Standing = state
        self._puts = Puts()
        self._closed = False
        self._owner = OpenedBy()
        self._tables: dict[str, Table] = {}
        self._saves = Saves(
            checkpointer, recovered, folder, self._tables, retain=retain, compression=compression
        )
        self._take(self._states(state.manifest, state.files, state.replayed, wal=state.wal))

    # where it stands

    @property
    def epoch(self) -> int:
        """The last epoch that was committed; 0 before the first."""
        return self._head.epoch if self._head else 0

    @property
    def offsets(self) -> Mapping[str, ConnectorCheckpoint]:
        """Where the sources stood at the last commit: continue reading there."""
        return self._at.source_offsets

    @property
    def watermark(self) -> int | None:
        return self._at.watermark

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._tables))

    @property
    def last_checkpoint(self) -> CheckpointId | None:
        return self._saves.base_id

    # bytes

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key of the table of bytes; it counts with the next commit."""
        check_bytes(value)
        self._collect(key, value)

    def delete(self, key: bytes) -> None:
        self._collect(key, None)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, committed or not; None if there is none."""
        self._check_open()
        check_bytes(key)
        return self._puts[key] if key in self._puts else value_of(self._bytes(), key)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key and value, in the order of their hashes."""
        for batch in self._bytes().scan():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    # tables

    def table(
        self,
        name: str,
        key: pa.Schema | None = None,
        value: pa.Schema | None = None,
        *,
        merges: Sequence[Merge] | None = None,
        time: str | None = None,
    ) -> Table:
        """A keyed table: a new one with these columns; without columns, an existing one.

        Key columns and merges never change. An existing table keeps its merges if *merges* is left
        out; a new table without them replaces old values. Value columns may get a wider type, and
        new ones may be added (R9).
        """
        self._check_open()
        known = self._tables.get(name)
        if key is None or value is None:
            if known is None:
                raise UsageError(
                    f"there is no table {name!r} yet", advice="Name its key and value columns"
                )
            return known
        if merges is None:
            merges = known.schema.merges if known else ()
        schema = StateSchema(key, value, time, tuple(merges))
        if known is None:
            base = self._saves.base
            check_readable(name, base.operators.get(name) if base else None)
            check_name(name)  # it becomes a part of paths, once its state has outgrown a manifest
            state = OperatorState.open(schema, self._partitions)
            known = self._tables[name] = Table(name, state, self._rebuild)
        elif known.schema != schema:
            known.reopen(schema)
        return known

    # epochs

    def commit(
        self,
        offsets: Offsets | None = None,
        watermark: int | None = None,
        *,
        source_watermarks: Mapping[str, int] | None = None,
    ) -> int:
        """Make everything written so far, with these offsets, one durable epoch; its number.

        A source that is not named keeps its offset. When this returns, the epoch survives a power
        cut.
        """
        self._check_writable()
        self._saves.take_if_done()
        self._flush()
        for table in self._tables.values():
            table.compact(self._folder)
        epoch = self._next_epoch
        log = self._driver.append_run
        runs = {
            name: [
                (log(batch, epoch=epoch, operator=name, core=number), batch)
                for number, batch in table.take_runs()
            ]
            for name, table in sorted(self._tables.items())
            if table.changed
        }
        at = self._at
        record = replace(
            self._record(epoch, self._head, at),
            source_offsets={**at.source_offsets, **connectors(offsets or {}, epoch)},
            watermark=at.watermark if watermark is None else watermark,
            source_watermarks={**at.source_watermarks, **(source_watermarks or {})},
            ranges=tuple(place for logged in runs.values() for place, _ in logged),
        )
        self._decide(record)
        for name, logged in runs.items():
            self._tables[name].advance(logged, epoch)
        return epoch

    def rollback(self) -> None:
        """Discard what was written since the last commit."""
        self._check_open()
        self._puts.clear()
        for table in self._tables.values():
            table.forget()

    # checkpoints

    def checkpoint(self, *, wait: bool = True) -> Committed | None:
        """Save what is committed to the store; only runs that it does not have are uploaded.

        Without *wait* it is made in the background and None is returned; a failure is raised by
        the next call about checkpoints.
        """
        self._check_writable()
        self.wait_for_checkpoint()
        if self._head is None:
            raise UsageError("nothing is committed yet", advice="Call commit first")
        base = self._saves.base
        if base is not None and base.epoch == self._head.epoch:
            return self._checkpointer.find(base.checkpoint_id)
        self._saves.begin()
        return self._saves.wait() if wait else None

    def wait_for_checkpoint(self) -> Committed | None:
        """Wait for the checkpoint that is being made, if one is."""
        return self._saves.wait()

    def savepoint(self, name: str) -> Savepoint:
        """A checkpoint with a name, kept until a person drops it."""
        made = self.checkpoint()
        assert made is not None
        return create_savepoint(self._checkpointer, name, made.id)

    def rewind(self, to: CheckpointId | str | int) -> int:
        """Continue from a checkpoint, named by id, savepoint or epoch; returns the new epoch.

        Nothing is erased: it is a new epoch that continues the old one, and can be undone by
        another rewind.
        """
        self._check_writable()
        if self._puts or any(table.changed for table in self._tables.values()):
            raise Refused("there are uncommitted changes", advice="Commit or rollback first")
        self.wait_for_checkpoint()
        target = find_checkpoint(self._checkpointer, to)
        manifest = self._checkpointer.load_manifest(target.id)
        files = fetch(self._checkpointer, run_files(manifest), self._folder.path)
        states = self._states(manifest, files, ())  # it can be read, before anything changes
        epoch = self._next_epoch
        try:
            self._checkpointer.log.rewind(target.id, epoch=epoch)
        except StoreError:
            # It may be in the log: then no checkpoint of a lower epoch is taken any more. An epoch
            # that changes nothing takes the number.
            self._decide(self._record(epoch, self._head, self._at))
            raise
        record = self._record(epoch, point_of(target), manifest)
        self._decide(record)
        self._saves.start_from(manifest, record)
        self._take(states)
        return epoch

    # the end

    def close(self) -> None:
        """Wait for a checkpoint that is being made, and release the home.

        What is not committed is lost. Closing twice is not an error. A forked child that closes
        its copy leaves the home to its parent.
        """
        if self._closed:
            return
        self._closed = True
        if not self._owner.is_here:
            self._recovered.close()
            return
        for table in self._tables.values():
            table.drop_compaction()
        try:
            self.wait_for_checkpoint()
        finally:
            self._recovered.close()

    def __enter__(self) -> EmbeddedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # steps

    def _decide(self, record: CommitRecord) -> None:
        """THE decision; what follows from it is in memory only."""
        self._head = self._driver.commit(record)
        self._next_epoch = record.epoch + 1
        self._at = record
        self._saves.add(record)

    def _record(self, epoch: int, parent: Point | None, at: Standing) -> CommitRecord:
        """An epoch that continues *parent* and changes nothing of where everything stands."""
        return CommitRecord(
            epoch=epoch,
            generation=self._driver.generation,
            parent=parent,
            follows=self._driver.head,
            partitions=self._partitions,
            source_offsets=at.source_offsets,
            table_offsets=at.table_offsets,
            watermark=at.watermark,
            source_watermarks=at.source_watermarks,
        )

    def _states(
        self,
        base: CheckpointManifest | None,
        files: Mapping[str, Path],
        commits: Iterable[CommitRecord],
        *,
        wal: RangeReader | None = None,
        only: str | None = None,
    ) -> dict[str, OperatorState]:
        return load_states(
            base,
            files,
            commits,
            wal or self._space.ranges(),
            tables=self._tables,
            partitions=self._partitions,
            only=only,
        )

    def _take(self, states: Mapping[str, OperatorState]) -> None:
        for name, state in states.items():
            if name in self._tables:
                self._tables[name].reset(state)
            else:
                self._tables[name] = Table(name, state, self._rebuild)
        self._folder.keep_only(run for t in self._tables.values() for run in t.state.runs())

    def _rebuild(self, name: str) -> OperatorState:
        """A table's committed state from checkpoint and WAL, without any local file."""
        self._saves.join()  # lists that are made now know nothing of what it is making
        base, files = self._saves.base, dict[str, Path]()
        if base is not None:
            files = fetch(self._checkpointer, run_files(base, name), self._folder.path)
        return self._states(base, files, self._saves.commits, only=name)[name]

    def _collect(self, key: bytes, value: bytes | None) -> None:
        self._check_open()
        self._puts.add(key, value)
        if self._puts.is_full:
            self._flush()

    def _bytes(self) -> Table:
        self._flush()
        return self.table(BYTE_TABLE, BYTES.key, BYTES.value)

    def _flush(self) -> None:
        """Puts and deletes as one batch of the table of bytes."""
        self._check_open()
        if self._puts:
            self._puts.write_to(self.table(BYTE_TABLE, BYTES.key, BYTES.value))

    def _check_writable(self) -> None:
        self._check_open()
        self._owner.check(self._recovered.home.disk.root)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this store is closed")
