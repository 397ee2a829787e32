"""Rows by their keys: values given as Python or as text, a look-up if the whole key is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lamina.errors import UsageError
from lamina.state.keys import equal, normalise
from lamina.state.schema import StateSchema

Where: TypeAlias = "Mapping[str, Any] | pc.Expression | None"
HEX = "0x"


def parse_key(schema: StateSchema, given: Mapping[str, str | None]) -> dict[str, pa.Scalar]:
    """Key columns as a person types them, by the type of each; None is null.

    Bytes are text, or hex behind 0x; structs and lists are JSON; times are ISO 8601.
    """
    return {
        name: pa.scalar(None, field.type) if text is None else parse_value(field, text)
        for name, text in given.items()
        for field in [_field(schema, name)]
    }


def point_key(schema: StateSchema, where: Where) -> pa.RecordBatch | None:
    """The one key that *where* stands for; None if it leaves a key column open."""
    if not isinstance(where, Mapping) or set(where) != set(schema.key.names):
        return None
    columns = [_column(field, where[field.name]) for field in schema.key]
    return pa.RecordBatch.from_arrays(columns, schema=schema.key)


def matching(schema: StateSchema, where: Where) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What keeps those rows of a batch that match."""
    if where is None:
        return lambda batch: batch
    if isinstance(where, pc.Expression):
        return lambda batch: batch.filter(where)
    wanted = {name: _column(_field(schema, name), value)[0] for name, value in where.items()}

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        given = [pa.repeat(value, batch.num_rows) for value in wanted.values()]
        same = equal([batch.column(name) for name in wanted], given)
        return batch.filter(pa.array(same))

    return keep if wanted else lambda batch: batch


def _field(schema: StateSchema, name: str) -> pa.Field:
    if name not in schema.key.names:
        known = "a value column" if name in schema.value.names else "no column of this state"
        raise UsageError(
            f"{name[:80]!r} is {known}", advice=f"Its key columns: {', '.join(schema.key.names)}"
        )
    return schema.key.field(name)


def _column(field: pa.Field, value: Any) -> pa.Array:
    """One value as keys are stored."""
    try:
        if isinstance(value, pa.Scalar):
            value = value.cast(field.type) if value.type != field.type else value
            return normalise(pa.array([value.as_py()], field.type))
        return normalise(pa.array([value], field.type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _no_value(field, value) from error


def parse_value(field: pa.Field, text: str) -> pa.Scalar:
    """One value of a column as a person types it."""
    kind = field.type
    try:
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
            is_hex = text.startswith(HEX)
            return pa.scalar(bytes.fromhex(text[2:]) if is_hex else text.encode(), kind)
        if types.is_nested(kind):
            return pa.scalar(json.loads(text), kind)
        if types.is_timestamp(kind) and kind.tz is not None:
            return _at(text, kind)
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _no_value(field, text) from error


def _at(text: str, kind: pa.DataType) -> pa.Scalar:
    """A time without a zone is in UTC."""
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowException:
        return pa.scalar(f"{text}Z", pa.string()).cast(kind)


def _no_value(field: pa.Field, value: Any) -> UsageError:
    return UsageError(
        f"{str(value)[:80]!r} is not a value of the column {field.name!r}: {field.type}"
    )
