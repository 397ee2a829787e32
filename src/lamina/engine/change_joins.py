"""A join of rows that may be taken back: both sides keep their rows, with how often each is there.

1  the epoch's rows of both sides: each adds one to how often it is there, or takes one away
2  the kept rows of the same join keys, of both sides: one state has them, found by these keys
3  rows that are there more or less often now, or no more, are written; they are whole values (R10)
4  what comes out is the difference of two joins, the one before and the one after, of these keys
   alone. It is +I and -D, in batches of a bounded size

A pair of a row x of the left side and a row y of the right side is there x.n * y.n times. A row
without a partner is there x.n times, if the join has such rows. A row with a null in its join keys
has no partner, and is not kept: what it does to the output does not depend on any other row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from lamina.engine.join_rows import ALONE, RIGHT, JoinUpdate, keys_of, rows_in, without_alone
from lamina.engine.joining import PAIRS_MAX
from lamina.engine.joins import ChangeJoin
from lamina.engine.model import OperatorPlan, OperatorWork, TaskResult, TaskWork
from lamina.engine.ports import CHANGE, DELETE, INSERT
from lamina.engine.taking_back import TAKEN_BACK
from lamina.engine.task_state import append_run, check_placement, open_partition, schema_of
from lamina.engine.typed import as_planned
from lamina.errors import Refused
from lamina.pipeline.model import JoinKind
from lamina.state.changes import changes, key_columns, slots_of_keys
from lamina.state.keys import canonical
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Mask, Rows

COUNT = "_count"
"""The value column of the state: how often a row is there."""


def update_change_join(
    task: TaskWork, operator: OperatorWork, step: ChangeJoin, batches: Iterable[pa.RecordBatch]
) -> JoinUpdate:
    """Bring one epoch's changes to the state of a partition; durable when it returns."""
    return updated(task, operator, batches, partial(_touched, step))


@dataclass(frozen=True, slots=True)
class Came:
    """The rows of an epoch with their join keys, and what was kept of these keys."""

    schema: StateSchema
    rows: pa.RecordBatch
    keys: list[pa.Array]
    kept: pa.RecordBatch


class Touched(Protocol):
    """The rows of these keys, with what becomes of them."""

    def run(self, schema: StateSchema) -> pa.RecordBatch:
        """What has changed, as a run."""
        ...

    def output(self, plan: OperatorPlan) -> Iterator[pa.RecordBatch]: ...


def updated(
    task: TaskWork,
    operator: OperatorWork,
    batches: Iterable[pa.RecordBatch],
    touched_by: Callable[[Came], Touched],
) -> JoinUpdate:
    """Bring one epoch's rows to the state of a partition; durable when it returns."""
    plan = operator.plan
    schema = schema_of(plan)
    partition, compacted = open_partition(task, operator, schema)
    rows = rows_in(plan, batches)
    keys, came = keys_of(plan, rows), rows.num_rows
    check_placement(partition.within, slots_of_keys(keys))
    rows, keys = without_alone(rows, keys)
    touched = touched_by(Came(schema, rows, keys, partition.groups(_with_values(keys))))
    run = touched.run(schema)
    result = TaskResult(
        partition=task.partition,
        ranges=append_run(task, operator.name, run),
        compacted=compacted,
        rows_in=came,
        keys=sum(each.rows for each in partition.runs) + run.num_rows,
    )
    return JoinUpdate(result, touched.output(plan))


def _touched(step: ChangeJoin, came: Came) -> _Touched:
    """The rows of both sides, each once."""
    return _Touched(**vars(counted(came, came.rows, came.keys)), step=step)


@dataclass(frozen=True)
class Counted:
    """Rows, each once, with how often each was there and is there now."""

    names: Sequence[str]
    columns: list[pa.Array]  # join keys, and all that tells rows apart
    group: int  # how many of the first columns are join keys
    before: Rows
    after: Rows

    @cached_property
    def has_key(self) -> Mask:
        """A null is equal to nothing."""
        return _all_valid(self.columns[: self.group])

    @cached_property
    def is_changed(self) -> Mask:
        changed: Mask = self.before != self.after
        return changed

    def run(self, schema: StateSchema) -> pa.RecordBatch:
        """What has changed, as a run."""
        written = self.has_key & self.is_changed
        after = self.after[written]
        if (after < 0).any():
            raise Refused(
                "rows are taken back that this join has never had",
                advice="Give the stream, and those that it reads, new names",
            )
        mask = pa.array(written)
        columns = [*(column.filter(mask) for column in self.columns), pa.array(after, pa.int64())]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema.row)
        return changes(schema, batch, deletes=after == 0)


def counted(came: Came, rows: pa.RecordBatch, keys: Sequence[pa.Array]) -> Counted:
    """What was kept of some join keys, and what *rows* with these *keys* add or take away."""
    schema, kept = came.schema, came.kept
    new = [*keys, *key_columns(schema, rows)[schema.group :]]
    columns = [
        pa.concat_arrays([mine, kept.column(name)]) if kept.num_rows else mine
        for mine, name in zip(new, schema.key.names, strict=True)
    ]
    sign = 1 - 2 * flags(rows.column(TAKEN_BACK)).astype(np.int64)
    counts = np.asarray(kept.column(COUNT).to_numpy(zero_copy_only=False), np.int64)
    codes = codes_of(columns)
    _, first = np.unique(codes, return_index=True)
    before, added = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.add.at(added, codes[: len(sign)], sign)
    before[codes[len(sign) :]] = counts
    chosen = pa.array(first)
    once = [column.take(chosen) for column in columns]
    return Counted(schema.key.names, once, schema.group, before, before + added)


@dataclass(frozen=True)
class _Touched(Counted):
    """The rows of both sides."""

    step: ChangeJoin

    @cached_property
    def is_right(self) -> Mask:
        return flags(self.columns[self.group])

    @cached_property
    def codes(self) -> Rows:
        """A number for each join key."""
        return codes_of(self.columns[: self.group])

    # what comes out

    def output(self, plan: OperatorPlan) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        left, right, kind = ~self.is_right, self.is_right, self.step.kind
        if kind.has_pairs:
            for pairs in self._pairs(left & self.is_changed, right):
                yield from self._batches(schema, *pairs)
            others = left & ~self.is_changed
            for theirs, mine, times in self._pairs(right & self.is_changed, others):
                yield from self._batches(schema, mine, theirs, times)
        if kind.judges_left:
            rows, times = self._judged(left, right)
            yield from self._batches(schema, rows, np.full(len(rows), -1), times)
        if kind.judges_right:
            rows, times = self._judged(right, left)
            yield from self._batches(schema, np.full(len(rows), -1), rows, times)

    def _pairs(self, rows: Mask, others: Mask) -> Iterator[tuple[Rows, Rows, Rows]]:
        """Rows of one side, each with each of its partners, and how often that pair is new."""
        mine, theirs = np.flatnonzero(rows & self.has_key), np.flatnonzero(others & self.has_key)
        theirs = theirs[np.argsort(self.codes[theirs], kind="stable")]
        sorted_codes = self.codes[theirs]
        starts = np.searchsorted(sorted_codes, self.codes[mine], "left")
        sizes = np.searchsorted(sorted_codes, self.codes[mine], "right") - starts
        for which, nth in spread(sizes):
            x, y = mine[which], theirs[starts[which] + nth]
            yield x, y, self.after[x] * self.after[y] - self.before[x] * self.before[y]

    def _judged(self, side: Mask, other: Mask) -> tuple[Rows, Rows]:
        """Rows of a side that come out alone, and how often they do so anew.

        Those without a partner; of SEMI those that have one.
        """
        size = int(self.codes.max(initial=-1)) + 1
        times = []
        for counts in (self.before, self.after):
            partners = np.zeros(size, np.int64)
            there = other & self.has_key
            np.add.at(partners, self.codes[there], counts[there])
            has_partner = self.has_key & (partners[self.codes] > 0)
            is_out = has_partner if self.step.kind is JoinKind.SEMI else ~has_partner
            times.append(np.where(side & is_out, counts, 0))
        more = times[1] - times[0]
        rows = np.flatnonzero(more)
        return rows, more[rows]

    def _batches(
        self, schema: pa.Schema, left: Rows, right: Rows, times: Rows
    ) -> Iterator[pa.RecordBatch]:
        """Rows of both sides beside each other, as often as *times* says; -1 is none."""
        for which, _ in spread(np.abs(times)):
            sides = [pa.array(rows[which], mask=rows[which] < 0) for rows in (left, right)]
            kinds = pa.array(np.where(times[which] > 0, INSERT, DELETE), pa.string())
            mine = dict(zip(self.names, self.columns, strict=True))
            columns = [
                as_planned(
                    mine[name].take(sides[number >= self.step.left]), schema.field(name).type
                )
                for number, name in enumerate(self.step.columns)
            ]
            yield pa.RecordBatch.from_arrays([*columns, kinds], schema=schema)


def spread(sizes: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Each number as often as its size, with 0, 1, 2, ... beside it; in parts of a bounded size."""
    last = np.cumsum(sizes)
    total = int(last[-1]) if len(last) else 0
    for first in range(0, total, PAIRS_MAX):
        place = np.arange(first, min(first + PAIRS_MAX, total))
        which = np.searchsorted(last, place, "right")
        yield which, place - (last[which] - sizes[which])


def _with_values(keys: Sequence[pa.Array]) -> list[pa.Array]:
    mask = pa.array(_all_valid(keys))
    return [key.filter(mask) for key in keys]


def _all_valid(columns: Sequence[pa.Array]) -> Mask:
    return np.asarray(np.logical_and.reduce([flags(column.is_valid()) for column in columns]))


def flags(column: pa.Array) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def codes_of(columns: Sequence[pa.Array]) -> Rows:
    """A number for each row: equal ones have the same."""
    codes = canonical(columns).dictionary_encode().indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def columns_of_state(keys: Sequence[pa.Field], sides: Sequence[pa.Field]) -> tuple[pa.Schema, ...]:
    """The key and value columns of the state, the columns of an epoch's rows, and of the output."""
    side, *beside = (pa.field(name, pa.bool_()) for name in (RIGHT, TAKEN_BACK, ALONE))
    return (
        pa.schema([*keys, side, *sides]),
        pa.schema([pa.field(COUNT, pa.int64())]),
        pa.schema([*keys, side, *beside, *sides]),
        pa.schema([*sides, pa.field(CHANGE, pa.string())]),
    )
