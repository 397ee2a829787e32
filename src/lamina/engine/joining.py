"""A join in a task: pairs of new and kept rows, and rows that are judged.

1  the epoch's rows of both sides that are not late; the groups whose timer is due
2  the kept rows of the same keys, of both sides: one state has them, found by the join keys
3  new rows that may still be needed go into the state, and timers for those that will be judged.
   Both are in one COMMIT
4  pairs come out in batches of a bounded size, however many a key has; then what was judged.
   A condition on both sides is asked behind the task: engine/join_asking.py

A kept row is never changed: its id is new. It goes by the floor, when the watermark is at `_until`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.join_asking import ASKS
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
from lamina.engine.joins import Join
from lamina.engine.model import OperatorPlan, OperatorWork, TaskResult, TaskWork
from lamina.engine.task_state import TIME, append_run, check_placement, open_partition, schema_of
from lamina.engine.timers import OpenTimers
from lamina.pipeline.model import JoinKind
from lamina.state.changes import changes, slots_of_keys
from lamina.state.partition import StatePartition
from lamina.state.scanning import highest
from lamina.state.vnodes import Mask, Rows

PAIRS_MAX = 1 << 16
"""Of a batch that comes out."""


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
    rows = rows_in(plan, batches)
    keys, came = keys_of(plan, rows), rows.num_rows
    check_placement(partition.within, slots_of_keys(keys))
    rows, keys = without_alone(rows, keys)
    wanted = on_time(rows, highest([work.late_floor, partition.floor]))
    late = came - int(np.count_nonzero(wanted))
    late_right = of_right(rows) - of_right(rows.filter(pa.array(wanted)))
    rows, keys = filtered(rows, keys, wanted)
    fired = None if timers is None else timers.fired(floor)
    joined = _Joined(*with_kept(rows, keys, kept_of(partition, keys, fired)), rows.num_rows, step)
    ids = (work.epoch << ID_BITS) + np.arange(joined.new)
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
        rows_in=came,
        late=late,
        keys=sum(each.rows for each in partition.runs) + run.num_rows,
        late_right=late_right,
    )
    return JoinUpdate(result, joined.output(plan, due))


@dataclass(frozen=True)
class _Joined(JoinRows):
    """New rows and the kept rows of the same keys, one after the other."""

    step: Join

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
        return self.calls(np.flatnonzero(waits), due)

    # what comes out

    def output(self, plan: OperatorPlan, due: Mask) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        kind, left, right = self.step.kind, ~self.is_right, self.is_right
        if kind.has_pairs:
            for mine, theirs in self._pairs(left & self.is_new, right):
                yield self._batch(schema, mine, theirs)
            for theirs, mine in self._pairs(right & self.is_new, left & ~self.is_new):
                yield self._batch(schema, mine, theirs)
        for side, other in ((left, right), (right, left)):
            judged = due & side
            if self.step.asks:
                for mine, theirs in self._pairs(judged, other):
                    one, two = (mine, theirs) if side is left else (theirs, mine)
                    yield self._batch(schema, one, two, asks=mine)
            wanted = np.concatenate([self._judged(judged, other), self._alone(side)])
            for first in range(0, len(wanted), PAIRS_MAX):
                rows = wanted[first : first + PAIRS_MAX]
                nothing = np.full(len(rows), -1)
                one, two = (rows, nothing) if side is left else (nothing, rows)
                yield self._batch(schema, one, two, asks=-1 - rows)

    def _judged(self, judged: Mask, others: Mask) -> Rows:
        """Those that come out; all of them if only what is behind the task can say it."""
        rows = np.flatnonzero(judged)
        if self.step.asks:
            return rows
        has_partner = self._has_partner(rows, others)
        return rows[has_partner if self.step.kind is JoinKind.SEMI else ~has_partner]

    def _alone(self, side: Mask) -> Rows:
        """New rows that come out at once: their key is null, or they do not meet a condition."""
        is_alone = self.is_new & ~self.has_key & self.step.is_judged(self.is_right)
        return np.flatnonzero(is_alone & side & (self.step.kind is not JoinKind.SEMI))

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

    def _batch(
        self, schema: pa.Schema, left: Rows, right: Rows, asks: Rows | None = None
    ) -> pa.RecordBatch:
        if not self.step.asks:
            return self.beside(schema, self.step.left, left, right)
        sides = pa.schema(list(schema)[:-1])
        batch = self.beside(sides, self.step.left, left, right)
        numbers = pa.nulls(len(left), pa.int64()) if asks is None else pa.array(asks)
        return batch.append_column(ASKS, numbers)


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
