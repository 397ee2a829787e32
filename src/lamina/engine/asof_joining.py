"""An ASOF join in a task: rows of the left side wait, versions of the right side follow each other.

1  the epoch's rows of both sides that are not late; the keys whose timer is due
2  the kept rows of the same keys, of both sides: one state has them, found by the join keys
3  rows of the left side that no version can come for any more come out, each with its version
4  new rows of the left side that have to wait go into the state, with a timer, and so do versions

The last version of a key stands at one place, with no `_until` and the `_id` 0. When a later one
takes its place, it is written once more, with the time up to which it is needed, and goes by the
floor as all others do. So an epoch writes what has changed, and nothing is ever cleaned up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lamina.engine.asof import NEVER, Asof
from lamina.engine.join_rows import (
    ID,
    ID_BITS,
    UNTIL,
    JoinRows,
    JoinUpdate,
    filtered,
    kept_of,
    keys_of,
    of_right,
    on_time,
    rows_in,
    with_kept,
    without_alone,
)
from lamina.engine.model import OperatorPlan, OperatorWork, TaskResult, TaskWork
from lamina.engine.task_state import TIME, append_run, check_placement, open_partition, schema_of
from lamina.engine.timers import OpenTimers
from lamina.engine.versions import Versions
from lamina.pipeline.model import JoinKind
from lamina.state.changes import changes, slots_of_keys
from lamina.state.partition import StatePartition
from lamina.state.scanning import highest
from lamina.state.schema import time_values
from lamina.state.vnodes import Mask, Rows

ROWS_MAX = 1 << 16
"""Of a batch that comes out."""


def update_asof(
    task: TaskWork, operator: OperatorWork, step: Asof, batches: Iterable[pa.RecordBatch]
) -> JoinUpdate:
    """Bring one epoch's rows and timers to the state of a partition; durable when it returns."""
    work, plan = task.stream, operator.plan
    partition, compacted = open_partition(task, operator, schema_of(plan))
    timers = OpenTimers.of(task, operator)
    assert timers is not None, "rows of the left side wait for the watermark"
    judged_before = timers.partition.floor
    floor = highest([work.floor, judged_before])
    rows = rows_in(plan, batches)
    keys, came = keys_of(plan, rows), rows.num_rows
    check_placement(partition.within, slots_of_keys(keys))
    rows, keys = without_alone(rows, keys)
    wanted = on_time(rows, highest([work.late_floor, partition.floor]))
    late = came - int(np.count_nonzero(wanted))
    late_right = of_right(rows) - of_right(rows.filter(pa.array(wanted)))
    rows, keys = filtered(rows, keys, wanted)
    fired = timers.fired(floor)
    kept = kept_of(partition, keys, fired)
    joined = _Joined(*with_kept(rows, keys, kept), rows.num_rows, step, kept)
    due = joined.due(judged_before, floor)
    run = joined.run(partition, work.epoch << ID_BITS, floor)
    ranges = append_run(task, operator.name, run)
    judges_now = bool(fired.num_rows or due.any())
    new = timers.run(*joined.timers(floor), floor if judges_now else None)
    ranges += append_run(task, timers.name, new)
    result = TaskResult(
        partition=task.partition,
        ranges=ranges,
        compacted=compacted + timers.compacted,
        rows_in=came,
        late=late,
        late_right=late_right,
        keys=sum(each.rows for each in partition.runs) + run.num_rows,
    )
    return JoinUpdate(result, joined.output(plan, due))


@dataclass(frozen=True)
class _Joined(JoinRows):
    step: Asof
    kept: pa.RecordBatch  # as the state has them, with UNTIL and ID

    # rows of the left side

    def due(self, since: int | None, floor: int | None) -> Mask:
        """Rows that are judged now: no version can come for them any more, and it could before."""
        if floor is None:
            return np.zeros(self.rows.num_rows, np.bool_)
        due = self.step.due(self.at)
        first = np.iinfo(np.int64).min if since is None else since
        found: Mask = (due < floor) & (self.is_new | (due >= first))
        return found & self.has_key & ~self.is_right

    def waits(self, floor: int | None) -> Rows:
        """New rows that will be judged later."""
        waits = self.is_new & self.has_key & ~self.is_right
        if floor is not None:
            waits &= self.step.due(self.at) >= floor
        return np.flatnonzero(waits)

    def timers(self, floor: int | None) -> tuple[list[pa.Array], Rows]:
        return self.calls(self.waits(floor), self.step.due(self.at))

    def output(self, plan: OperatorPlan, due: Mask) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        rows = np.flatnonzero(due)
        found = self.versions.chosen(self.step, self.codes[rows], self.at[rows])
        if self.step.kind is JoinKind.LEFT:
            alone = np.flatnonzero(self.is_new & ~self.has_key & ~self.is_right)
            rows, found = np.r_[rows, alone], np.r_[found, np.full(len(alone), -1)]
        else:
            rows, found = rows[found >= 0], found[found >= 0]
        for first in range(0, len(rows), ROWS_MAX):
            part = slice(first, first + ROWS_MAX)
            yield self.beside(schema, self.step.left, rows[part], found[part])

    # versions

    @cached_property
    def versions(self) -> Versions:
        """Of all keys, by what was kept and what is new."""
        rows = np.flatnonzero(self.is_right & self.has_key)
        values = [self.rows.column(name) for name in self.step.columns[self.step.left :]]
        return Versions.of(rows, self.codes, self.at, values)

    @cached_property
    def _stored(self) -> Rows:
        """Up to when the state has each row; before everything if it does not."""
        nowhere = np.full(self.new, np.iinfo(np.int64).min)
        return np.asarray(np.r_[nowhere, time_values(self.kept.column(UNTIL))])

    def _written(self) -> tuple[Rows, Rows]:
        """Versions that are new, or needed for another time than the state says, and until when."""
        found = self.versions
        until = self.step.until(found.at, found.is_last)
        stored = self._stored[found.rows]
        wanted = (stored < until) | ((stored == NEVER) & (until < NEVER))
        return found.rows[wanted], until[wanted]

    # what the state gets

    def run(self, partition: StatePartition, first_id: int, floor: int | None) -> pa.RecordBatch:
        """Rows that may be needed later, as a run; it says what is no longer needed."""
        gone = highest([floor, partition.floor])
        waiting, (versions, until) = self.waits(floor), self._written()
        rows = np.r_[waiting, versions]
        until = np.r_[self.step.due(self.at[waiting]), until]
        if gone is not None:
            rows, until = rows[until >= gone], until[until >= gone]
        ids = np.where(until == NEVER, 0, first_id + np.arange(len(rows)))
        schema = partition.schema
        run = changes(schema, self._as_stored(schema.row, rows, until, ids))
        if not len(rows):
            return run
        return run.replace_schema_metadata(schema.run_with(gone).metadata)

    def _as_stored(self, schema: pa.Schema, rows: Rows, until: Rows, ids: Rows) -> pa.RecordBatch:
        taken = {
            name: self.rows.column(name).take(pa.array(rows)) for name in self.rows.schema.names
        }
        named = zip(schema.names, self.keys, strict=False)
        taken |= {name: key.take(pa.array(rows)) for name, key in named}
        times = pa.array(until, mask=until == NEVER).cast(TIME)
        taken |= {UNTIL: times, ID: pa.array(ids)}
        return pa.RecordBatch.from_arrays([taken[name] for name in schema.names], schema=schema)
