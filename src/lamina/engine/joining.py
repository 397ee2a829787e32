"""A join in a task: pairs of new and kept rows, and rows that are judged.

1  the epoch's rows of both sides that are not late; the groups whose timer is due
2  the kept rows of the same keys, of both sides: one state has them, found by the join keys
3  new rows that may still be needed go into the state, and timers for those that will be judged.
   Both are in one COMMIT
4  pairs come out in batches of a bounded size, however many a key has; then what was judged

A kept row is never changed: its id is new. It goes by the floor, when the watermark is at `_until`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan, OperatorWork, TaskResult, TaskWork
from lamina.engine.task_state import (
    TIME,
    append_run,
    check_placement,
    open_partition,
    schema_of,
)
from lamina.engine.timers import OpenTimers
from lamina.engine.typed import as_planned
from lamina.pipeline.model import JoinKind
from lamina.state.changes import changes, slots_of_keys
from lamina.state.keys import canonical, normalise
from lamina.state.partition import StatePartition
from lamina.state.scanning import highest
from lamina.state.schema import time_values
from lamina.state.vnodes import Mask, Rows

RIGHT, AT = "_right", "_at"
"""Columns of the epoch's rows and of the state: which side a row is of, and its event time."""
UNTIL, ID = "_until", "_id"
"""Columns of the state, behind the join keys: when a row goes, and what tells it from others."""

PAIRS_MAX = 1 << 16
"""Of a batch that comes out."""
_ID_BITS = 26
"""For the rows of one epoch; the epoch is in the others."""


@dataclass(frozen=True, slots=True)
class JoinUpdate:
    """What a task did for a join, and the rows that come out: columns of both sides."""

    result: TaskResult
    rows: Iterable[pa.RecordBatch]


def update_join(
    task: TaskWork, operator: OperatorWork, step: Join, batches: Iterable[pa.RecordBatch]
) -> JoinUpdate:
    """Bring one epoch's rows and timers to the state of a partition; durable when it returns."""
    work, plan = task.stream, operator.plan
    schema = schema_of(plan)
    partition, compacted = open_partition(task, operator, schema)
    timers = OpenTimers.of(task, operator)
    judged_before = None if timers is None else timers.partition.floor
    floor = highest([work.floor, judged_before])
    rows, rows_in = _rows_in(plan, batches)
    keys = _keys(plan, rows)
    check_placement(partition.within, slots_of_keys(keys))
    on_time = _on_time(rows, highest([work.late_floor, partition.floor]))
    late = rows_in - int(np.count_nonzero(on_time))
    rows, keys = _filtered(rows, keys, on_time)
    fired = None if timers is None else timers.fired(floor)
    joined = _joined(partition, step, rows, keys, fired)
    ids = (work.epoch << _ID_BITS) + np.arange(joined.new)
    run = _kept(partition, joined, ids, floor)
    ranges = append_run(task, operator.name, run)
    due = joined.due(judged_before, floor)
    if timers is not None and fired is not None:
        judges_now = bool(fired.num_rows or due.any())
        new = timers.run(*joined.timers(floor), floor if judges_now else None)
        ranges += append_run(task, timers.name, new)
        compacted += timers.compacted
    result = TaskResult(
        partition=task.partition,
        ranges=ranges,
        compacted=compacted,
        rows_in=rows_in,
        late=late,
        keys=sum(each.rows for each in partition.runs) + run.num_rows,
    )
    return JoinUpdate(result, joined.output(plan, due))


@dataclass(frozen=True)
class _Joined:
    """New rows and the kept rows of the same keys, one after the other."""

    step: Join
    rows: pa.RecordBatch  # keys, RIGHT, AT and the columns of both sides
    keys: list[pa.Array]
    new: int  # as many of them are new: the first

    @cached_property
    def is_right(self) -> Mask:
        return np.asarray(self.rows.column(RIGHT).to_numpy(zero_copy_only=False), np.bool_)

    @cached_property
    def at(self) -> Rows:
        return time_values(self.rows.column(AT))

    @cached_property
    def is_new(self) -> Mask:
        return np.arange(self.rows.num_rows) < self.new

    @cached_property
    def has_key(self) -> Mask:
        """A null is equal to nothing; a row without a time is in no bounds."""
        valid = [self.rows.column(AT).is_valid(), *(key.is_valid() for key in self.keys)]
        masks = [np.asarray(each.to_numpy(zero_copy_only=False), np.bool_) for each in valid]
        return np.asarray(np.logical_and.reduce(masks))

    @cached_property
    def codes(self) -> Rows:
        """A number for each key."""
        (only, *more) = self.keys
        names = only if not more and not pa.types.is_nested(only.type) else canonical(self.keys)
        codes = names.dictionary_encode(null_encoding="encode").indices
        return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)

    def due(self, since: int | None, floor: int | None) -> Mask:
        """Rows that are judged now: no partner can come any more, and it could until now."""
        if floor is None:
            return np.zeros(self.rows.num_rows, np.bool_)
        due = self.step.due(self.at, self.is_right)
        first = np.iinfo(np.int64).min if since is None else since
        found: Mask = (due < floor) & (self.is_new | (due >= first)) & self.has_key
        return found & self.step.is_judged(self.is_right)

    def timers(self, floor: int | None) -> tuple[list[pa.Array], Rows]:
        """The keys of new rows that will be judged, and when; each once."""
        due = self.step.due(self.at, self.is_right)
        waits = self.is_new & self.has_key & self.step.is_judged(self.is_right)
        if floor is not None:
            waits &= due >= floor
        rows = np.flatnonzero(waits)
        order = rows[np.lexsort((due[rows], self.codes[rows]))]
        again = (self.codes[order][1:] == self.codes[order][:-1]) & (
            due[order][1:] == due[order][:-1]
        )
        order = order[np.r_[True, ~again]] if len(order) else order
        return [key.take(pa.array(order)) for key in self.keys], due[order]

    # what comes out

    def output(self, plan: OperatorPlan, due: Mask) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        kind, left, right = self.step.kind, ~self.is_right, self.is_right
        if kind.has_pairs:
            for mine, theirs in self._pairs(left & self.is_new, right):
                yield self._batch(schema, mine, theirs)
            for theirs, mine in self._pairs(right & self.is_new, left & ~self.is_new):
                yield self._batch(schema, mine, theirs)
        alone = self.is_new & ~self.has_key & self.step.is_judged(self.is_right)
        for side, other in ((left, right), (right, left)):
            judged = np.flatnonzero(due & side)
            has_partner = self._has_partner(judged, other)
            wanted = judged[has_partner if kind is JoinKind.SEMI else ~has_partner]
            if kind is not JoinKind.SEMI:
                wanted = np.concatenate([wanted, np.flatnonzero(alone & side)])
            for first in range(0, len(wanted), PAIRS_MAX):
                rows = wanted[first : first + PAIRS_MAX]
                nothing = np.full(len(rows), -1)
                pair = (rows, nothing) if side is left else (nothing, rows)
                yield self._batch(schema, *pair)

    def _has_partner(self, rows: Rows, others: Mask) -> Mask:
        starts, ends, _ = self._ranges(rows, np.flatnonzero(others & self.has_key))
        found: Mask = ends > starts
        return found

    def _pairs(self, rows: Mask, others: Mask) -> Iterator[tuple[Rows, Rows]]:
        """Rows of one side, each with each of its partners on the other."""
        mine = np.flatnonzero(rows & self.has_key)
        starts, ends, theirs = self._ranges(mine, np.flatnonzero(others & self.has_key))
        counts = ends - starts
        last = np.cumsum(counts)
        total = int(last[-1]) if len(last) else 0
        for first in range(0, total, PAIRS_MAX):
            pair = np.arange(first, min(first + PAIRS_MAX, total))
            which = np.searchsorted(last, pair, "right")
            place = pair - (last[which] - counts[which]) + starts[which]
            yield mine[which], theirs[place]

    def _ranges(self, mine: Rows, theirs: Rows) -> tuple[Rows, Rows, Rows]:
        """For each of *mine*, from where to where its partners stand in *theirs*, sorted anew."""
        at = self.at[theirs]
        order = np.lexsort((at, self.codes[theirs]))
        theirs, at = theirs[order], at[order]
        times = np.unique(at)
        steps = len(times) + 1
        places = self.codes[theirs] * steps + np.searchsorted(times, at)
        right = self.is_right[mine]
        low = self.at[mine] + np.where(right, -self.step.high, self.step.low)
        high = self.at[mine] + np.where(right, -self.step.low, self.step.high)
        begin = self.codes[mine] * steps
        starts = np.searchsorted(places, begin + np.searchsorted(times, low, "left"))
        ends = np.searchsorted(places, begin + np.searchsorted(times, high, "right"))
        return starts, ends, theirs

    def _batch(self, schema: pa.Schema, left: Rows, right: Rows) -> pa.RecordBatch:
        """Rows of both sides beside each other; -1 is none."""
        sides = [pa.array(rows, mask=rows < 0) for rows in (left, right)]
        columns = [
            self.rows.column(field.name).take(sides[number >= self.step.left])
            for number, field in enumerate(schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows_in(plan: OperatorPlan, batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch, int]:
    schema = pa.ipc.read_schema(pa.py_buffer(plan.rows_schema))
    listed = [batch for batch in batches if batch.num_rows]
    if not listed:
        return pa.RecordBatch.from_pylist([], schema), 0
    batch = pa.concat_batches(listed)
    columns = [as_planned(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema), batch.num_rows


def _keys(plan: OperatorPlan, rows: pa.RecordBatch) -> list[pa.Array]:
    return [normalise(column) for column in rows.columns[: plan.group]]


def _on_time(rows: pa.RecordBatch, floor: int | None) -> Mask:
    """Rows at the watermark, which is one before the floor, or later."""
    if floor is None:
        return np.ones(rows.num_rows, np.bool_)
    return np.asarray(time_values(rows.column(AT)) >= floor - 1)


def _filtered(
    rows: pa.RecordBatch, keys: list[pa.Array], chosen: Mask
) -> tuple[pa.RecordBatch, list[pa.Array]]:
    if chosen.all():
        return rows, keys
    mask = pa.array(chosen)
    return rows.filter(mask), [key.filter(mask) for key in keys]


def _joined(
    partition: StatePartition,
    step: Join,
    rows: pa.RecordBatch,
    keys: list[pa.Array],
    fired: pa.RecordBatch | None,
) -> _Joined:
    """The new rows, and what the state has of their keys and of those whose timer is due."""
    asked = keys
    if fired is not None and fired.num_rows:
        asked = [pa.concat_arrays(pair) for pair in zip(keys, fired.columns, strict=True)]
    kept = partition.groups(asked)
    own = [kept.column(field.name) for field in rows.schema]
    every = [
        column if not kept.num_rows else pa.concat_arrays([column, theirs])
        for column, theirs in zip(rows.columns, own, strict=True)
    ]
    both = [
        pa.concat_arrays([key, theirs]) if kept.num_rows else key
        for key, theirs in zip(keys, own[: len(keys)], strict=True)
    ]
    return _Joined(step, pa.RecordBatch.from_arrays(every, schema=rows.schema), both, rows.num_rows)


def _kept(
    partition: StatePartition, joined: _Joined, ids: Rows, floor: int | None
) -> pa.RecordBatch:
    """The new rows that may be needed later, as a run; it says what is no longer needed."""
    schema, new = partition.schema, slice(0, joined.new)
    until = joined.step.until(joined.at[new], joined.is_right[new])
    needed = joined.has_key[new].copy()
    gone = highest([floor, partition.floor])
    if gone is not None:
        needed &= until >= gone
    rows = np.flatnonzero(needed)
    names = {name: joined.rows.column(name) for name in joined.rows.schema.names}
    named = dict(zip(schema.key.names, joined.keys, strict=False))
    columns = {**names, **named}
    taken = {name: columns[name].take(pa.array(rows)) for name in columns}
    taken |= {UNTIL: pa.array(until[rows]).cast(TIME), ID: pa.array(ids[rows])}
    batch = pa.RecordBatch.from_arrays(
        [taken[name] for name in schema.row.names], schema=schema.row
    )
    run = changes(schema, batch)
    return run.replace_schema_metadata(schema.run_with(gone).metadata) if len(rows) else run


def columns_of_state(keys: Sequence[pa.Field], sides: Sequence[pa.Field]) -> tuple[pa.Schema, ...]:
    """The key and the value columns of the state, and the columns of an epoch's rows."""
    side, at = pa.field(RIGHT, pa.bool_()), pa.field(AT, TIME)
    return (
        pa.schema([*keys, pa.field(UNTIL, TIME), pa.field(ID, pa.int64())]),
        pa.schema([side, at, *sides]),
        pa.schema([*keys, side, at, *sides]),
    )
