"""Merges that choose one side: min, max, first_by, last_by, any, all and replace.

The order is Spark's: NaN is the greatest number and equal to itself, -0.0 equals 0.0, text and
binary go by unsigned bytes, false is before true. Null is no value and never wins against one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lamina.state.merge_function import Columns, Function, Step, choose

_ORDERED_TYPES = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_ORDERED = "numbers, decimals, text, binary, bool, dates, timestamps, times or durations"


def _min(step: Step) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    return (choose(_or_only_one(_before(new, old), old), new, old),)


def _max(step: Step) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    return (choose(_or_only_one(_before(old, new), old), new, old),)


def _or_only_one(new_wins: pa.BooleanArray, old: pa.Array) -> pa.BooleanArray:
    """*new_wins* is null where a side is: then the new one wins iff the old one is null."""
    return pc.coalesce(new_wins, pc.is_null(old))


def _before(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Whether left comes strictly before right; null if either is null."""
    before = pc.less(left, right)
    if pa.types.is_floating(left.type):
        return pc.or_(before, pc.and_not(pc.is_nan(right), pc.is_nan(left)))
    return before


def _check_extreme(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, _is_ordered, what=_ORDERED)


def _is_ordered(kind: pa.DataType) -> bool:
    return any(fits(kind) for fits in _ORDERED_TYPES)


def _first_by(step: Step) -> Sequence[pa.Array]:
    """The row with the smaller `by`; of two equal ones the old."""
    old, new = _ranks(step)
    new_wins = pc.coalesce(_before(new, old), pc.and_(pc.is_null(old), pc.is_valid(new)))
    return _whole_rows(step, new_wins)


def _last_by(step: Step) -> Sequence[pa.Array]:
    """The row with the larger `by`; of two equal ones the new."""
    old, new = _ranks(step)
    return _whole_rows(step, _or_only_one(pc.invert(_before(new, old)), old))


def _ranks(step: Step) -> tuple[pa.Array, pa.Array]:
    """The `by` of both sides; a row of nothing but null values has none under ignore_nulls."""
    if not step.option("ignore_nulls", False):
        return step.old[-1], step.new[-1]
    old, new = (_rank_of_values(side) for side in (step.old, step.new))
    return old, new


def _rank_of_values(side: Sequence[pa.Array]) -> pa.Array:
    *values, by = side
    some = pc.is_valid(values[0])
    for value in values[1:]:
        some = pc.or_(some, pc.is_valid(value))
    return pc.if_else(some, by, pa.scalar(None, by.type))


def _whole_rows(step: Step, new_wins: pa.BooleanArray) -> Sequence[pa.Array]:
    new_wins = pc.or_(new_wins, pc.invert(step.found))
    return [choose(new_wins, new, old) for old, new in zip(step.old, step.new, strict=True)]


def _check_by(columns: Columns) -> None:
    columns.count(2, what="the columns of the value, and last the one to order by")
    for index in range(len(columns.fields) - 1):
        columns.each(index, _can_be_chosen, what="any type but the views of text and binary")
    columns.each(-1, _is_ordered, what=f"{_ORDERED} to order by")


def _can_be_chosen(kind: pa.DataType) -> bool:
    return not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _any(step: Step) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    return (pc.coalesce(pc.or_(old, new), old, new),)


def _all(step: Step) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    return (pc.coalesce(pc.and_(old, new), old, new),)


def _check_bool(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, pa.types.is_boolean, what="bool")


def _replace(step: Step) -> Sequence[pa.Array]:
    return step.new


def _check_replace(columns: Columns) -> None:
    columns.count(1, what="at least one column")


ORDERED = {
    "replace": Function(_replace, _check_replace, {}, reads_old=False),
    "min": Function(_min, _check_extreme, {}),
    "max": Function(_max, _check_extreme, {}),
    "first_by": Function(_first_by, _check_by, {"ignore_nulls": bool}),
    "last_by": Function(_last_by, _check_by, {"ignore_nulls": bool}),
    "any": Function(_any, _check_bool, {}),
    "all": Function(_all, _check_bool, {}),
}
