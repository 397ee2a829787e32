"""The call of a keyed step, and what it comes to: values, deletes, timers and rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lamina.engine.model import OperatorPlan
from lamina.engine.steps import KeyedStep, Stepped, Stepping
from lamina.engine.task_state import ARMED, TIME, TIMER
from lamina.engine.timers import NEVER
from lamina.engine.typed import as_planned
from lamina.errors import Refused
from lamina.state.changes import changes
from lamina.state.partition import Looked, StatePartition
from lamina.state.schema import StateSchema, time_values
from lamina.state.vnodes import Mask, Rows, Slots


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys that have rows or fired timers, each once, in the order of a run."""

    schema: StateSchema
    keys: list[pa.Array]
    slots: Slots
    old: Looked
    rows: pa.RecordBatch
    key_of: Rows  # of each row
    is_fired: Mask

    @property
    def value_names(self) -> list[str]:
        """The columns that are the step's own."""
        return [name for name in self.schema.value.names if name not in (TIMER, ARMED)]

    def times(self, name: str) -> Rows:
        """A time that the state has of each key."""
        if name not in self.schema.value.names:
            return np.full(len(self.slots), NEVER, np.int64)
        return time_values(self.old.values.column(name))

    def given(self, which: Rows, key_of: Rows, due: Mask, floor: int | None) -> Stepping:
        """What the step gets, if it is called for the keys *which*."""
        taken = pa.array(which)
        keys = [each.take(taken) for each in self.keys]
        return Stepping(
            pa.RecordBatch.from_arrays(keys, schema=self.schema.key),
            self.old.values.select(self.value_names).take(taken),
            self.old.found[which],
            self.rows,
            key_of,
            due[which],
            floor,
        )


@dataclass(frozen=True, slots=True)
class Made:
    """What becomes of the keys that were called, and of those whose timer is only set again."""

    keys: list[pa.Array]
    slots: Slots
    values: list[pa.Array]  # with the columns of timers, if there are some
    gone: Mask
    was_found: Mask
    set_at: Rows  # the time of a new timer, or NEVER
    output: pa.RecordBatch

    def run(self, partition: StatePartition, floor: int | None) -> pa.RecordBatch:
        """The run of the state; with *floor*, it says what has expired."""
        schema = partition.schema
        batch = pa.RecordBatch.from_arrays([*self.keys, *self.values], names=schema.row.names)
        kept = ~self.gone | self.was_found  # what is gone and was not there needs no delete
        changed = changes(
            schema, batch.filter(pa.array(kept)), deletes=self.gone[kept], slots=self.slots[kept]
        )
        run = partition.apply(changed, old_values=False).run
        if floor is None or not run.num_rows:
            return run
        return run.replace_schema_metadata(schema.run_with(floor).metadata)

    def new_timers(self) -> tuple[list[pa.Array], Rows]:
        """Keys, and the time at which each is to be called."""
        chosen = np.flatnonzero((self.set_at != NEVER) & ~self.gone)
        return [key.take(pa.array(chosen)) for key in self.keys], self.set_at[chosen]


def called(touched: Touched, step: KeyedStep, plan: OperatorPlan, floor: int | None) -> Made:
    """Call the step for the keys that have rows or are due."""
    found, count = touched.old.found, len(touched.slots)
    before = -NEVER if floor is None else floor
    timer, armed = touched.times(TIMER), touched.times(ARMED)
    due = found & (timer < before)
    is_called = due.copy()
    is_called[touched.key_of] = True
    again = touched.is_fired & found & (armed < before) & ~is_called
    which, number = np.flatnonzero(is_called), np.cumsum(is_called) - 1
    stepped = _nothing(touched)
    if which.size:
        stepped = step.step(touched.given(which, number[touched.key_of], due, floor))
        _check(step, touched, stepped, len(which))

    gone = np.zeros(count, np.bool_)
    if stepped.gone is not None:
        gone[which] = stepped.gone
    pending = np.where(found & (armed >= before), armed, NEVER)  # what has not fired yet
    wanted = timer.copy()
    wanted[which] = _wanted(stepped, len(which), before)
    is_new = wanted < pending
    is_same = np.zeros(count, np.bool_)
    if stepped.same is not None:
        assert not plan.has_timers, "a timer that has fired is to be written again"
        is_same[which] = stepped.same
    changed = np.flatnonzero((is_called | again) & ~is_same)
    place = np.where(is_called, number, len(which) + np.arange(count))[changed]
    values = _values(touched, stepped, place)
    if plan.has_timers:
        next_timer = np.where(is_new, wanted, pending)
        values += [_stamps(wanted[changed]), _stamps(next_timer[changed])]
    return Made(
        [key.take(pa.array(changed)) for key in touched.keys],
        touched.slots[changed],
        values,
        gone[changed],
        found[changed],
        np.where(is_new, wanted, NEVER)[changed],
        _output(touched, stepped, plan, which),
    )


def _nothing(touched: Touched) -> Stepped:
    fields = [touched.schema.value.field(name) for name in touched.value_names]
    return Stepped(pa.RecordBatch.from_pylist([], pa.schema(fields)))


def _wanted(stepped: Stepped, count: int, before: int) -> Rows:
    """The timers that the step has asked for; those that are due fire with the next watermark."""
    if stepped.timers is None:
        return np.full(count, NEVER, np.int64)
    times = time_values(stepped.timers.cast(TIME))
    return np.maximum(times, before)


def _values(touched: Touched, stepped: Stepped, place: Rows) -> list[pa.Array]:
    """New values, then old ones: those at *place*."""
    old, taken = touched.old.values, pa.array(place)
    return [
        pa.concat_arrays([stepped.values.column(name), old.column(name)]).take(taken)
        for name in touched.value_names
    ]


def _stamps(times: Rows) -> pa.Array:
    return pa.array(times, pa.int64(), mask=times == NEVER).cast(TIME)


def _output(touched: Touched, stepped: Stepped, plan: OperatorPlan, which: Rows) -> pa.RecordBatch:
    if plan.output_schema:
        schema = pa.ipc.read_schema(pa.py_buffer(plan.output_schema))
        if stepped.output is None:
            return pa.RecordBatch.from_pylist([], schema)
        columns = [as_planned(stepped.output.column(f.name), f.type) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    keys = [key.take(pa.array(which)) for key in touched.keys]
    names = [*touched.schema.key.names, *touched.value_names]
    rows = pa.RecordBatch.from_arrays([*keys, *stepped.values.columns], names=names)
    return rows if stepped.gone is None else rows.filter(pa.array(~stepped.gone))


def _check(step: KeyedStep, touched: Touched, stepped: Stepped, keys: int) -> None:
    fields = [touched.schema.value.field(name) for name in touched.value_names]
    wanted = pa.schema([pa.field(field.name, field.type) for field in fields])
    values = stepped.values
    given = pa.schema([pa.field(field.name, field.type) for field in values.schema])
    if given != wanted or values.num_rows != keys:
        raise Refused(
            f"{step} has given {values.num_rows} rows of {_said(given)} for {keys} keys, and the "
            f"state has {_said(wanted)}",
            advice="A step returns the value columns of the state, a row for each key",
        )
    for what, each in (("gone", stepped.gone), ("timers", stepped.timers)):
        if each is not None and len(each) != keys:
            raise Refused(f"{step} has given {len(each)} {what} for {keys} keys")


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"
