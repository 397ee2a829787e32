"""Columns as a user's keyed step gets and gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Refused
from lamina.state.vnodes import Mask

Numbers = npt.NDArray[np.int64]
_WRONG = (pa.ArrowException, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of one length; `columns["name"]` is a `pyarrow.Array`."""

    batch: pa.RecordBatch

    def __getitem__(self, name: str) -> pa.Array:
        return self.batch.column(name)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def numpy(self, name: str, fill: Any = None) -> npt.NDArray[Any]:
        """A copy of a column as numpy has it, with *fill* for nulls.

        Times are `datetime64[us]`, in UTC.
        """
        column = self.batch.column(name)
        is_time = pa.types.is_timestamp(column.type)
        if fill is not None and column.null_count and not is_time:
            column = pc.fill_null(column, pa.scalar(fill, column.type))
        made = np.array(column.to_numpy(zero_copy_only=False))
        if fill is not None and is_time:
            made[np.isnat(made)] = fill
        return made


@dataclass(frozen=True, slots=True)
class Keys(Columns):
    """The keys of a call, each once."""

    is_new: Mask  # it has no state
    due: Mask  # its timer is at the watermark or before
    watermark: np.datetime64 | None

    def take(self, which: Numbers) -> Keys:
        return Keys(
            self.batch.take(pa.array(which)), self.is_new[which], self.due[which], self.watermark
        )


@dataclass(frozen=True, slots=True)
class Rows(Columns):
    """The rows of a call: those of a key stand together, in the order of event time."""

    key_of: Numbers  # of each row: the number of its key
    keys: int

    @property
    def starts(self) -> Numbers:
        """Where the rows of each key begin, and where the last ones end: one more than keys."""
        return np.cumsum(np.append(np.zeros(1, np.int64), self.counts))

    @property
    def counts(self) -> Numbers:
        """How many rows each key has."""
        return np.bincount(self.key_of, minlength=self.keys).astype(np.int64)


@dataclass(frozen=True, slots=True)
class KeyedResult:
    """What a keyed step gives. Columns are a record batch, a table, or arrays by name."""

    state: Any  # the new state of each key, all columns
    output: Any = None  # rows, any number of them
    timers: Any = None  # when each key is to be called next; null: not by a timer
    gone: Any = None  # keys whose state is forgotten


def columns_of(given: Any, schema: pa.Schema, what: str, rows: int | None = None) -> pa.RecordBatch:
    """What a function has given, in the declared types; Refused that says *what* is wrong."""
    if given is None and rows is None:
        return pa.RecordBatch.from_pylist([], schema)
    if isinstance(given, Columns):
        given = given.batch
    if isinstance(given, (pa.RecordBatch, pa.Table)):
        given = dict(zip(given.schema.names, given.columns, strict=True))
    if not isinstance(given, Mapping):
        raise Refused(
            f"{what} is a {type(given).__name__}",
            advice="Give a pyarrow.RecordBatch, or a dict of arrays",
        )
    if set(given) != set(schema.names):
        raise Refused(
            f"{what} has the columns {', '.join(map(str, given)) or 'none'}, and declared are "
            f"{', '.join(schema.names)}"
        )
    columns = [_column(given[field.name], field, what) for field in schema]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise Refused(f"{what} has columns of the lengths {sorted(lengths)}")
    if rows is not None and lengths != {rows}:
        raise Refused(f"{what} has {lengths.pop()} rows for {rows} keys")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def flags_of(given: Any, what: str, rows: int) -> Mask:
    """One truth for each key; a null is none."""
    named = {"gone": given}
    column = columns_of(named, pa.schema([("gone", pa.bool_())]), what, rows).column(0)
    if column.null_count:
        raise Refused(f"{what} has nulls")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _column(given: Any, field: pa.Field, what: str) -> pa.Array:
    """An array of Arrow must be of the type; numpy and lists become it, if nothing is lost."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.Array):
        if given.type == field.type:
            return given
        if pa.types.is_null(given.type):
            return given.cast(field.type)
        raise Refused(f"{what} has {field.name!r} of {given.type}, declared is {field.type}")
    try:
        made = pa.array(given, field.type)
    except _WRONG as error:
        message = f"{what} has a {field.name!r} that is not {field.type}: {error}"
        raise Refused(" ".join(message.split())) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
