"""Rows by key: what sinks share that replace rows of an outside table.

append   every row of the stream is a row of the table
upsert   a row replaces the one with the same keys; a stream of changes deletes rows, too

A stream that is grouped by these keys has one row for each of them in an epoch, or of changes one
that is new and one that is gone; a new one counts. Rows of any other come in no order: a column
must say which one counts. Without it, several rows of a key are refused, wherever they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.connectors.keyed_options import KEYS, ORDER_BY
from lamina.connectors.kinds import Given, SinkContext
from lamina.connectors.options import bad_option
from lamina.engine.ports import CHANGE, NEW, Change, Output
from lamina.errors import Refused


class WriteMode(Enum):
    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Writing:
    """How a sink writes: with the columns of an upsert, as the stream spells them."""

    mode: WriteMode
    keys: tuple[str, ...] = ()
    order_by: str = ""  # of several rows of a key in an epoch the greatest counts; else the last
    refuses_several: bool = False  # nothing says which one counts


def writing_of(context: SinkContext, output: Output) -> Writing:
    """What the options say, or else what the stream does. BadPipeline if that cannot be done."""
    given, sink = context.given, context.sink
    chosen = given.text("mode") or _default_mode(given, output)
    if chosen == "append":
        if output.change is Change.CHANGES:
            message = "would append the rows of a stream that deletes some"
            raise bad_option(sink, message, given.file, "Leave out mode: it then goes by keys")
        for name in (KEYS.name, ORDER_BY.name):
            if name in given.declared:
                message = f"has {name}, and appends: every row is added, whatever its keys"
                advice = f"Leave out {name}, or write mode 'upsert'"
                raise bad_option(sink, message, given.file, advice)
        return Writing(WriteMode.APPEND)
    keys = _keys(context, output)
    _check_deletes(context, output, keys)
    order_by = _order_by(context, output, keys)
    return Writing(WriteMode.UPSERT, keys, order_by, refuses_several=not order_by)


def _check_deletes(context: SinkContext, output: Output, keys: tuple[str, ...]) -> None:
    """A row that is taken back must be the only one with its keys, or others would go with it."""
    if output.change is not Change.CHANGES or output.keys is None or output.is_keyed_by(keys):
        return
    message = f"deletes rows by {', '.join(keys)}, which does not tell them apart"
    advice = f"Leave out keys: the stream's own are {', '.join(output.keys)}"
    raise bad_option(context.sink, message, context.given.file, advice)


def _default_mode(given: Given, output: Output) -> str:
    by_key = output.change is not Change.APPEND or bool(given.columns("keys"))
    return "upsert" if by_key else "append"


def _keys(context: SinkContext, output: Output) -> tuple[str, ...]:
    given, sink = context.given, context.sink
    known = {name.lower(): name for name in output.schema.names}
    wanted = given.columns("keys") or output.keys
    if not wanted:
        why = "there is one row at most" if wanted == () else "they are not known"
        message = f"replaces rows by key, and the stream has no key columns: {why}"
        advice = "Write OPTIONS (keys 'a, b') with columns of the stream, or mode 'append'"
        raise bad_option(sink, message, given.file, advice)
    for name in wanted:
        if name.lower() not in known:
            message = f"has the key {name!r}, which is not a column of its stream"
            raise bad_option(sink, message, given.file, f"Its columns: {', '.join(known.values())}")
    return tuple(known[name.lower()] for name in wanted)


def _order_by(context: SinkContext, output: Output, keys: tuple[str, ...]) -> str:
    """BadPipeline if it is needed and not given; of a stream whose keys are unknown it is not."""
    given, sink = context.given, context.sink
    wanted = given.text(ORDER_BY.name)
    if not wanted:
        may_be_keyed = output.change is not Change.APPEND and output.keys is None
        if output.is_keyed_by(keys) or may_be_keyed:
            return ""
        message = f"replaces rows by {', '.join(keys)}, which the stream is not grouped by"
        advice = (
            "Rows of one epoch come in no order, so an older one could replace a newer one. Write "
            "order_by 'column': of rows with the same keys the one with the greatest value counts"
        )
        raise bad_option(sink, message, given.file, advice)
    known: dict[str, str] = {name.lower(): name for name in output.schema.names}
    name = known.get(wanted.lower(), "")
    if not name or name in keys:
        why = "is one of the keys" if name else "is not a column of its stream"
        others = ", ".join(column for column in known.values() if column not in keys)
        message = f"has the order_by {wanted!r}, which {why}"
        raise bad_option(sink, message, given.file, f"Columns that can be: {others or 'none'}")
    kind = output.schema.field(name).type
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
        message = f"has the order_by {name!r} of type {kind}, which has no order"
        advice = "Use a column of numbers, texts, dates or times"
        raise bad_option(sink, message, given.file, advice)
    return name


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The last word of an epoch on each of its keys."""

    upserts: pa.Table
    deletes: pa.Table  # key columns


def last_of_each_key(rows: pa.Table, writing: Writing) -> KeyedRows:
    """Of several rows with the same keys the last or greatest counts; of changes a new one."""
    rows = one_of_each_key(rows, writing)
    if CHANGE not in rows.column_names:
        return KeyedRows(rows, rows.select(writing.keys).slice(0, 0))
    is_new = _is_new(rows)
    kept = rows.filter(is_new).drop_columns([CHANGE])
    return KeyedRows(kept, rows.filter(pc.invert(is_new)).select(writing.keys))


def one_of_each_key(rows: pa.Table, writing: Writing) -> pa.Table:
    """The row of each key that counts; of changes it may be one that is taken back."""
    rows = _with_one_zero(rows, writing.keys)
    if writing.order_by:
        rows = rows.take(_in_order(rows, writing.order_by))
    new = rows.num_rows
    if CHANGE in rows.column_names:
        is_new = _is_new(rows)
        new = pc.sum(is_new).as_py() or 0
        rows = pa.concat_tables([rows.filter(pc.invert(is_new)), rows.filter(is_new)])
    last = _last(rows.select(writing.keys))
    if writing.refuses_several and _count_from(last, rows.num_rows - new) < new:
        raise _several(writing)
    return rows.take(last)


def _is_new(rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(rows[CHANGE], pa.array(NEW))


def _count_from(numbers: pa.Array, first: int) -> int:
    return int(np.count_nonzero(numbers.to_numpy() >= first))


def _with_one_zero(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """As Spark groups: 0.0 and -0.0 are one key, and so are all NaN."""
    for key in keys:
        at = rows.schema.get_field_index(key)
        field, column = rows.schema.field(at), rows[key]
        if pa.types.is_floating(field.type):
            zero, nan = (pa.scalar(value, field.type) for value in (0.0, float("nan")))
            same = pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
            rows = rows.set_column(at, field, same)
    return rows


def _in_order(rows: pa.Table, name: str) -> pa.Array:
    """As Spark sorts: null first, NaN last; what is equal stays in its order."""
    if name not in rows.column_names:
        message = f"the rows of the epoch have no column {name!r}, which order_by names"
        advice = "They were decided before the stream was changed: publish them with its old SELECT"
        raise Refused(message, advice=advice)
    column = rows[name]
    is_float = pa.types.is_floating(column.type)
    nan = pc.fill_null(pc.is_nan(column), False) if is_float else pa.nulls(len(column), pa.bool_())
    sortable = pa.table({"there": pc.is_valid(column), "nan": nan, "value": column})
    order = [(each, "ascending") for each in sortable.column_names]
    return pc.sort_indices(sortable, sort_keys=order)


def _several(writing: Writing) -> Refused:
    keys = ", ".join(writing.keys)
    return Refused(
        f"an epoch has several rows with the same {keys}, and nothing says which one counts",
        advice="The stream is not grouped by these keys: write order_by 'column' to take the row "
        "with the greatest value, or other keys",
    )


def _last(keys: pa.Table) -> pa.Array:
    """The number of the last row of each key, in the order of the rows."""
    if not keys.num_columns or not keys.num_rows:
        return pa.array(np.arange(keys.num_rows)[-1:])
    names = [f"k{number}" for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(names).aggregate([("row", "max")])["row_max"].to_numpy()
    return pa.array(np.sort(last))
