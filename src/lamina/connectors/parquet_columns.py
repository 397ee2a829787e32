"""Columns of a Parquet file in the types that a pipeline declares, as strictly as Spark reads them.

A smaller type is read into a larger one of its kind; a column that is missing is null; anything
else is refused. Nothing is rounded, cut or guessed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lamina.errors import Refused


def fitted(batch: pa.RecordBatch, wanted: pa.Schema, where: str) -> list[pa.Array]:
    """The *wanted* columns of a batch, by their names in any case."""
    at = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    if _has_twins(pa.struct(list(batch.schema))):
        advice = "Case does not tell columns apart: write the file again with other names"
        raise Refused("a file has two columns of one name", where=where, advice=advice)
    columns: list[pa.Array] = []
    for field in wanted:
        number = at.get(field.name.lower())
        if number is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(number)
        if not fits(column.type, field.type):
            raise Refused(
                f"the column {field.name!r} is {column.type} in a file, and {field.type} in the "
                "pipeline",
                where=where,
                advice="Give the column the type of the files, or write the file again",
            )
        columns.append(_as(column, field.type))
    return columns


def fits(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a file's type is one of the pipeline's."""
    if have == wanted:
        return True
    if types.is_dictionary(have):
        return fits(have.value_type, wanted)
    if types.is_integer(have):
        return _integer_fits(have, wanted)
    return _number_fits(have, wanted) or _nested_fits(have, wanted)


def _number_fits(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Or a time, or a text."""
    if types.is_floating(have) and types.is_floating(wanted):
        return bool(have.bit_width <= wanted.bit_width)
    if types.is_decimal(have) and types.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= have.precision - have.scale
        return bool(whole and wanted.scale >= have.scale)
    if types.is_timestamp(have) and types.is_timestamp(wanted):
        return wanted.tz is not None or have.tz is None  # an instant has no local time of its own
    return _is_bytes(have) and _is_bytes(wanted)


def _integer_fits(have: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_float64(wanted):
        return bool(have.bit_width <= 32)
    if not types.is_integer(wanted):
        return False
    needed = have.bit_width + types.is_unsigned_integer(have)
    return bool(types.is_signed_integer(wanted) and needed <= wanted.bit_width)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _nested_fits(have: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_struct(have) and types.is_struct(wanted):
        inner = {field.name.lower(): field.type for field in have}
        return all(
            fits(inner[field.name.lower()], field.type)
            for field in wanted
            if field.name.lower() in inner
        )
    if types.is_map(have) and types.is_map(wanted):
        return fits(have.key_type, wanted.key_type) and fits(have.item_type, wanted.item_type)
    if _is_list(have) and _is_list(wanted):
        return fits(have.value_type, wanted.value_type)
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _has_twins(kind: pa.DataType) -> bool:
    """Whether fields of a struct, at any depth, are told apart by case only."""
    inner = [kind.field(number) for number in range(kind.num_fields)]
    names = {field.name.lower() for field in inner}
    return len(names) < len(inner) or any(_has_twins(field.type) for field in inner)


def _as(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values; a cast that would change one is an error of Arrow's.

    Arrow casts structs by the exact names of their fields, and has NULL for those that it does not
    find: it is never given one, at no depth.
    """
    if column.type == wanted:
        return column
    if types.is_dictionary(column.type):
        return _as(column.dictionary_decode(), wanted)
    if types.is_struct(wanted):
        return _as_struct(column, wanted)
    if types.is_map(wanted):
        parts = pa.struct([column.type.key_field, column.type.item_field])
        column = column.view(pa.list_(parts))
        entries, missing = column.flatten(), column.is_null()
        keys = _as(pc.struct_field(entries, 0), wanted.key_type)
        items = _as(pc.struct_field(entries, 1), wanted.item_type)
        offsets = _offsets(column, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=missing)
    if _is_list(wanted):
        whole, kind = (
            (pa.LargeListArray, pa.int64())
            if types.is_large_list(wanted)
            else (pa.ListArray, pa.int32())
        )
        items = _as(column.flatten(), wanted.value_type)
        offsets = _offsets(column, kind)
        return whole.from_arrays(offsets, items, type=wanted, mask=column.is_null())
    return column.cast(wanted)


def _as_struct(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    at = {field.name.lower(): number for number, field in enumerate(column.type)}
    inner = [
        _as(pc.struct_field(column, at[field.name.lower()]), field.type)
        if field.name.lower() in at
        else pa.nulls(len(column), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(inner, fields=list(wanted), mask=column.is_null())


def _offsets(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Where each list begins among the flattened ones, whatever part of another array it is."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), kind)
