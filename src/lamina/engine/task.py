"""What a task does with its partition: merge, log, stage. The same in every runner.

1  new partials, each key hashed here, as sorted changes; late ones are counted and left out
2  runs of the partition that should be one become one (R10)
3  old and new values merged; the new run appended to the core's WAL, synced (R1)
4  the rows that come out: changed ones, or those of windows that have closed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.model import (
    CompactedRuns,
    OperatorPlan,
    OperatorWork,
    StreamWork,
    TaskResult,
    TaskWork,
)
from lamina.engine.steps import PythonStep, Step, stepped
from lamina.engine.typed import as_planned
from lamina.errors import Refused
from lamina.format.commit import WalRange
from lamina.pipeline.model import Emit
from lamina.state.changes import changes, key_columns, slots_of_keys
from lamina.state.folding import folded
from lamina.state.keys import canonical
from lamina.state.layers import PlacedRun, stack
from lamina.state.operator import compact_runs
from lamina.state.partition import Applied, StatePartition
from lamina.state.run import run_of_batch, slots_of_batch
from lamina.state.scanning import highest
from lamina.state.schema import FLOOR_META, StateSchema, time_values
from lamina.state.vnodes import Mask, SlotRange, Slots

ROWS = "_rows"
"""The column that Spark computes beside the partials of windows: how many rows each is of."""


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
    work, plan = task.stream, operator.plan
    schema = schema_of(plan)
    if plan.given:
        batches = _as_stored(plan, schema, batches)
    partition, compacted = _open(task, operator, schema)
    made = folded if of_rows else changes
    changed, rows_in, late = _changes(plan.step, made, partition, batches, _late(work, partition))
    if not schema.value.names:
        changed = _unknown(partition, changed)
    run = _changed(schema, partition.apply(changed, old_values=False))
    after = partition.with_run(run_of_batch(run)) if run.num_rows else partition
    rows = [schema.rows_of(run)] if run.num_rows else []
    if schema.time is not None and work.floor is not None:
        gone, run = _expired(after, run, work.floor)
        rows = gone if plan.emit is Emit.ON_WINDOW_CLOSE else rows
    elif plan.emit is Emit.ON_WINDOW_CLOSE:
        rows = []
    result = TaskResult(
        partition=task.partition,
        ranges=_append(task, operator.name, run),
        compacted=compacted,
        rows_in=rows_in,
        late=late,
        keys=sum(each.rows for each in after.runs),
    )
    if plan.given:
        rows = [batch.rename_columns(list(plan.given)) for batch in rows]
    return Updated(result, rows)


def _unknown(partition: StatePartition, changed: pa.RecordBatch) -> pa.RecordBatch:
    """Of keys that have no values, those that are new: the others stay as they are."""
    known = partition.look(slots_of_batch(changed), partition.schema.keys_of(changed)).found
    return changed.filter(pa.array(~known)) if known.any() else changed


def _changed(schema: StateSchema, applied: Applied) -> pa.RecordBatch:
    """The run, without lists that no new element has got into: of most keys, if lists are short."""
    if not schema.merges or any(merge.function != "list_sorted" for merge in schema.merges):
        return applied.run
    old, new = (canonical(each.values.columns) for each in (applied.old, applied.new))
    same = applied.old.found & np.asarray(pc.equal(old, new))
    return applied.run.filter(pa.array(~same)) if same.any() else applied.run


def _expired(
    after: StatePartition, run: pa.RecordBatch, floor: int
) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
    """The rows of windows that have closed, and the run that says so; as it was if none have.

    What no run says is gone stays, and goes another time: an idle partition writes nothing.
    """
    expired, floor_run = after.expire(floor)
    gone = list(expired)
    return gone, run.replace_schema_metadata(floor_run.schema.metadata) if gone else run


def schema_of(plan: OperatorPlan) -> StateSchema:
    """The state's columns as the plan carries them."""
    key = pa.ipc.read_schema(pa.py_buffer(plan.key_schema))
    value = pa.ipc.read_schema(pa.py_buffer(plan.value_schema))
    definition = plan.step.definition(plan.definition)
    return StateSchema(key, value, plan.time, plan.merges, definition, plan.meanings)


def output_schema(plan: OperatorPlan) -> pa.Schema:
    """The rows that come out of a task, as the runner names their columns."""
    row = schema_of(plan).row
    names = plan.given or row.names
    return pa.schema([field.with_name(name) for field, name in zip(row, names, strict=True)])


def _as_stored(
    plan: OperatorPlan, schema: StateSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What the runner gives, under the names that the state has for its columns."""
    called = dict(zip(plan.given, schema.row.names, strict=True))
    for batch in batches:
        yield batch.rename_columns([called.get(name, name) for name in batch.schema.names])


def _open(
    task: TaskWork, operator: OperatorWork, schema: StateSchema
) -> tuple[StatePartition, tuple[CompactedRuns, ...]]:
    """The partition as the driver's list says, with fewer runs where that is due."""
    work = task.stream
    within = SlotRange.of_partition(task.partition, work.partitions)
    refs = operator.runs[task.partition] if operator.runs else ()
    placed = [
        PlacedRun(work.space.open_run(ref), SlotRange(ref.first_slot, ref.last_slot))
        for ref in refs
    ]
    partition = StatePartition(schema, stack(placed, within), within=within)
    folder = work.space.run_files
    compacted: list[CompactedRuns] = []
    while (chosen := partition.plan_compaction()) is not None:
        before = {run.name for run in partition.runs}
        partition = compact_runs(partition, chosen, folder)  # it may take in more than was chosen
        (made,) = (run for run in partition.runs if run.name not in before)
        compacted.append(CompactedRuns(operator.name, made.inputs, made.name))
    return partition, tuple(compacted)


def _changes(
    step: Step,
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
    rows_in = _rows(batch)
    if floor is not None and schema.time is not None:
        batch = batch.filter(pa.array(_on_time(schema, batch, floor)))
    if isinstance(step, PythonStep):
        slots = slots_of_keys(key_columns(schema, batch))
        _check_placement(partition.within, slots)
        changed = stepped(step, partition, batch, slots)
    else:
        columns = [as_planned(batch.column(field.name), field.type) for field in schema.row]
        changed = made(schema, pa.RecordBatch.from_arrays(columns, schema=schema.row))
        _check_placement(partition.within, slots_of_batch(changed))
    return changed, rows_in, rows_in - _rows(batch)


def _rows(partials: pa.RecordBatch) -> int:
    """How many rows they are of, as far as they say; a row counts in each of its windows."""
    if ROWS not in partials.schema.names:
        return int(partials.num_rows)
    return int(partials.column(ROWS).to_numpy(zero_copy_only=False).sum())


def _late(work: StreamWork, partition: StatePartition) -> int | None:
    """What is older is late; what is below the floor of the state has come out already."""
    return highest([work.late_floor, partition.floor])


def _on_time(schema: StateSchema, batch: pa.RecordBatch, floor: int) -> Mask:
    assert schema.time is not None
    return np.asarray(time_values(batch.column(schema.time)) >= floor)


def _check_placement(within: SlotRange, slots: Slots) -> None:
    """R8: every row is on the task that owns its vnode, or nothing of this epoch counts."""
    if len(slots) and (int(slots.min()) < within.first or int(slots.max()) > within.last):
        raise Refused(
            "rows have come to a task that does not own their keys",
            advice="Adaptive execution must be off for this job; please report this plan",
        )


def _append(task: TaskWork, operator: str, run: pa.RecordBatch) -> tuple[WalRange, ...]:
    """The run in the WAL of the core, synced; nothing if the epoch changes nothing here."""
    if not run.num_rows and FLOOR_META not in (run.schema.metadata or {}):
        return ()
    return (task.stream.space.put_run(task.writer, operator, run),)


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
