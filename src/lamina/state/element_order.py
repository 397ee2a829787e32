"""The order of the elements of lists: Spark's, as sort_array has it.

NaN is the greatest number and equal to itself, -0.0 equals 0.0, text and binary go by unsigned
bytes. Structs are compared field by field, and a null in them is the smallest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at

from lamina.state.merge_function import Longs, Mask

_MAGNITUDE = np.int64((1 << 63) - 1)


def in_order(values: pa.Array, groups: Longs, *, descending: bool) -> tuple[Longs, Mask]:
    """The rows of *values* by group, and in order within each; and where one is not as the last."""
    ranks = [~rank if descending else rank for rank in _ranks(values)]
    order = np.lexsort([*reversed(ranks), groups])
    differs = np.ones(len(order), np.bool_)
    if len(order):
        pairs = [column[order] for column in (groups, *ranks)]
        differs[1:] = np.logical_or.reduce([pair[1:] != pair[:-1] for pair in pairs])
    return order, differs


def has_order(kind: pa.DataType) -> bool:
    """Whether values of this type can be put in order here."""
    if at.is_struct(kind):
        return all(has_order(field.type) for field in kind)
    return any(fits(kind) for fits in (*_WHOLE, *_RANKED, at.is_boolean, _is_float))


def _ranks(values: pa.Array) -> Iterator[Longs]:
    """Numbers that compare as the values do, the most important ones first."""
    if values.null_count:
        yield values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    if at.is_struct(values.type):
        for field in values.flatten():
            yield from _ranks(field)
    elif _is_float(values.type):
        yield _bits(values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    elif at.is_boolean(values.type):
        yield values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    elif any(fits(values.type) for fits in _WHOLE):
        yield _whole(values)
    else:
        ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
        ranks = pc.if_else(values.is_valid(), ranks, 0)
        yield ranks.to_numpy(zero_copy_only=False).astype(np.int64)


def _bits(doubles: npt.NDArray[np.float64]) -> Longs:
    """The bits of doubles as whole numbers of the same order."""
    one = np.where(np.isnan(doubles), np.nan, doubles + 0.0)
    bits = one.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


def _whole(values: pa.Array) -> Longs:
    size = values.type.bit_width
    plain = (
        values.view(pa.int64() if size == 64 else pa.int32()) if _is_time(values.type) else values
    )
    found: Longs = plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _is_time(kind: pa.DataType) -> bool:
    return bool(at.is_temporal(kind))


def _is_float(kind: pa.DataType) -> bool:
    return bool(at.is_float32(kind) or at.is_float64(kind))


_WHOLE = (at.is_signed_integer, at.is_date, at.is_timestamp, at.is_time, at.is_duration)
_RANKED = (at.is_string, at.is_large_string, at.is_binary, at.is_large_binary, at.is_decimal128)
