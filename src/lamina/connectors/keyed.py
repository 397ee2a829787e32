"""Rows by key: what sinks share that replace rows of an outside table.

append   every row of the stream is a row of the table
upsert   a row replaces the one with the same keys; -D of a stream of changes deletes it
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.connectors.kinds import DeclaredOption, Given, OptionType, SinkContext
from lamina.connectors.options import bad_option
from lamina.engine.ports import CHANGE, Change, Output

MODE = DeclaredOption(
    "mode",
    "`append`: every row is added; `upsert`: a row replaces the one with the same keys. By "
    "default, what the stream does",
    choices=("append", "upsert"),
)
KEYS = DeclaredOption(
    "keys",
    "Columns that tell rows apart, for `upsert`; by default, the keys of the stream",
    OptionType.COLUMNS,
)


class WriteMode(Enum):
    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class Writing:
    """How a sink writes: with the key columns of an upsert, as the stream spells them."""

    mode: WriteMode
    keys: tuple[str, ...] = ()


def writing_of(context: SinkContext, output: Output) -> Writing:
    """What the options say, or else what the stream does. BadPipeline if that cannot be done."""
    given, sink = context.given, context.sink
    chosen = given.text("mode") or _default_mode(given, output)
    if chosen == "append":
        if output.change is Change.CHANGES:
            message = "would append the rows of a stream that deletes some"
            raise bad_option(sink, message, given.file, "Leave out mode: it then goes by keys")
        return Writing(WriteMode.APPEND)
    return Writing(WriteMode.UPSERT, _keys(context, output))


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


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The last word of an epoch on each of its keys."""

    upserts: pa.Table
    deletes: pa.Table  # key columns


def last_of_each_key(rows: pa.Table, keys: tuple[str, ...]) -> KeyedRows:
    """Of several rows with the same keys the last one counts, and -U never does."""
    if CHANGE in rows.column_names:
        rows = rows.filter(pc.not_equal(rows[CHANGE], "-U"))
    rows = rows.take(_last(rows.select(keys)))
    if CHANGE not in rows.column_names:
        return KeyedRows(rows, rows.select(keys).slice(0, 0))
    gone = pc.equal(rows[CHANGE], "-D")
    kept = rows.filter(pc.invert(gone)).drop_columns([CHANGE])
    return KeyedRows(kept, rows.filter(gone).select(keys))


def _last(keys: pa.Table) -> pa.Array:
    """The number of the last row of each key, in the order of the rows."""
    if not keys.num_columns or not keys.num_rows:
        return pa.array(np.arange(keys.num_rows)[-1:])
    names = [f"k{number}" for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(names).aggregate([("row", "max")])["row_max"].to_numpy()
    return pa.array(np.sort(last))
