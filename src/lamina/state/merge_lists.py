"""Merges of lists: list_append and list_sorted. Null is no list, and the empty list is one.

`list_append` is the old list and then the new one. With `limit` it keeps that many elements of
each, the newest (`keep` = "last", the default) or the oldest ("first").

`list_sorted` is the elements of both in Spark's order (element_order.py), or in the opposite one if
`descending`. With `distinct` equal ones are there once, with `limit` only the first so many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Overflow, UsageError
from lamina.state.element_order import has_order, in_order
from lamina.state.merge_function import Columns, Function, Longs, Step

_LIST_ELEMENTS_MAX = (1 << 31) - 1


def _list_append(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    old_start, old_size = extents(old)
    new_start, new_size = extents(new)
    skip_old, old_size, skip_new, new_size = _limited(step, old_size, new_size)
    values = pa.concat_arrays([old.values, new.values])
    starts = np.column_stack((old_start + skip_old, new_start + skip_new + len(old.values)))
    taken = values.take(pa.array(ranges(starts, np.column_stack((old_size, new_size)))))
    return (lists(field, old_size + new_size, taken, pc.and_(pc.is_null(old), pc.is_null(new))),)


def _list_sorted(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    old_start, old_size = extents(old)
    new_start, new_size = extents(new)
    values = pa.concat_arrays([old.values, new.values])
    starts = np.column_stack((old_start, new_start + len(old.values)))
    sizes = old_size + new_size
    taken = values.take(pa.array(ranges(starts, np.column_stack((old_size, new_size)))))
    rows = np.repeat(np.arange(len(sizes)), sizes)
    order, is_new = in_order(taken, rows, descending=step.option("descending", False))
    if step.option("distinct", False):
        order = order[is_new]
        sizes = np.bincount(rows[order], minlength=len(sizes))
    if (limit := step.option("limit", None)) is not None:
        kept = np.minimum(sizes, limit)
        order = order[ranges(np.cumsum(sizes) - sizes, kept)]
        sizes = kept
    nothing = pc.and_(pc.is_null(old), pc.is_null(new))
    return (lists(field, sizes, taken.take(pa.array(order)), nothing),)


def extents(lists: pa.Array) -> tuple[Longs, Longs]:
    """Where each list begins in `lists.values`, and its size; a null list has none."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    if lists.null_count:
        sizes[lists.is_null().to_numpy(zero_copy_only=False)] = 0
    return offsets[:-1], sizes


def _limited(step: Step, old: Longs, new: Longs) -> tuple[Longs, Longs, Longs, Longs]:
    """How many to skip and then to keep of each old and of each new list."""
    none = np.zeros_like(old)
    limit = step.option("limit", None)
    if limit is None:
        return none, old, none, new
    if step.option("keep", "last") == "first":
        kept_old = np.minimum(old, limit)
        return none, kept_old, none, np.minimum(new, limit - kept_old)
    kept_new = np.minimum(new, limit)
    kept_old = np.minimum(old, limit - kept_new)
    return old - kept_old, kept_old, new - kept_new, kept_new


def ranges(starts: Longs, sizes: Longs) -> Longs:
    """start, start+1, ... for every start, one range after the other."""
    flat = sizes.ravel()
    ends = np.cumsum(flat)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts.ravel() - (ends - flat), flat) + np.arange(total, dtype=np.int64)


def lists(field: pa.Field, sizes: Longs, values: pa.Array, null: pa.BooleanArray) -> pa.Array:
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    large = pa.types.is_large_list(field.type)
    if not large and len(values) > _LIST_ELEMENTS_MAX:
        raise Overflow(
            f"the list of column {field.name!r} has {len(values)} elements in {len(sizes)} rows",
            advice="Give the merge a limit, or make the column a large_list",
        )
    kind = pa.LargeListArray if large else pa.ListArray
    ends = pa.array(offsets, pa.int64() if large else pa.int32())
    return kind.from_arrays(ends, values, type=field.type, mask=null)


def _check_list(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, _is_list, what="list columns")
    if int(columns.options.get("limit", 1)) < 1:
        limit = columns.options["limit"]
        raise UsageError(f"{columns.function} has a limit of at least 1, not {limit}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _check_append(columns: Columns) -> None:
    _check_list(columns)
    if columns.options.get("keep", "last") not in ("first", "last"):
        raise UsageError(f"list_append keeps 'first' or 'last', not {columns.options['keep']!r}")
    if "keep" in columns.options and "limit" not in columns.options:
        raise UsageError("list_append without a limit keeps everything: leave `keep` out")


def _check_sorted(columns: Columns) -> None:
    _check_list(columns)
    columns.each(
        0, lambda kind: has_order(kind.value_type), what="lists of ordered values, or of structs"
    )


LISTS = {
    "list_append": Function(_list_append, _check_append, {"limit": int, "keep": str}),
    "list_sorted": Function(
        _list_sorted, _check_sorted, {"limit": int, "descending": bool, "distinct": bool}
    ),
}
