"""A join of rows that stay with rows that may be taken back: each meets what its epoch has.

1  the epoch's changes of the right side: each adds one to how often a row is there, or takes one
   away; rows that are there more or less often now, or no more, are written (R10)
2  the rows of the left side meet the rows that are there after that, and come out at once, in
   batches of a bounded size. Nothing of them is kept, and nothing that came out is taken back

The rows of the right side are kept as a join over changes keeps a side (change_joins.py). What
comes out depends on the ranges that the epoch reads, and on nothing else: not on the order of rows,
and not on which of the two sides Spark reads first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from lamina.engine.change_joins import (
    COUNT,
    Came,
    Counted,
    codes_of,
    counted,
    flags,
    spread,
    updated,
)
from lamina.engine.join_rows import ALONE, RIGHT, JoinUpdate, filtered
from lamina.engine.joining import PAIRS_MAX
from lamina.engine.joins import TemporalJoin
from lamina.engine.model import OperatorPlan, OperatorWork, TaskWork
from lamina.engine.taking_back import TAKEN_BACK
from lamina.engine.typed import as_planned
from lamina.pipeline.model import JoinKind
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Rows


def update_temporal_join(
    task: TaskWork, operator: OperatorWork, step: TemporalJoin, batches: Iterable[pa.RecordBatch]
) -> JoinUpdate:
    """Bring one epoch's changes to the state of a partition; durable when it returns."""
    return updated(task, operator, batches, partial(_meeting, step))


def _meeting(step: TemporalJoin, came: Came) -> _Meeting:
    """The epoch's rows of the left side, and the rows of the right side with the same keys."""
    is_right = flags(came.rows.column(RIGHT))
    right = counted(came, *filtered(came.rows, came.keys, is_right))
    return _Meeting(step, *filtered(came.rows, came.keys, ~is_right), right)


@dataclass(frozen=True)
class _Meeting:
    step: TemporalJoin
    left: pa.RecordBatch
    keys: list[pa.Array]  # of the rows of the left side
    right: Counted

    def run(self, schema: StateSchema) -> pa.RecordBatch:
        return self.right.run(schema)

    def output(self, plan: OperatorPlan) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        starts, sizes = self._ranges
        for which, nth in spread(sizes):
            theirs = self._there[starts[which] + nth]
            for pair, _ in spread(self.right.after[theirs]):
                yield self._batch(schema, which[pair], theirs[pair])
        if self.step.kind is not JoinKind.LEFT:
            return
        alone = np.flatnonzero(sizes == 0)
        for first in range(0, len(alone), PAIRS_MAX):
            rows = alone[first : first + PAIRS_MAX]
            yield self._batch(schema, rows, np.full(len(rows), -1))

    @cached_property
    def _there(self) -> Rows:
        """The rows of the right side that are there now, in the order of their join keys.

        None has a null in its key, so a row of the left side that has one finds nothing.
        """
        there = np.flatnonzero(self.right.has_key & (self.right.after > 0))
        return there[np.argsort(self._codes[1][there], kind="stable")]

    @cached_property
    def _ranges(self) -> tuple[Rows, Rows]:
        """Of each row of the left side: where its partners begin, and how many there are."""
        mine, theirs = self._codes[0], self._codes[1][self._there]
        starts = np.searchsorted(theirs, mine, "left")
        return starts, np.searchsorted(theirs, mine, "right") - starts

    @cached_property
    def _codes(self) -> tuple[Rows, Rows]:
        """A number for the join key of each row, on the left and on the right side."""
        pairs = zip(self.keys, self.right.columns, strict=False)
        codes = codes_of([pa.concat_arrays(pair) for pair in pairs])
        return codes[: self.left.num_rows], codes[self.left.num_rows :]

    def _batch(self, schema: pa.Schema, left: Rows, right: Rows) -> pa.RecordBatch:
        """Rows of both sides beside each other; -1 is none."""
        theirs = dict(zip(self.right.names, self.right.columns, strict=True))
        lefts, rights = pa.array(left), pa.array(right, mask=right < 0)
        columns = [
            self.left.column(name).take(lefts)
            if number < self.step.left
            else theirs[name].take(rights)
            for number, name in enumerate(self.step.columns)
        ]
        typed = [as_planned(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=schema)


def columns_of_state(
    keys: Sequence[pa.Field], lefts: Sequence[pa.Field], rights: Sequence[pa.Field]
) -> tuple[pa.Schema, ...]:
    """The key and value columns of the state, the columns of an epoch's rows, and of the output."""
    beside = (pa.field(name, pa.bool_()) for name in (RIGHT, TAKEN_BACK, ALONE))
    return (
        pa.schema([*keys, *rights]),
        pa.schema([pa.field(COUNT, pa.int64())]),
        pa.schema([*keys, *beside, *lefts, *rights]),
        pa.schema([*lefts, *rights]),
    )
