"""The timers of a keyed step: an operator of the same stream, in the order of time.

Its key is (time, the keys of the step), it has no values, and it lives where those keys live
(state/vnodes.py). A timer is due when its time is at the watermark or before, as a window closes.
All that are due go at once, by the floor: no timer is ever deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.model import CompactedRuns, OperatorPlan, OperatorWork, TaskWork
from lamina.engine.steps import Timers
from lamina.engine.task_state import TIME, open_partition, schema_of
from lamina.ids import fold
from lamina.state.changes import changes
from lamina.state.partition import StatePartition
from lamina.state.vnodes import Rows

NEVER = int(np.iinfo(np.int64).max)
"""The time of no timer."""
_TIME = "time"


def with_timers(name: str, plan: OperatorPlan) -> dict[str, OperatorPlan]:
    """The operators of a stream that has this keyed step: its state, and its timers if it has."""
    if not plan.has_timers:
        return {name: plan}
    key = pa.ipc.read_schema(pa.py_buffer(plan.key_schema))
    if plan.group:  # what is called are groups
        key = pa.schema(list(key)[: plan.group])
    time = _TIME
    while time in key.names:
        time = f"_{time}"
    timers = OperatorPlan(
        key_schema=pa.schema([pa.field(time, TIME), *key]).serialize().to_pybytes(),
        value_schema=pa.schema([]).serialize().to_pybytes(),
        step=Timers(),
        time=time,
        emit=plan.emit,
        meanings=(_TIME, *plan.meanings[: len(key)]) if plan.meanings else (),
    )
    return {name: plan, timers_name(name): timers}


def timers_name(operator: str) -> str:
    """What the timers of an operator are called; nothing that a person names has such a name."""
    return f"{operator} timers"


@dataclass(frozen=True, slots=True)
class OpenTimers:
    """The timers of a partition, inside of a task."""

    name: str
    partition: StatePartition
    compacted: tuple[CompactedRuns, ...]

    @classmethod
    def of(cls, task: TaskWork, operator: OperatorWork) -> OpenTimers | None:
        if not operator.plan.has_timers:
            return None
        wanted = fold(timers_name(operator.name))
        (timers,) = (each for each in task.stream.operators if fold(each.name) == wanted)
        partition, compacted = open_partition(task, timers, schema_of(timers.plan))
        return cls(timers.name, partition, compacted)

    def fired(self, floor: int | None) -> pa.RecordBatch:
        """The keys of all timers before *floor*; one with several is there several times."""
        names = self.partition.schema.key.names[1:]
        found = [] if floor is None else list(self.partition.expire(floor)[0])
        if not found:
            return pa.RecordBatch.from_pylist([], pa.schema(list(self.partition.schema.key)[1:]))
        return pa.concat_batches([batch.select(names) for batch in found])

    def run(self, keys: list[pa.Array], times: Rows, floor: int | None) -> pa.RecordBatch:
        """New timers as a run; with *floor*, it says that all before it have fired."""
        schema = self.partition.schema
        columns = [pa.array(times, pa.int64()).cast(TIME), *keys]
        changed = changes(schema, pa.RecordBatch.from_arrays(columns, schema=schema.key))
        run = self.partition.apply(changed, old_values=False).run
        return run.replace_schema_metadata(schema.run_with(floor).metadata)
