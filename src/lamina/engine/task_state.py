"""The state of a partition inside of a task: opened as the driver's list says, and logged."""

from __future__ import annotations

import pyarrow as pa

from lamina.engine.model import CompactedRuns, OperatorPlan, OperatorWork, TaskWork
from lamina.engine.steps import Timers
from lamina.errors import LaminaError, Refused
from lamina.format.commit import WalRange
from lamina.state.layers import PlacedRun, stack
from lamina.state.operator import compact_runs
from lamina.state.partition import StatePartition
from lamina.state.schema import FLOOR_META, StateSchema
from lamina.state.vnodes import SlotRange, Slots

ROWS = "_rows"
"""The column that Spark computes beside the partials of windows: how many rows each is of."""

TIMER, ARMED = "_timer", "_armed"
"""Columns of state with timers: when a key wants to be called, and when its next timer fires."""

TIME = pa.timestamp("us", "UTC")
_TIMER_COLUMNS = (pa.field(TIMER, TIME), pa.field(ARMED, TIME))


def schema_of(plan: OperatorPlan) -> StateSchema:
    """The state's columns as the plan carries them."""
    key = pa.ipc.read_schema(pa.py_buffer(plan.key_schema))
    value = pa.ipc.read_schema(pa.py_buffer(plan.value_schema))
    definition = plan.step.definition(plan.definition)
    meanings = plan.meanings
    if plan.has_timers and not plan.group:
        value = pa.schema([*value, *_TIMER_COLUMNS])
        meanings = (*meanings, "timer", "next timer") if meanings else ()
    by_time = isinstance(plan.step, Timers)
    return StateSchema(
        key, value, plan.time, plan.merges, definition, meanings, by_time, plan.group
    )


def open_partition(
    task: TaskWork, operator: OperatorWork, schema: StateSchema
) -> tuple[StatePartition, tuple[CompactedRuns, ...]]:
    """The partition as the driver's list says, with fewer runs where that is due (R10)."""
    work = task.stream
    within = SlotRange.of_partition(task.partition, work.partitions)
    refs = operator.runs[task.partition] if operator.runs else ()
    work.space.receive(operator.name, operator.runs)
    placed = [
        PlacedRun(work.space.open_run(ref, operator.name), SlotRange(ref.first_slot, ref.last_slot))
        for ref in refs
    ]
    partition = StatePartition(schema, stack(placed, within), within=within)
    folder = work.space.run_files
    compacted: list[CompactedRuns] = []
    while (chosen := partition.plan_compaction()) is not None:
        before = {run.name for run in partition.runs}
        try:
            partition = compact_runs(partition, chosen, folder)  # it may take more than was chosen
        except LaminaError as error:
            if not (work.space.may_lack_room and isinstance(error.__cause__, OSError)):
                raise
            break  # of more runs a look-up takes longer, and finds the same
        (made,) = (run for run in partition.runs if run.name not in before)
        sent = work.space.send_run(operator.name, made)
        compacted.append(CompactedRuns(operator.name, made.inputs, made.name, sent.key, sent.data))
    return partition, tuple(compacted)


def append_run(task: TaskWork, operator: str, run: pa.RecordBatch) -> tuple[WalRange, ...]:
    """The run in the WAL of the core, synced; nothing if the epoch changes nothing here."""
    if not run.num_rows and FLOOR_META not in (run.schema.metadata or {}):
        return ()
    return (task.stream.space.put_run(task.writer, operator, run),)


def check_placement(within: SlotRange, slots: Slots) -> None:
    """R8: every row is on the task that owns its vnode, or nothing of this epoch counts."""
    if len(slots) and (int(slots.min()) < within.first or int(slots.max()) > within.last):
        raise Refused(
            "rows have come to a task that does not own their keys",
            advice="Adaptive execution must be off for this job; please report this plan",
        )


def rows_counted(partials: pa.RecordBatch) -> int:
    """How many rows they are of, as far as they say; a row counts in each of its windows."""
    if ROWS not in partials.schema.names:
        return int(partials.num_rows)
    return int(partials.column(ROWS).to_numpy(zero_copy_only=False).sum())
