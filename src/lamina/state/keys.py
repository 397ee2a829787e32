"""Keys as they are stored, compared and ordered.

The canonical bytes of a key are part of the file format: rows of a run with equal slots are ordered
by them, as unsigned bytes. All columns follow each other, each value as

null      00
word      01, then the value as a little-endian word of 4 or 8 bytes
bytes     01, the length as a little-endian word of 8 bytes, then the bytes
struct    01, then its fields in order, each in this way
list      01, the count of items as a little-endian word of 8 bytes, then each item in this way

What is a word and what is bytes, by type, is the table of key_columns.py. So a timestamp is its
microseconds whatever its unit, -0.0 is 0.0, a NaN is the one NaN, and a dictionary is its values.
Two keys of the same types have the same bytes if and only if they are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at

from lamina.errors import UsageError
from lamina.state.hashing import check_keys
from lamina.state.key_columns import (
    DOUBLE_NAN_BITS,
    FLOAT_NAN_BITS,
    Bytes,
    List,
    Part,
    Sizes,
    Words,
    fixed_values,
    list_bounds,
    null_flags,
    take_apart,
)

BLOCK_ROWS: Final = 1 << 14
LENGTH_SIZE: Final = 8
NULL, PRESENT = 0, 1

Flags: TypeAlias = NDArray[np.bool_]
Octets: TypeAlias = NDArray[np.uint8]


def normalise(column: pa.Array) -> pa.Array:
    """The column as a key is stored: dictionaries decoded, no -0.0, one NaN; nested ones too.

    Returns the same object when there is nothing to change.
    """
    kind = column.type
    if at.is_dictionary(kind):
        return normalise(column.dictionary_decode())
    if at.is_floating(kind):
        return _normal_floats(column)
    if at.is_struct(kind) and _may_change(kind):
        return _normal_struct(column)
    if at.is_nested(kind) and _may_change(kind):
        return _normal_list(column)
    return column


def canonical(columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    """The canonical bytes of every row; the layout is at the top of this module."""
    rows = check_keys(columns)
    blocks = [
        _canonical_block([take_apart(column.slice(start, BLOCK_ROWS)) for column in columns])
        for start in range(0, max(rows, 1), BLOCK_ROWS)
    ]
    return pa.concat_arrays(blocks)


def equal(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Flags:
    """Whether the keys of a row are equal, for every row of two normalised sets of columns.

    Here null equals null, and NaN equals NaN.
    """
    rows = check_keys(left)
    if rows != check_keys(right) or [c.type for c in left] != [c.type for c in right]:
        raise UsageError("keys to compare have the same column types and row counts")
    same = np.ones(rows, np.bool_)
    for mine, theirs in zip(left, right, strict=True):
        same &= _equal_columns(mine, theirs)
    return same


# --- normalise


def _may_change(kind: pa.DataType) -> bool:
    if at.is_nested(kind):
        return any(_may_change(kind.field(i).type) for i in range(kind.num_fields))
    return bool(at.is_floating(kind) or at.is_dictionary(kind))


def _normal_floats(column: pa.Array) -> pa.Array:
    single = at.is_float32(column.type)
    values = fixed_values(column, np.float32 if single else np.float64)
    bits = values.view(np.uint32 if single else np.uint64)
    nan = FLOAT_NAN_BITS if single else DOUBLE_NAN_BITS
    minus_zero = bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))
    zeros, nans = bits == minus_zero, np.isnan(values) & (bits != nan)
    nulls = null_flags(column)
    changes = zeros | nans if nulls is None else (zeros | nans) & ~nulls
    if not changes.any():
        return column
    fixed = np.where(zeros, bits.dtype.type(0), np.where(nans, nan, bits)).view(values.dtype)
    return pa.array(fixed, column.type, mask=nulls, from_pandas=False)


def _normal_struct(column: pa.StructArray) -> pa.Array:
    before = [column.field(i) for i in range(column.type.num_fields)]
    after = [normalise(field) for field in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return column
    fields = [f.with_type(a.type) for f, a in zip(column.type, after, strict=True)]
    return pa.StructArray.from_arrays(after, fields=fields, mask=_mask(column))


def _normal_list(column: pa.Array) -> pa.Array:
    before, starts, _ = list_bounds(column)
    items = normalise(before)
    if items is before:
        return column
    field = column.type.value_field.with_type(items.type)
    mask = _mask(column)
    if at.is_fixed_size_list(column.type):
        kind = pa.list_(field, column.type.list_size)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    bounds = np.append(starts, len(before))
    if at.is_large_list(column.type):
        return pa.LargeListArray.from_arrays(bounds, items, type=pa.large_list(field), mask=mask)
    offsets = bounds.astype(np.int32)
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(field), mask=mask)


def _mask(column: pa.Array) -> pa.Array | None:
    nulls = null_flags(column)
    return None if nulls is None else pa.array(nulls)


# --- canonical


def _canonical_block(parts: list[Part]) -> pa.LargeBinaryArray:
    sizes = [_sizes(part) for part in parts]
    bounds = _bounds(np.sum(sizes, axis=0))
    out = np.empty(int(bounds[-1]), np.uint8)
    places = bounds[:-1]
    for part, size in zip(parts, sizes, strict=True):
        _write(part, out, places)
        places = places + size
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(parts[0]), buffers)


def _sizes(part: Part) -> Sizes:
    """How many bytes every row takes."""
    if isinstance(part, Words):
        sizes = np.full(len(part), 1 + part.values.dtype.itemsize, np.int64)
    elif isinstance(part, Bytes):
        sizes = part.lengths + (1 + LENGTH_SIZE)
    elif isinstance(part, List):
        _, item_bounds = _items(part)
        sizes = np.diff(item_bounds[_bounds(part.lengths)]) + (1 + LENGTH_SIZE)
    else:
        sizes = sum((_sizes(field) for field in part.fields), np.ones(len(part), np.int64))
    return sizes if part.nulls is None else np.where(part.nulls, 1, sizes)


def _write(part: Part, out: Octets, places: Sizes) -> None:
    """Write every row to its place in *out*."""
    nulls = part.nulls
    if nulls is not None:
        out[places[nulls]] = NULL
        part, places = part.take(~nulls), places[~nulls]
    out[places] = PRESENT
    places = places + 1
    if isinstance(part, Words):
        _write_words(part.values, out, places)
    elif isinstance(part, Bytes):
        _write_words(part.lengths, out, places)
        sources = _ranges(part.starts, part.lengths)
        out[_ranges(places + LENGTH_SIZE, part.lengths)] = part.data[sources]
    elif isinstance(part, List):
        _write_words(part.lengths, out, places)
        _write_items(part, out, places + LENGTH_SIZE)
    else:
        for field in part.fields:
            _write(field, out, places)
            places = places + _sizes(field)


def _write_words(words: NDArray[Any], out: Octets, places: Sizes) -> None:
    size = words.dtype.itemsize
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), size)
    out[places[:, None] + np.arange(size)] = octets


def _write_items(part: List, out: Octets, places: Sizes) -> None:
    items, item_bounds = _items(part)
    firsts = item_bounds[_bounds(part.lengths)[:-1]]
    _write(items, out, item_bounds[:-1] + np.repeat(places - firsts, part.lengths))


def _items(part: List) -> tuple[Part, Sizes]:
    """The items of all rows, one after another, and where each would start if all were joined."""
    items = part.items.take(_ranges(part.starts, part.lengths))
    return items, _bounds(_sizes(items))


def _bounds(sizes: Sizes) -> Sizes:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _ranges(starts: Sizes, lengths: Sizes) -> Sizes:
    """starts[0], starts[0] + 1, ... for lengths[0] numbers, then the same for the next row."""
    bounds = _bounds(lengths)
    return np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])


# --- equal


def _equal_columns(left: pa.Array, right: pa.Array) -> Flags:
    if left.null_count == 0 and right.null_count == 0:
        if (dtype := _comparable(left.type)) is not None:
            return _equal_values(fixed_values(left, dtype), fixed_values(right, dtype))
        if _has_equal_kernel(left.type):
            return _as_flags(pc.equal(left, right))
    elif _has_equal_kernel(left.type):
        values = pc.fill_null(pc.equal(left, right), False)
        return _as_flags(pc.or_(values, pc.and_(left.is_null(), right.is_null())))
    return _as_flags(pc.equal(canonical([left]), canonical([right])))


def _comparable(kind: pa.DataType) -> Any:
    """The numpy type in which values of *kind* can be compared, if there is one."""
    if at.is_integer(kind) or at.is_floating(kind):
        return kind.to_pandas_dtype()
    if at.is_temporal(kind):
        return np.int32 if kind.bit_width == 32 else np.int64
    return None


def _equal_values(left: NDArray[Any], right: NDArray[Any]) -> Flags:
    same: Flags = left == right
    if left.dtype.kind == "f":
        same |= np.isnan(left) & np.isnan(right)
    return same


def _has_equal_kernel(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            at.is_boolean,
            at.is_integer,
            at.is_temporal,
            at.is_string,
            at.is_large_string,
            at.is_binary,
            at.is_large_binary,
            at.is_fixed_size_binary,
            at.is_decimal128,
        )
    )


def _as_flags(answers: pa.BooleanArray) -> Flags:
    flags: Flags = answers.to_numpy(zero_copy_only=False)
    return flags
