"""A keyed step in a task: which keys are called, what becomes of their values, rows and timers.

1  the epoch's rows that are not late; the timers that fire: those at the watermark or before
2  the keys of both, looked up once; a timer that its key no longer waits for is passed over
3  the step, for the keys that have rows or are due
4  new values and deletes as a run of the state; new timers as a run of theirs, with the floor below
   which all have fired. Both are in one COMMIT

A key has one timer (`_timer`), and knows which of those that were set for it fires next (`_armed`).
A timer that moves to a later time is not set again: the earlier one fires and sets it. So a session
that grows with every epoch writes one timer for each gap, not for each epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.called import Touched, called
from lamina.engine.model import OperatorPlan, OperatorWork, TaskResult, TaskWork
from lamina.engine.sessions import Sessions
from lamina.engine.steps import KeyedStep
from lamina.engine.task_state import (
    append_run,
    check_placement,
    open_partition,
    rows_counted,
    schema_of,
)
from lamina.engine.timers import OpenTimers
from lamina.engine.typed import as_planned
from lamina.state.changes import key_columns, slots_of_keys
from lamina.state.folding import grouped, numbers_of
from lamina.state.partition import StatePartition
from lamina.state.scanning import highest
from lamina.state.schema import time_values
from lamina.state.vnodes import Rows, Slots


@dataclass(frozen=True, slots=True)
class KeyedUpdate:
    """What a task did for a keyed step and its timers, and the rows that come out."""

    result: TaskResult
    rows: list[pa.RecordBatch]


def update_keyed(
    task: TaskWork, operator: OperatorWork, step: KeyedStep, batches: Iterable[pa.RecordBatch]
) -> KeyedUpdate:
    """Bring one epoch's rows and timers to the state of a partition; durable when it returns."""
    work, plan = task.stream, operator.plan
    schema = schema_of(plan)
    partition, compacted = open_partition(task, operator, schema)
    timers = OpenTimers.of(task, operator)
    known = highest([partition.floor, timers.partition.floor if timers else None])
    floor = highest([work.floor, known])
    if schema.time is not None:  # what has expired is not found, whether a run says so yet or not
        partition = StatePartition(schema, partition.runs, within=partition.within, floor=floor)
    if isinstance(step, Sessions):
        batches = step.formed(plan, batches)
    rows, rows_in, late = _on_time(plan, batches, highest([work.late_floor, known]))
    fired = None if timers is None else timers.fired(floor)
    made = called(_touched(partition, rows, fired), step, plan, floor)
    run = made.run(partition, None if schema.time is None else floor)
    ranges = append_run(task, operator.name, run)
    if timers is not None and fired is not None:
        new = timers.run(*made.new_timers(), floor if fired.num_rows else None)
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
    return KeyedUpdate(result, [made.output] if made.output.num_rows else [])


def _on_time(
    plan: OperatorPlan, batches: Iterable[pa.RecordBatch], floor: int | None
) -> tuple[pa.RecordBatch, int, int]:
    """What came and is not late; how much came, how much was late."""
    schema = pa.ipc.read_schema(pa.py_buffer(plan.rows_schema or plan.key_schema))
    listed = [batch for batch in batches if batch.num_rows]
    if not listed:
        return pa.RecordBatch.from_pylist([], schema), 0, 0
    batch = pa.concat_batches(listed)
    rows_in = rows_counted(batch)
    if floor is not None and plan.late_by is not None:
        batch = batch.filter(pa.array(time_values(batch.column(plan.late_by)) >= floor))
    late = rows_in - rows_counted(batch)
    if plan.rows_schema:
        columns = [as_planned(batch.column(field.name), field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch, rows_in, late


def _touched(
    partition: StatePartition, rows: pa.RecordBatch, fired: pa.RecordBatch | None
) -> Touched:
    """The keys of rows and of timers, looked up."""
    schema = partition.schema
    columns = key_columns(schema, rows)
    if fired is not None and fired.num_rows:
        pairs = zip(columns, fired.columns, strict=True)
        columns = [pa.concat_arrays([mine, theirs]) for mine, theirs in pairs]
    slots = slots_of_keys(columns)
    check_placement(partition.within, slots)
    first, place = _grouped(columns, slots)
    keys = [column.take(pa.array(first)) for column in columns]
    is_fired = np.zeros(len(first), np.bool_)
    is_fired[place[rows.num_rows :]] = True
    old = partition.look(slots[first], keys)
    return Touched(schema, keys, slots[first], old, rows, place[: rows.num_rows], is_fired)


def _grouped(columns: Sequence[pa.Array], slots: Slots) -> tuple[Rows, Rows]:
    """A row of each key, in the order of a run; and of each row the number of its key there."""
    order, firsts = grouped(slots, columns)
    return order[firsts], numbers_of(order, firsts)
