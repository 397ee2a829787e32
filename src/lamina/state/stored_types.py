"""Types as state keeps them: what differs only in spelling is one type.

A session's time zone, large strings, the name of a list's items, and what a plan happens to know
about nulls inside of a value are part of an Arrow type, and change while the data stays. If state
kept them, such a change would look like another key type, and be refused (R9).
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as at

_SPELLINGS = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The one spelling of a type."""
    if at.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC" if kind.tz else None)
    if at.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type)) for field in kind])
    if at.is_list(kind) or at.is_large_list(kind):
        return pa.list_(pa.field("item", stored_type(kind.value_type)))
    if at.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", stored_type(kind.value_type)), kind.list_size)
    return _SPELLINGS.get(kind, kind)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns in the spelling of state; whether a column may be null stays."""
    if not any(stored_type(field.type) != field.type for field in schema):
        return schema
    return pa.schema([pa.field(f.name, stored_type(f.type), f.nullable) for f in schema])


def as_stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the spelling of *kind*, if it is of that type at all; else as it is."""
    if column.type == kind or stored_type(column.type) != kind:
        return column
    return column.cast(kind)
