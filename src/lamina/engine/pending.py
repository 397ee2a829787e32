"""Rows that wait for their interval (EMIT EVERY): which have changed since they last came out.

They are an operator beside that of their stream, with the same keys. Of changes it has the values
too with which a row was last seen, so that those can be taken back. An epoch in which the watermark
reaches the next multiple of the interval puts out all that wait, and what it has changed itself: so
what has come out by then is all of the state, as of that epoch. A window that closes does not wait.

Both watermarks, that of this epoch and that of the one before, are committed. So it is the same for
every task, and for a process that was killed and has started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lamina.engine.changing import versions
from lamina.engine.model import CompactedRuns, OperatorPlan, OperatorWork, TaskWork
from lamina.engine.steps import Pending
from lamina.engine.task_state import open_partition, schema_of
from lamina.ids import fold
from lamina.pipeline.model import Emit
from lamina.state.changes import changes
from lamina.state.partition import Applied, Looked, StatePartition, look_up
from lamina.state.schema import time_values
from lamina.state.vnodes import Mask

WAS_THERE = "_was_there"
"""The value column that says whether a row had come out before, of changes that wait."""


def pending_name(operator: str, emit: Emit) -> str:
    """What the rows that wait are called; nothing that a person names has such a name."""
    return f"{operator} pending changes" if emit is Emit.CHANGES else f"{operator} pending"


def pending_names(operator: str) -> tuple[str, ...]:
    return tuple(pending_name(operator, emit) for emit in (Emit.ON_UPDATE, Emit.CHANGES))


def with_pending(name: str, plan: OperatorPlan) -> dict[str, OperatorPlan]:
    """The operators of a stream: its state, and what waits if it emits at intervals."""
    if plan.every_us is None:
        return {name: plan}
    keeps_old, key = plan.emit is Emit.CHANGES, schema_of(plan).key
    value = schema_of(plan).value if keeps_old else pa.schema([])
    old = [pa.field(WAS_THERE, pa.bool_()), *value] if keeps_old else []
    said = plan.meanings[: len(key)]
    if plan.meanings and keeps_old:
        said = (*said, "was there", *plan.meanings[len(key) :])
    waiting = OperatorPlan(
        key_schema=plan.key_schema,
        value_schema=pa.schema(old).serialize().to_pybytes(),
        step=Pending(),
        time=plan.time,
        emit=plan.emit,
        meanings=said,
    )
    return {name: plan, pending_name(name, plan.emit): waiting}


def emits_now(every_us: int, before: int | None, floor: int | None) -> bool:
    """Whether an epoch puts out what waits: its watermark has reached the next interval.

    A floor is the watermark and one. Nothing comes out before there is a watermark.
    """
    if not every_us:
        return True
    if floor is None or before is None:
        return floor is not None
    return (floor - 1) // every_us > (before - 1) // every_us


@dataclass(frozen=True, slots=True)
class Waited:
    """What an epoch does with rows that wait: those that come out, and the run of the others."""

    rows: list[pa.RecordBatch]
    run: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class OpenPending:
    """The rows of a partition that wait, inside of a task."""

    name: str
    partition: StatePartition
    compacted: tuple[CompactedRuns, ...]
    plan: OperatorPlan  # of the stream's state

    @classmethod
    def of(cls, task: TaskWork, operator: OperatorWork) -> OpenPending | None:
        if operator.plan.every_us is None:
            return None
        wanted = fold(pending_name(operator.name, operator.plan.emit))
        (waiting,) = (each for each in task.stream.operators if fold(each.name) == wanted)
        partition, compacted = open_partition(task, waiting, schema_of(waiting.plan))
        return cls(waiting.name, partition, compacted, operator.plan)

    def waited(self, task: TaskWork, after: StatePartition, applied: Applied) -> Waited:
        """What comes out in this epoch, which has changed the rows *applied*.

        *after* is the state with these changes; what expires is still there.
        """
        floor, before = task.stream.floor, task.stream.floor_before
        assert self.plan.every_us is not None
        is_over = emits_now(self.plan.every_us, before, floor)
        waits = look_up((self.partition,), applied.keys).found
        closing = self._closing(applied.keys, floor)
        found = self._found(floor, everything=is_over)
        new = only_new(applied, np.logical_or(is_over, closing) & ~waits)
        rows = self._versions(after, found, new)
        started = only_new(applied, ~closing & ~waits & (not is_over))
        return Waited(rows, self._run(started, found, floor, is_over=is_over))

    def _closing(self, keys: pa.RecordBatch, floor: int | None) -> Mask:
        """Keys whose window closes with this epoch."""
        if self.plan.time is None or floor is None:
            return np.zeros(keys.num_rows, np.bool_)
        return np.asarray(time_values(keys.column(self.plan.time)) < floor)

    def _found(self, floor: int | None, *, everything: bool) -> pa.RecordBatch:
        """What waits and comes out now: all of it, or that of windows that close."""
        schema, rows = self.partition.schema, list[pa.RecordBatch]()
        if everything:
            rows = list(self.partition.scan())
        elif schema.time is not None and floor is not None:
            rows = list(self.partition.expire(floor)[0])
        return pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema.row)

    def _versions(
        self, after: StatePartition, found: pa.RecordBatch, new: Applied
    ) -> list[pa.RecordBatch]:
        """The rows of these keys as they are now; of changes, also as they last came out."""
        schema = after.schema
        both = zip(found.columns, new.keys.columns, strict=False)  # keys come first
        keys = pa.RecordBatch.from_arrays(list(map(pa.concat_arrays, both)), schema=schema.key)
        if not keys.num_rows:
            return []
        now = look_up((after,), keys)
        if self.plan.emit is Emit.CHANGES:
            old = self._was(schema.value.names, found, new)
            return versions(schema, Applied(keys, old, now, keys))
        columns = [*keys.columns, *now.values.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema.row)
        return [rows.filter(pa.array(now.found))]

    def _was(self, names: Sequence[str], found: pa.RecordBatch, new: Applied) -> Looked:
        """The values with which rows last came out."""
        first = len(self.partition.schema.key)
        there = found.column(WAS_THERE).to_numpy(zero_copy_only=False).astype(np.bool_)
        pairs = zip(found.columns[first + 1 :], new.old.values.columns, strict=True)
        values = pa.RecordBatch.from_arrays(list(map(pa.concat_arrays, pairs)), names=list(names))
        return Looked(np.concatenate([there, new.old.found]), values)

    def _run(
        self, started: Applied, found: pa.RecordBatch, floor: int | None, *, is_over: bool
    ) -> pa.RecordBatch:
        """The rows that wait from now on, or deletes of all that did; and the floor of windows."""
        schema = self.partition.schema
        if is_over:
            made = changes(schema, found, deletes=np.ones(found.num_rows, np.bool_))
        else:
            values: list[pa.Array] = []
            if self.plan.emit is Emit.CHANGES:
                values = [pa.array(started.old.found), *started.old.values.columns]
            columns = [*started.keys.columns, *values]
            made = changes(schema, pa.RecordBatch.from_arrays(columns, names=schema.row.names))
        run = self.partition.apply(made, old_values=False).run
        if schema.time is None or floor is None or not found.num_rows:
            return run
        return run.replace_schema_metadata(schema.run_with(floor).metadata)


def only_new(applied: Applied, kept: Mask) -> Applied:
    """Keys and old values of *kept*, of what an epoch has changed."""
    mask = pa.array(kept)
    old = Looked(applied.old.found[kept], applied.old.values.filter(mask))
    return replace(applied, keys=applied.keys.filter(mask), old=old)
