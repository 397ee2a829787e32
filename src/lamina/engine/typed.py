"""Columns of Spark's in the types that a plan has for them: the same values, or an error."""

from __future__ import annotations

import pyarrow as pa

from lamina.errors import Refused


def as_planned(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """*column* as *kind*, which may spell the same type in another way.

    Arrow casts structs by the names of their fields, and has NULL for those that it does not find.
    """
    if column.type == kind:
        return column
    if _field_names(column.type) != _field_names(kind):
        message = f"rows of the type {column.type} have come where the plan has {kind}"
        raise Refused(message, advice="Report this: nothing was written")
    return column.cast(kind)


def _field_names(kind: pa.DataType) -> list[object]:
    """The names of structs' fields at every depth, in their order."""
    inner = [kind.field(number) for number in range(kind.num_fields)]
    names = [field.name for field in inner] if pa.types.is_struct(kind) else []
    return [names, *(_field_names(field.type) for field in inner)]
