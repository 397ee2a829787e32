"""One keyed table of an embedded store: Arrow batches in, Arrow batches out.

This process sees what it writes at once; it becomes durable with the store's next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lamina.checkpoint.state import SavedOperator, check_keys, use_saved
from lamina.embedded.compaction import LARGE_BYTES, Compaction, due_bytes
from lamina.errors import Refused, RunDamaged
from lamina.format.commit import WalRange
from lamina.state.changes import changes
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState
from lamina.state.partition import Applied, Looked, Statistics, look_up
from lamina.state.run import TimeRange, run_of_batch
from lamina.state.scanning import highest, newest_rows
from lamina.state.schema import (
    StateSchema,
    check_merges_kept,
    check_successor,
    floor_of_run,
)
from lamina.state.tiers import RUNS_MAX
from lamina.state.vnodes import EVERYTHING, Mask, SlotRange
from lamina.workspace.runs import run_name

T = TypeVar("T")
Data: TypeAlias = "pa.RecordBatch | pa.Table"
PENDING_RUNS_MAX = 8
"""Uncommitted writes of a partition are brought together when there are this many."""
PIECE_BYTES_MAX = 256 * 1024 * 1024
"""A larger run is committed as several: a record holds 1 GiB, a column of text less than 2 GiB."""


class Table:
    """Made by `EmbeddedStore.table`. Do not share it between threads."""

    def __init__(
        self, name: str, state: OperatorState, rebuild: Callable[[str], OperatorState]
    ) -> None:
        self.name = name
        self._committed = state
        self._current = state  # with what is not committed yet
        self._pending: dict[int, list[pa.RecordBatch]] = {}
        self._rebuild = rebuild
        self._compaction: Compaction | None = None

    @property
    def schema(self) -> StateSchema:
        return self._committed.schema

    @property
    def changed(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._pending)

    # writing

    def write(
        self, data: Data, *, deletes: Mask | None = None, old_values: bool = False
    ) -> tuple[Applied, ...]:
        """Set values of keys, each key once; merged with the old values if the table has merges.

        The rows are copied, so the caller may reuse the memory of *data*. Keys in *deletes* are
        deleted. With *old_values* the result has the values before and after, row by row, for
        every partition that was touched.
        """
        changed = changes(self.schema, one_batch(data), deletes=deletes, copy=True)
        applied = self._guarded(lambda: self._current.apply(changed, old_values=old_values))
        for number, each in applied.items():
            self._add(number, each.run)
        return tuple(applied.values())

    def delete(self, keys: Data) -> None:
        """Delete keys; a key that does not exist is not an error."""
        batch = one_batch(keys)
        self.write(batch, deletes=np.ones(batch.num_rows, np.bool_))

    def expire(self, before: int) -> Iterator[pa.RecordBatch]:
        """Delete every row from before a time, in the column's unit; returns the deleted rows.

        They are read as they are asked for, from what was there before.
        """
        gone = []
        runs = {}
        for number, partition in enumerate(self._current.partitions):
            rows, runs[number] = partition.expire(before)
            gone.append(rows)
        for number, run in runs.items():
            self._add(number, run)
        return self._mended(chain.from_iterable(gone), "rollback, then expire once more")

    # reading

    def get(self, keys: Data) -> Looked:
        """The values of keys, row by row; `found` says which exist."""
        batch = one_batch(keys)
        return self._guarded(lambda: look_up(self._current.partitions, batch))

    def scan(
        self,
        vnodes: SlotRange = EVERYTHING,
        *,
        since: int | None = None,
        before: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Every row, as key and value columns, block by block; by time if the table has one."""
        bounded = since is not None or before is not None
        times = TimeRange(since, before) if bounded else None
        state = self._current
        found = (partition.scan(vnodes, times) for partition in state.partitions)
        yield from self._mended(chain.from_iterable(found), "read once more")

    def to_table(self) -> pa.Table:
        """All of it, in memory."""
        return pa.Table.from_batches(self._guarded(self._all_rows), self.schema.row)

    def statistics(self, *, count: bool = False) -> Statistics:
        """Sizes over all partitions; with *count* also the number of keys."""
        each = self._guarded(lambda: [p.statistics(count=count) for p in self._current.partitions])
        return Statistics(
            rows=sum(s.rows for s in each),
            bytes=sum(s.bytes for s in each),
            runs=sum(s.runs for s in each),
            read_amplification=max((s.read_amplification for s in each), default=0.0),
            live=sum(s.live or 0 for s in each) if count else None,
        )

    # what the store does with it

    @property
    def state(self) -> OperatorState:
        """What is committed."""
        return self._committed

    def take_runs(self) -> list[tuple[int, pa.RecordBatch]]:
        """What the next commit consists of: a run for each partition that has changed.

        Several, oldest first, if it would be too large for a record of the log.
        """
        return [
            (number, piece)
            for number, runs in sorted(self._pending.items())
            for run in self._fewer(runs)
            for piece in pieces(run)
        ]

    def advance(self, runs: Iterable[tuple[WalRange, pa.RecordBatch]], epoch: int) -> None:
        """The runs have been committed, at these places in the WAL."""
        state = self._committed
        for place, batch in runs:
            run = run_of_batch(batch, name=run_name(place), first_epoch=epoch, last_epoch=epoch)
            partition = state.partitions[place.core].with_run(run)
            state = state.with_partition(place.core, partition)
        self._pending = {}
        self._committed = self._current = state

    def forget(self) -> None:
        """Discard what was not committed."""
        self._pending = {}
        self._current = self._committed

    def compact(self, folder: RunFolder) -> None:
        """Fewer runs, where that is due; large ones beside what comes next."""
        if self._compaction is not None and (self._compaction.is_over or self._is_crowded()):
            self.finish_compaction()
        if self._compaction is not None:
            return
        if due_bytes(self._committed) > LARGE_BYTES and not self._is_crowded():
            self._compaction = Compaction(self._committed, folder)
            return
        compacted = self._guarded(lambda: self._committed.compacted(folder))
        if compacted is not self._committed:
            self._replace(compacted)

    def compacted(self) -> OperatorState:
        """What is committed, with no compaction on its way: every file is in a list."""
        self.finish_compaction()
        return self._committed

    def finish_compaction(self) -> None:
        """Wait for a compaction that is being made, and use it."""
        if self._compaction is None:
            return
        compaction, self._compaction = self._compaction, None
        try:
            self._replace(compaction.wait(self._committed))
        except RunDamaged:
            self.rebuild()

    def drop_compaction(self) -> None:
        """Wait for a compaction that is being made, and leave it."""
        if self._compaction is not None:
            self._compaction.join()
            self._compaction = None

    def use_saved(self, saved: SavedOperator) -> None:
        """A checkpoint exists: its files take the place of the WAL runs they were made of."""
        self._replace(use_saved(self.compacted(), saved))

    def reopen(self, schema: StateSchema) -> None:
        """The same rows with wider columns (R9); while there are none, with other merges, too."""
        check_keys(self.name, self.state.keyed(), schema)
        check_successor(self.schema, schema, self.name)
        if self.state.runs() or self.changed:
            check_merges_kept(self.schema, schema, self.name)
        if self.changed:
            raise Refused(f"the table {self.name!r} has uncommitted changes: commit them first")
        self.reset(self._committed.with_schema(schema))

    def reset(self, state: OperatorState) -> None:
        """Another state altogether: a rewind."""
        self.drop_compaction()
        self._pending = {}
        self._committed = self._current = state

    def rebuild(self) -> None:
        """Make the committed state again, from what is proven."""
        self.drop_compaction()
        self._replace(self._rebuild(self.name))

    # steps

    def _is_crowded(self) -> bool:
        """Whether look-ups would begin to suffer from runs that wait for a compaction."""
        return any(len(p.runs) > 2 * RUNS_MAX for p in self._committed.partitions)

    def _add(self, number: int, run: pa.RecordBatch) -> None:
        if not run.num_rows and run.schema.metadata == self.schema.run.metadata:
            return
        waiting = [*self._pending.get(number, []), run]
        if len(waiting) > PENDING_RUNS_MAX:
            waiting = self._fewer(waiting)
        self._pending[number] = waiting
        self._current = self._with_pending(number)

    def _with_pending(self, number: int) -> OperatorState:
        partition = self._committed.partitions[number]
        for run in self._pending.get(number, []):
            partition = partition.with_run(run_of_batch(run, name="not committed"))
        return self._current.with_partition(number, partition)

    def _fewer(self, runs: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The newest ones as one, as many as fit into a piece; larger ones stay as they are."""
        start, room = len(runs), PIECE_BYTES_MAX
        while start and runs[start - 1].nbytes <= room:
            start -= 1
            room -= runs[start].nbytes
        tail = [self._joined(runs[start:])] if start < len(runs) else []
        return [*(self._joined([run]) for run in runs[:start]), *tail]

    def _joined(self, runs: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Several uncommitted runs as one; the highest floor stays."""
        floor = highest([floor_of_run(run.schema) for run in runs])
        joined = newest_rows(list(reversed(runs)), self.schema) if len(runs) > 1 else runs[0]
        return joined.replace_schema_metadata(self.schema.run_with(floor).metadata)

    def _all_rows(self) -> list[pa.RecordBatch]:
        return [batch for partition in self._current.partitions for batch in partition.scan()]

    def _replace(self, state: OperatorState) -> None:
        self._committed = self._current = state
        for number in self._pending:
            self._current = self._with_pending(number)

    def _mended(self, batches: Iterable[pa.RecordBatch], advice: str) -> Iterator[pa.RecordBatch]:
        """Rows that somebody may have used already: damage is mended, and he has to know."""
        try:
            yield from batches
        except RunDamaged as error:
            self.rebuild()
            raise RunDamaged(
                error.message,
                where=error.where,
                advice=f"It has been made again from checkpoint and WAL: {advice}",
            ) from error

    def _guarded(self, work: Callable[[], T]) -> T:
        """A local file that is damaged is made again, once."""
        try:
            return work()
        except RunDamaged:
            self.rebuild()
            return work()


def pieces(run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a run in several ones, each small enough for a record of the log."""
    if run.nbytes <= PIECE_BYTES_MAX or run.num_rows < 2:
        yield run
        return
    half = run.num_rows // 2
    yield from pieces(run.slice(0, half))
    yield from pieces(run.slice(half))


def one_batch(data: Data) -> pa.RecordBatch:
    """A table's rows as one batch."""
    if isinstance(data, pa.RecordBatch):
        return data
    chunks = data.combine_chunks().to_batches()
    return chunks[0] if chunks else pa.RecordBatch.from_pylist([], data.schema)
