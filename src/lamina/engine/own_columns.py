"""Columns of a user's own aggregates, on their way into the state and out of it.

in    Spark gives the arguments of a group's rows, or of each row with its key; the state of the
      group is made of them
out   people see what `finish` makes of the state
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from lamina.engine.model import OperatorPlan, TaskWork
from lamina.engine.sessions import Sessions
from lamina.engine.task_state import ROWS
from lamina.engine.typed import as_planned
from lamina.engine.user_aggregates import UserAggregate
from lamina.errors import Refused
from lamina.state.changes import slots_of_keys
from lamina.state.folding import grouped, merge_groups
from lamina.state.keys import normalise
from lamina.state.schema import StateSchema

Own = Mapping[str, UserAggregate]


def own_of(plan: OperatorPlan) -> Own:
    """The user's own aggregates of a plan, by the column of the state."""
    step = plan.step
    merges = step.partials if isinstance(step, Sessions) else step.merges
    return {
        merge.columns[0]: merge.code for merge in merges if isinstance(merge.code, UserAggregate)
    }


def with_states(
    own: Own, schema: StateSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark gives, with states where it has the arguments of rows."""
    listed = [batch for batch in batches if batch.num_rows]
    if listed and any(pa.types.is_struct(listed[0].column(name).type) for name in own):
        listed = [_grouped(own, schema, pa.concat_batches(listed))]
        own = {}
    for batch in listed:
        made = batch
        for name, aggregate in own.items():
            if not aggregate.of_bag:
                made = _replaced(made, name, aggregate.partial(batch.column(name)))
        yield made


def _grouped(own: Own, schema: StateSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Single rows as groups, each key once: what is Spark's own is merged, states are made."""
    planned = [field for field in schema.row if field.name not in own]
    columns = {each.name: as_planned(batch.column(each.name), each.type) for each in planned}
    keys = [normalise(columns[name]) for name in schema.key.names]
    order, firsts = grouped(slots_of_keys(keys), keys)
    merges = [merge for merge in schema.merges if merge.columns[0] not in own]
    names = [name for merge in merges for name in merge.columns]
    if names:
        values = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
        merged = merge_groups(merges, values, order, firsts)
        columns |= dict(zip(names, merged.columns, strict=True))
    lead = pa.array(order[firsts])
    taken = (key.take(lead) for key in keys)
    columns |= dict(zip(schema.key.names, taken, strict=True))
    for name, aggregate in own.items():
        columns[name] = aggregate.of_rows(batch.column(name).take(pa.array(order)), firsts)
    if ROWS in batch.schema.names:
        counts = batch.column(ROWS).to_numpy()[order]
        columns[ROWS] = pa.array(np.add.reduceat(counts, firsts))
    return pa.RecordBatch.from_pydict(columns)


def as_shown(own: Own, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the state as people see them."""
    for name, aggregate in own.items():
        batch = _replaced(batch, name, aggregate.shown(batch.column(name)))
    return batch


def shown_fields(own: Own, schema: pa.Schema) -> pa.Schema:
    """The columns of `as_shown`."""
    return pa.schema(
        [
            field.with_type(own[field.name].returns) if field.name in own else field
            for field in schema
        ]
    )


@contextmanager
def failures_named(own: Own, task: TaskWork) -> Iterator[None]:
    """An error of the user's code says which task it is of."""
    try:
        yield
    except Refused as error:
        if not own:
            raise
        where = f"the stream {task.stream.stream!r}, partition {task.partition}"
        raise type(error)(
            f"{where}: {error.message}", where=error.where, advice=error.advice
        ) from error


def _replaced(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)
