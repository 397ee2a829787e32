"""Rows of both sides of a join inside of a task: what came, what is kept, and what comes out.

A row of the state has the join keys, `_until`, `_id`, its side, its event time and the columns of
both sides, of which those of the other side are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lamina.engine.join_asking import ASKS
from lamina.engine.model import OperatorPlan, TaskResult
from lamina.engine.task_state import TIME
from lamina.engine.typed import as_planned
from lamina.errors import Refused
from lamina.state.keys import canonical, normalise
from lamina.state.partition import StatePartition
from lamina.state.schema import time_values
from lamina.state.vnodes import Mask, Rows

RIGHT, AT = "_right", "_at"
"""Columns of the epoch's rows and of the state: which side a row is of, and its event time."""
ALONE = "_alone"
"""A column of the epoch's rows: this one does not meet what the join asks of its side."""
UNTIL, ID = "_until", "_id"
"""Columns of the state, behind the join keys: when a row goes, and what tells it from others."""
ID_BITS = 26
"""For the rows of one epoch; the epoch is in the others."""


@dataclass(frozen=True, slots=True)
class JoinUpdate:
    """What a task did for a join, and the rows that come out: columns of both sides."""

    result: TaskResult
    rows: Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class JoinRows:
    """New rows and the kept rows of the same keys, one after the other."""

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

    def calls(self, rows: Rows, due: Rows) -> tuple[list[pa.Array], Rows]:
        """The keys of *rows*, and when each is *due*; each once."""
        order = rows[np.lexsort((due[rows], self.codes[rows]))]
        again = (self.codes[order][1:] == self.codes[order][:-1]) & (
            due[order][1:] == due[order][:-1]
        )
        order = order[np.r_[True, ~again]] if len(order) else order
        return [key.take(pa.array(order)) for key in self.keys], due[order]

    def beside(self, schema: pa.Schema, lefts: int, left: Rows, right: Rows) -> pa.RecordBatch:
        """Rows of both sides beside each other, of which *lefts* columns are left; -1 is none."""
        sides = [pa.array(rows, mask=rows < 0) for rows in (left, right)]
        columns = [
            self.rows.column(field.name).take(sides[number >= lefts])
            for number, field in enumerate(schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_in(plan: OperatorPlan, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """What came of both sides, in the types of the plan."""
    schema = pa.ipc.read_schema(pa.py_buffer(plan.rows_schema))
    listed = [batch for batch in batches if batch.num_rows]
    if not listed:
        return pa.RecordBatch.from_pylist([], schema)
    with one_batch("the rows of an epoch"):
        batch = pa.concat_batches(listed)
    columns = [as_planned(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def keys_of(plan: OperatorPlan, rows: pa.RecordBatch) -> list[pa.Array]:
    return [normalise(column) for column in rows.columns[: plan.group]]


def without_alone(
    rows: pa.RecordBatch, keys: list[pa.Array]
) -> tuple[pa.RecordBatch, list[pa.Array]]:
    """Rows that cannot have a partner lose their key, now that it has brought them here."""
    alone = np.asarray(rows.column(ALONE).to_numpy(zero_copy_only=False), np.bool_)
    rows = rows.drop_columns([ALONE])
    if not alone.any():
        return rows, keys
    others = pa.array(np.arange(rows.num_rows), mask=alone)
    return rows, [key.take(others) for key in keys]


def of_right(rows: pa.RecordBatch) -> int:
    """How many rows are of the right side."""
    return int(rows.column(RIGHT).true_count)


def on_time(rows: pa.RecordBatch, floor: int | None) -> Mask:
    """Rows at the watermark, which is one before the floor, or later."""
    if floor is None:
        return np.ones(rows.num_rows, np.bool_)
    return np.asarray(time_values(rows.column(AT)) >= floor - 1)


@contextmanager
def one_batch(what: str, keys: Sequence[pa.Array] = ()) -> Iterator[None]:
    """Refused, instead of an error of Arrow's, if a column would have more than 2 GiB."""
    try:
        yield
    except pa.ArrowException as error:
        if not any(said in str(error) for said in _TOO_LARGE):
            raise
        largest = f". The largest key is {_largest(keys)}" if keys else ""
        raise Refused(
            f"a join: {what} do not fit together in one task, a column of them has more than "
            f"2 GiB{largest}",
            advice="Leave large columns out of the SELECT, or give the join closer bounds. If it "
            "is many keys and not one: more --partitions, or a smaller --max-rows",
        ) from error


_TOO_LARGE = ("offset overflow", "array cannot contain more than")  # as Arrow says it


def _largest(keys: Sequence[pa.Array]) -> str:
    """The key with the most rows, and how many these are."""
    names = [f"k{number}" for number in range(len(keys))]
    counts = pa.table(list(keys), names).group_by(names).aggregate([([], "count_all")])
    row = counts.sort_by([("count_all", "descending")]).slice(0, 1).to_pylist()[0]
    return f"{', '.join(str(row[name]) for name in names)}, with {row['count_all']} rows"


def filtered(
    rows: pa.RecordBatch, keys: list[pa.Array], chosen: Mask
) -> tuple[pa.RecordBatch, list[pa.Array]]:
    if chosen.all():
        return rows, keys
    mask = pa.array(chosen)
    return rows.filter(mask), [key.filter(mask) for key in keys]


def kept_of(
    partition: StatePartition, keys: list[pa.Array], fired: pa.RecordBatch | None
) -> pa.RecordBatch:
    """What the state has of these keys, and of those whose timer is due."""
    if fired is not None and fired.num_rows:
        keys = [pa.concat_arrays(pair) for pair in zip(keys, fired.columns, strict=True)]
    with one_batch("the rows that are kept for the keys of an epoch"):
        return partition.groups(keys)


def with_kept(
    rows: pa.RecordBatch, keys: list[pa.Array], kept: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[pa.Array]]:
    """New rows and their keys, then kept ones."""
    if not kept.num_rows:
        return rows, keys
    own = [kept.column(field.name) for field in rows.schema]
    with one_batch("the rows that are kept for the keys of an epoch", kept.columns[: len(keys)]):
        every, both = (
            [pa.concat_arrays(pair) for pair in zip(columns, own, strict=False)]
            for columns in (rows.columns, keys)
        )
    return pa.RecordBatch.from_arrays(every, schema=rows.schema), both


def columns_of_state(keys: Sequence[pa.Field], sides: Sequence[pa.Field]) -> tuple[pa.Schema, ...]:
    """The key and the value columns of the state, and the columns of an epoch's rows."""
    side, at, alone = pa.field(RIGHT, pa.bool_()), pa.field(AT, TIME), pa.field(ALONE, pa.bool_())
    return (
        pa.schema([*keys, pa.field(UNTIL, TIME), pa.field(ID, pa.int64())]),
        pa.schema([side, at, *sides]),
        pa.schema([*keys, side, at, alone, *sides]),
    )


def columns_that_come_out(sides: Sequence[pa.Field], *, asks: bool) -> pa.Schema:
    """Of the task; behind it a condition may be asked."""
    return pa.schema([*sides, pa.field(ASKS, pa.int64())] if asks else sides)
