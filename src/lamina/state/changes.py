"""Changes as a run: keys and values from outside, checked, hashed and sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lamina.errors import StateChanged, UsageError
from lamina.state.hashing import spark_xxhash64, vnodes_of
from lamina.state.keys import normalise
from lamina.state.run import slots_of_batch, sort_order
from lamina.state.schema import DELETE, PUT, StateSchema, null_where, time_values
from lamina.state.stored_types import as_stored
from lamina.state.vnodes import (
    Mask,
    SlotRange,
    Slots,
    group_ranges,
    group_slots_of,
    slots_of,
    timed_slots_of,
)


def changes(
    schema: StateSchema,
    batch: pa.RecordBatch,
    *,
    deletes: Mask | None = None,
    slots: Slots | None = None,
    copy: bool = False,
) -> pa.RecordBatch:
    """New values (or partial ones) of keys, each key once, as a sorted batch in a run's form.

    *batch* has the key and value columns, by name. Rows of *deletes* need no values. Where Spark
    has computed vnode and hash already, *slots* are made of them (`vnodes.slots_of`). With *copy*
    the result shares no memory with *batch*: its maker may use that for the next one.
    """
    keys = key_columns(schema, batch)
    values = [_value(batch, field, deletes) for field in schema.value]
    if slots is None:
        slots = slots_in(schema, keys)
    gone = np.zeros(batch.num_rows, np.bool_) if deletes is None else deletes
    operations = np.where(gone, np.uint8(DELETE), np.uint8(PUT))
    arrays = [pa.array(slots, pa.uint64()), pa.array(operations, pa.uint8()), *keys, *values]
    made = pa.RecordBatch.from_arrays(arrays, schema=schema.run)
    order = sort_order(slots, keys)
    if order is None:
        return made.take(pa.array(np.arange(made.num_rows))) if copy else made
    return made.take(pa.array(order))


def key_columns(schema: StateSchema, batch: pa.RecordBatch) -> list[pa.Array]:
    """The key columns of a batch, as keys are stored; they have the types of the state."""
    return [normalise(_column(batch, field)) for field in schema.key]


def slots_of_keys(keys: Sequence[pa.Array]) -> Slots:
    """Where normalised keys belong, by the same functions that Spark has."""
    return slots_of(vnodes_of(keys), spark_xxhash64(keys))


def slots_in(schema: StateSchema, keys: Sequence[pa.Array]) -> Slots:
    """Where normalised keys of a state belong."""
    if schema.group:
        first = keys[: schema.group]
        return group_slots_of(vnodes_of(first), spark_xxhash64(first), spark_xxhash64(keys))
    if not schema.by_time:
        return slots_of_keys(keys)
    assert schema.time is not None
    at = schema.key.names.index(schema.time)
    owners = vnodes_of([*keys[:at], *keys[at + 1 :]])
    return timed_slots_of(owners, time_values(keys[at]), spark_xxhash64(keys))


def ranges_of_groups(keys: Sequence[pa.Array]) -> tuple[Slots, Slots]:
    """Where the rows of groups with these normalised keys stand: first and last slots, sorted."""
    return group_ranges(vnodes_of(keys), spark_xxhash64(keys))


def check_changes(schema: StateSchema, batch: pa.RecordBatch, within: SlotRange) -> None:
    """That a batch is sorted, of this schema, and of these vnodes: who made it is not asked."""
    if not batch.schema.equals(schema.run):
        raise UsageError(
            f"changes have the columns {batch.schema.names}, the state {schema.run.names}",
            advice="Make them with lamina.state.changes.changes",
        )
    slots = slots_of_batch(batch)
    if not len(slots):
        return
    if np.any(slots[1:] < slots[:-1]):
        raise UsageError("changes are sorted by slot")
    if int(slots[0]) < within.first or int(slots[-1]) > within.last:
        raise UsageError("there are keys of another partition among the changes")
    if sort_order(slots, schema.keys_of(batch)) is not None:
        raise UsageError("changes of one slot are sorted by their keys")


def split(batch: pa.RecordBatch, ranges: Sequence[SlotRange]) -> list[pa.RecordBatch]:
    """The rows of each partition, not copied."""
    slots = slots_of_batch(batch)
    parts = [within.slice_of(slots) for within in ranges]
    return [batch.slice(part.start, part.stop - part.start) for part in parts]


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        raise UsageError(f"the column {field.name!r} is missing")
    column = batch.column(field.name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = as_stored(column, field.type)
    if column.type != field.type:
        raise StateChanged(
            f"the column {field.name!r} is {column.type}, and {field.type} in the state"
        )
    if column.null_count and not field.nullable:
        raise UsageError(f"the column {field.name!r} cannot be null")
    return column


def _value(batch: pa.RecordBatch, field: pa.Field, deletes: Mask | None) -> pa.Array:
    if field.name not in batch.schema.names and deletes is not None and deletes.all():
        return pa.nulls(batch.num_rows, field.type)
    column = _column(batch, field.with_nullable(True))
    if deletes is not None and deletes.any():
        (column,) = null_where([column], deletes)
    gone = 0 if deletes is None else int(np.count_nonzero(deletes))
    if not field.nullable and column.null_count > gone:
        raise UsageError(f"the column {field.name!r} cannot be null")
    return column
