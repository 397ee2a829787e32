"""What a task does with its partition: merge, log, stage. The same in every runner.

1  new partials, each key hashed here, as sorted changes; late ones are counted and left out
2  runs of the partition that should be one become one (R10)
3  old and new values merged; the new run appended to the core's WAL, synced (R1)
4  the rows that come out: changed ones, with their old versions if changes are wanted, or those
   of windows that have closed

A step that is a function over keys has its own way through: engine/keyed.py; joins have others:
engine/joining.py, engine/change_joins.py, engine/temporal_joins.py, engine/asof_joining.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.asof import Asof
from lamina.engine.asof_joining import update_asof
from lamina.engine.change_joins import update_change_join
from lamina.engine.changing import PAIR, changed_only, versions
from lamina.engine.joining import update_join
from lamina.engine.joins import ChangeJoin, Join, TemporalJoin
from lamina.engine.keyed import update_keyed
from lamina.engine.model import OperatorPlan, OperatorWork, StreamWork, TaskResult, TaskWork
from lamina.engine.own_columns import as_shown, failures_named, own_of, shown_fields, with_states
from lamina.engine.pending import OpenPending
from lamina.engine.steps import Merges, Pending, Timers
from lamina.engine.taking_back import TAKEN_BACK, turned, without_empty
from lamina.engine.task_state import (
    ARMED,
    TIMER,
    append_run,
    check_placement,
    open_partition,
    rows_counted,
    schema_of,
)
from lamina.engine.temporal_joins import update_temporal_join
from lamina.engine.typed import as_planned
from lamina.errors import Refused
from lamina.format.commit import WalRange
from lamina.logs import about
from lamina.pipeline.model import Emit
from lamina.state.changes import changes
from lamina.state.folding import folded
from lamina.state.partition import Applied, StatePartition
from lamina.state.run import run_of_batch, slots_of_batch
from lamina.state.scanning import highest
from lamina.state.schema import StateSchema, time_values
from lamina.state.vnodes import Mask


@dataclass(frozen=True, slots=True)
class Updated:
    """A task's result, and its output as rows of the state: keys and partials."""

    result: TaskResult
    rows: Iterable[pa.RecordBatch]


def update_state(
    task: TaskWork,
    operator: OperatorWork,
    batches: Iterable[pa.RecordBatch],
    *,
    of_rows: bool = False,
) -> Updated:
    """Bring one epoch's partials into the state of a partition; durable when it returns.

    *of_rows* says that they are of single rows: a key may have many.
    """
    stream = task.stream
    where = about(epoch=stream.epoch, stream=stream.stream, partition=task.partition)
    with failures_named(own_of(operator.plan), task), where:
        return _updated(task, operator, batches, of_rows=of_rows)


def _updated(
    task: TaskWork,
    operator: OperatorWork,
    batches: Iterable[pa.RecordBatch],
    *,
    of_rows: bool,
) -> Updated:
    work, plan = task.stream, operator.plan
    if isinstance(plan.step, Join):
        joined = update_join(task, operator, plan.step, batches)
        return Updated(joined.result, joined.rows)
    if isinstance(plan.step, ChangeJoin):
        joined = update_change_join(task, operator, plan.step, batches)
        return Updated(joined.result, joined.rows)
    if isinstance(plan.step, TemporalJoin):
        joined = update_temporal_join(task, operator, plan.step, batches)
        return Updated(joined.result, joined.rows)
    if isinstance(plan.step, Asof):
        joined = update_asof(task, operator, plan.step, batches)
        return Updated(joined.result, joined.rows)
    own, schema = own_of(plan), schema_of(plan)
    if plan.given:
        batches = _as_stored(plan, schema, batches)
    if own:
        batches = with_states(own, schema, batches)
    if not isinstance(plan.step, (Merges, Timers, Pending)):
        keyed = update_keyed(task, operator, plan.step, batches)
        return Updated(keyed.result, [as_shown(own, batch) for batch in keyed.rows])
    partition, compacted = open_partition(task, operator, schema)
    made = folded if of_rows or plan.takes_back else changes
    changed, rows_in, late = _changes(made, partition, batches, _late(work, partition))
    if not schema.value.names:
        changed = _unknown(partition, changed)
    applied = _applied(plan, partition, changed)
    run = applied.run
    after = partition.with_run(run_of_batch(run)) if run.num_rows else partition
    rows = _rows_out(plan, schema, applied) if run.num_rows else []
    pending = OpenPending.of(task, operator)
    waiting: tuple[WalRange, ...] = ()
    if pending is not None:
        waited = pending.waited(task, after, applied)
        rows, compacted = waited.rows, compacted + pending.compacted
        waiting = append_run(task, pending.name, waited.run)
    if schema.time is not None and work.floor is not None:
        gone, run = _expired(after, run, work.floor)
        rows = gone if plan.emit is Emit.ON_WINDOW_CLOSE else rows
    elif plan.emit is Emit.ON_WINDOW_CLOSE:
        rows = []
    rows = [as_shown(own, batch) for batch in rows]
    result = TaskResult(
        partition=task.partition,
        ranges=append_run(task, operator.name, run) + waiting,
        compacted=compacted,
        rows_in=rows_in,
        late=late,
        keys=sum(each.rows for each in after.runs),
    )
    if plan.given:
        rows = [_as_given(plan, batch) for batch in rows]
    return Updated(result, rows)


def _unknown(partition: StatePartition, changed: pa.RecordBatch) -> pa.RecordBatch:
    """Of keys that have no values, those that are new: the others stay as they are."""
    known = partition.look(slots_of_batch(changed), partition.schema.keys_of(changed)).found
    return changed.filter(pa.array(~known)) if known.any() else changed


def _applied(plan: OperatorPlan, partition: StatePartition, changed: pa.RecordBatch) -> Applied:
    """Old and new values of the keys, without those that are as they were where that is likely.

    Of most keys no new row gets into a short list.
    """
    emits_changes, schema = plan.emit is Emit.CHANGES, partition.schema
    applied = partition.apply(changed, old_values=emits_changes)
    merges = schema.merges
    has_lists = bool(merges) and all(merge.function == "list_sorted" for merge in merges)
    if plan.takes_back:
        stored = dict(zip(plan.given, schema.row.names, strict=True)) if plan.given else {}
        live = None if plan.live is None else stored.get(plan.live, plan.live)
        applied = without_empty(schema, applied, live)
    return changed_only(applied) if has_lists or emits_changes or plan.takes_back else applied


def _rows_out(plan: OperatorPlan, schema: StateSchema, applied: Applied) -> list[pa.RecordBatch]:
    """The new rows of the state; if changes are to come out, the old ones too."""
    if plan.emit is Emit.CHANGES:
        return versions(schema, applied)
    return [schema.rows_of(applied.run)]


def _expired(
    after: StatePartition, run: pa.RecordBatch, floor: int
) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
    """The rows of windows that have closed, and the run that says so; as it was if none have.

    What no run says is gone stays, and goes another time: an idle partition writes nothing.
    """
    expired, floor_run = after.expire(floor)
    gone = list(expired)
    return gone, run.replace_schema_metadata(floor_run.schema.metadata) if gone else run


def output_schema(plan: OperatorPlan) -> pa.Schema:
    """The rows that come out of a task, as the runner names their columns."""
    own = own_of(plan)
    if plan.output_schema:
        return shown_fields(own, pa.ipc.read_schema(pa.py_buffer(plan.output_schema)))
    row = pa.schema([each for each in schema_of(plan).row if each.name not in (TIMER, ARMED)])
    names = plan.given or row.names
    shown = shown_fields(own, row)
    columns = [field.with_name(name) for field, name in zip(shown, names, strict=True)]
    numbers = [pa.field(PAIR, pa.int64())] if plan.emit is Emit.CHANGES else []
    return pa.schema([*columns, *numbers])


def _as_given(plan: OperatorPlan, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the state under the names that the runner has for their columns."""
    more = batch.schema.names[len(plan.given) :]
    return batch.rename_columns([*plan.given, *more])


def _as_stored(
    plan: OperatorPlan, schema: StateSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What the runner gives, under the names that the state has for its columns."""
    called = dict(zip(plan.given, schema.row.names, strict=True))
    for batch in batches:
        yield batch.rename_columns([called.get(name, name) for name in batch.schema.names])


def _changes(
    made: Callable[[StateSchema, pa.RecordBatch], pa.RecordBatch],
    partition: StatePartition,
    batches: Iterable[pa.RecordBatch],
    floor: int | None,
) -> tuple[pa.RecordBatch, int, int]:
    """What came, as sorted changes: partials, or new values; how much came, how much was late."""
    schema = partition.schema
    listed = [batch for batch in batches if batch.num_rows]
    if not listed:
        return pa.RecordBatch.from_pylist([], schema.run), 0, 0
    batch = pa.concat_batches(listed)
    rows_in = rows_counted(batch)
    if floor is not None and schema.time is not None:
        batch = batch.filter(pa.array(_on_time(schema, batch, floor)))
    columns = [as_planned(batch.column(field.name), field.type) for field in schema.row]
    if TAKEN_BACK in batch.schema.names:
        columns = turned(schema, columns, batch.column(TAKEN_BACK))
    changed = made(schema, pa.RecordBatch.from_arrays(columns, schema=schema.row))
    check_placement(partition.within, slots_of_batch(changed))
    return changed, rows_in, rows_in - rows_counted(batch)


def _late(work: StreamWork, partition: StatePartition) -> int | None:
    """What is older is late; what is below the floor of the state has come out already."""
    return highest([work.late_floor, partition.floor])


def _on_time(schema: StateSchema, batch: pa.RecordBatch, floor: int) -> Mask:
    assert schema.time is not None
    return np.asarray(time_values(batch.column(schema.time)) >= floor)


def combined(results: Iterable[TaskResult]) -> TaskResult:
    """What one task has done for all operators of its stream."""
    first, *rest = results
    for each in rest:
        first = TaskResult(
            partition=first.partition,
            ranges=first.ranges + each.ranges,
            staged=first.staged + each.staged,
            compacted=first.compacted + each.compacted,
            rows_in=first.rows_in + each.rows_in,
            late=first.late + each.late,
            keys=first.keys + each.keys,
            late_right=first.late_right + each.late_right,
            row_bytes=max(first.row_bytes, each.row_bytes),
        )
    return first


def results_of(rows: Iterator[TaskResult], partitions: int) -> tuple[TaskResult, ...]:
    """R8: exactly one result for every partition."""
    found = sorted(rows, key=lambda result: result.partition)
    if [each.partition for each in found] != list(range(partitions)):
        raise Refused(
            f"{len(found)} tasks have answered for {partitions} partitions: "
            f"{[each.partition for each in found][:20]}"
        )
    return tuple(found)
