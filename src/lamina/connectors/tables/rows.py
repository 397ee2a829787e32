"""Rows that the driver reads, as a Parquet file in the columns that were declared.

A column is found by its name, without case. Its type may be narrower than the declared one, never
wider: a value that does not fit would be a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lamina.errors import Refused

PART = "part.parquet"
_FAMILIES = (
    pt.is_integer,
    pt.is_floating,
    pt.is_decimal,
    pt.is_timestamp,
    pt.is_date,
    pt.is_boolean,
    lambda kind: pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind),
    lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind),
)


def write_rows(
    table: str, batches: Iterable[pa.RecordBatch], found: pa.Schema, wanted: pa.Schema, folder: Path
) -> None:
    """All *batches*, which have the columns *found*, as one file; Refused at one that is not."""
    places = [_place(table, found, field) for field in wanted]
    with pq.ParquetWriter(folder / PART, wanted) as writer:
        for batch in batches:
            arrays = [
                cast_to(table, batch.column(place), field)
                for place, field in zip(places, wanted, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=wanted))


def _place(table: str, found: pa.Schema, wanted: pa.Field) -> int:
    names = [name.lower() for name in found.names]
    if names.count(wanted.name.lower()) != 1:
        raise Refused(
            f"the table {table!r} has {names.count(wanted.name.lower())} columns that are called "
            f"{wanted.name!r}",
            advice=f"It has {', '.join(found.names)}",
        )
    place = names.index(wanted.name.lower())
    kind = found.field(place).type
    if not _fits(kind, wanted.type):
        raise Refused(
            f"the column {wanted.name!r} of the table {table!r} is {kind}, and {wanted.type} in "
            "the pipeline",
            advice="Give the column the type that it has in the table",
        )
    return place


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type has its place in the other; that of a list, in Arrow's cast."""
    if kind == wanted:
        return True
    if pt.is_nested(kind) or pt.is_nested(wanted):
        return bool(pt.is_nested(kind) and pt.is_nested(wanted))
    if not any(of(kind) and of(wanted) for of in _FAMILIES):
        return False
    if pt.is_integer(kind) or pt.is_floating(kind):
        return bool(kind.bit_width <= wanted.bit_width)
    if pt.is_decimal(kind):
        whole = kind.precision - kind.scale <= wanted.precision - wanted.scale
        return bool(whole and kind.scale <= wanted.scale)
    return not pt.is_timestamp(kind) or (kind.tz is None) == (wanted.tz is None)


def cast_to(table: str, values: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return values if values.type == wanted.type else values.cast(wanted.type)
    except pa.ArrowInvalid as error:
        raise Refused(
            f"a value of the column {wanted.name!r} of the table {table!r} is not {wanted.type}: "
            f"{error}"
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise Refused(
            f"the column {wanted.name!r} of the table {table!r} is {values.type}, and "
            f"{wanted.type} in the pipeline"
        ) from error
