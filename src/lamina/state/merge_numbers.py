"""Merges of numbers: sum, count and bits, with Spark's overflow rules.

`sum` of integers is a long, as in Spark. Under ANSI (the default) a sum that does not fit is an
error; without it, it wraps. Intervals (Arrow durations) never wrap, as in Spark. Doubles are added
as IEEE says.

`sum` of decimals is added exactly and must fit the precision of its column (Spark: ten digits more
than the input, at most 38). Without ANSI a sum that does not fit becomes null and stays null; to
tell that from "no value yet" the state has a second column, as Spark's own buffer does: (sum,
is_empty), is_empty = no value was seen. A null sum that is not empty has overflowed. Under ANSI
that cannot last, and the second column may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Overflow, UsageError
from lamina.state.merge_function import Columns, Function, Longs, Step, choose

_DIGITS_MAX = 38
_EXACT = Context(prec=_DIGITS_MAX)


def _sum(step: Step) -> Sequence[pa.Array]:
    if len(step.fields) == 2:
        return _sum_with_is_empty(step)
    (field,), (old,), (new,) = step.fields, step.old, step.new
    if pa.types.is_decimal(field.type):
        total = _add_decimals(step, old, new)
    elif pa.types.is_floating(field.type):
        total = pc.add(old, new)
    else:
        wraps = not step.option("ansi", True) and pa.types.is_integer(field.type)
        total = pc.add(old, new) if wraps else add_checked("sum", field, old, new)
    return (pc.coalesce(total, old, new),)


def add_checked(function: str, field: pa.Field, old: pa.Array, new: pa.Array) -> pa.Array:
    try:
        return pc.add_checked(old, new)
    except pa.ArrowInvalid:
        raise _overflow(function, field, _count_overflows(old, new), len(new)) from None


def _count_overflows(old: pa.Array, new: pa.Array) -> int:
    left, right = (_longs(side) for side in (old, new))
    total = left + right  # numpy wraps without a word
    return int(np.count_nonzero(((left ^ total) & (right ^ total)) < 0))


def _longs(array: pa.Array) -> Longs:
    values: Longs = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return values


def _overflow(function: str, field: pa.Field, overflowed: int, rows: int) -> Overflow:
    return Overflow(
        f"{function} of column {field.name!r} does not fit {field.type}"
        f" in {overflowed} of {rows} rows"
    )


def _add_decimals(step: Step, old: pa.Array, new: pa.Array) -> pa.Array:
    """The exact sums; one that does not fit is an error under ANSI, else null."""
    field, kind = step.fields[0], step.fields[0].type
    if kind.precision == _DIGITS_MAX:  # Arrow's result has a digit more, and this one has no room
        wide = pa.decimal256(kind.precision, kind.scale)
        old, new = old.cast(wide), new.cast(wide)
    total = pc.add(old, new)
    most = _EXACT.create_decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
    too_big = _beyond(total, most)
    overflowed = pc.sum(too_big).as_py() or 0
    if overflowed and step.option("ansi", True):
        raise _overflow("sum", field, overflowed, len(new))
    if overflowed:
        total = pc.if_else(too_big, pa.scalar(None, total.type), total)
    return total.cast(kind)


def _beyond(total: pa.Array, most: Decimal) -> pa.BooleanArray:
    high, low = (pa.scalar(limit, total.type) for limit in (most, most.copy_negate()))
    return pc.or_(pc.greater(total, high), pc.less(total, low))


def _sum_with_is_empty(step: Step) -> Sequence[pa.Array]:
    """Spark's merge of (sum, isEmpty): an overflow on either side stays one."""
    old_empty, new_empty = (side[1].fill_null(True) for side in (step.old, step.new))
    old, new = (
        pc.if_else(empty, pa.scalar(None, step.fields[0].type), side[0])
        for empty, side in ((old_empty, step.old), (new_empty, step.new))
    )
    lost = pc.or_(
        pc.and_not(pc.is_null(old), old_empty),
        pc.and_not(pc.is_null(new), new_empty),
    )
    if step.option("ansi", True) and (count := pc.sum(lost).as_py()):
        raise _overflow("sum", step.fields[0], count, len(new))
    total = _add_decimals(step, old, new)
    total = choose(old_empty, new, choose(new_empty, old, total))
    return total, pc.and_(old_empty, new_empty)


def _check_sum(columns: Columns) -> None:
    columns.count(1, 2, what="one column, or a decimal sum and its is_empty")
    columns.each(
        0,
        _is_summable,
        what="what Spark's sum gives: bigint (int64), double, decimal128 or duration",
    )
    field = columns.fields[0]
    decimal = pa.types.is_decimal(field.type)
    if len(columns.fields) == 2:
        if not decimal:
            raise UsageError(f"sum of column {field.name!r} of type {field.type} has no is_empty")
        columns.each(1, pa.types.is_boolean, what="bool for is_empty")
    elif decimal and not columns.options.get("ansi", True):
        raise UsageError(
            f"sum of column {field.name!r} of type {field.type} without ANSI needs a second "
            f"column of type bool, is_empty: else an overflow looks like no value"
        )


def _is_summable(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_int64(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_duration(kind)
    )


def _count(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    return (add_checked("count", field, old.fill_null(0), new.fill_null(0)),)


def _check_count(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, pa.types.is_int64, what="int64")


def _bits(combine: Callable[[pa.Array, pa.Array], pa.Array]) -> Function:
    """Of two integers the bits that *combine* leaves; null is no value."""

    def apply(step: Step) -> Sequence[pa.Array]:
        (old,), (new,) = step.old, step.new
        return (pc.coalesce(combine(old, new), old, new),)

    return Function(apply, _check_bits, {})


def _check_bits(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, pa.types.is_signed_integer, what="signed integers")


NUMBERS = {
    "sum": Function(_sum, _check_sum, {"ansi": bool}),
    "count": Function(_count, _check_count, {}),
    "bit_and": _bits(pc.bit_wise_and),
    "bit_or": _bits(pc.bit_wise_or),
    "bit_xor": _bits(pc.bit_wise_xor),
}
