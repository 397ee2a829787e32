"""Merges of collections: list_append, and hll_union over Apache DataSketches.

`list_append` is the old list and then the new one; null is no list, and the empty list is one.
With `limit` it keeps that many elements of each, the newest (`keep` = "last", the default) or the
oldest ("first").

`hll_union` merges what Spark's hll_sketch_agg writes, and writes what Spark's hll_union_agg does.
Two sketches of different sizes are refused, as in Spark, unless `allow_different_lg_k` is set; then
the smaller size is what remains.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Corrupt, Overflow, Unsupported, UsageError
from lamina.state.merge_function import Columns, Function, Longs, Step

_LIST_ELEMENTS_MAX = (1 << 31) - 1


def _list_append(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    old_start, old_size = _extents(old)
    new_start, new_size = _extents(new)
    skip_old, old_size, skip_new, new_size = _limited(step, old_size, new_size)
    values = pa.concat_arrays([old.values, new.values])
    starts = np.column_stack((old_start + skip_old, new_start + skip_new + len(old.values)))
    taken = values.take(pa.array(_ranges(starts, np.column_stack((old_size, new_size)))))
    return (_lists(field, old_size + new_size, taken, pc.and_(pc.is_null(old), pc.is_null(new))),)


def _extents(lists: pa.Array) -> tuple[Longs, Longs]:
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


def _ranges(starts: Longs, sizes: Longs) -> Longs:
    """start, start+1, ... for every start, one range after the other."""
    flat = sizes.ravel()
    ends = np.cumsum(flat)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts.ravel() - (ends - flat), flat) + np.arange(total, dtype=np.int64)


def _lists(field: pa.Field, sizes: Longs, values: pa.Array, null: pa.BooleanArray) -> pa.Array:
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    large = pa.types.is_large_list(field.type)
    if not large and len(values) > _LIST_ELEMENTS_MAX:
        raise Overflow(
            f"list_append of column {field.name!r} has {len(values)} elements in {len(sizes)} rows",
            advice="Give list_append a limit, or make the column a large_list",
        )
    kind = pa.LargeListArray if large else pa.ListArray
    ends = pa.array(offsets, pa.int64() if large else pa.int32())
    return kind.from_arrays(ends, values, type=field.type, mask=null)


def _check_list(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(
        0, lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind), what="list columns"
    )
    if columns.options.get("keep", "last") not in ("first", "last"):
        raise UsageError(f"list_append keeps 'first' or 'last', not {columns.options['keep']!r}")
    if int(columns.options.get("limit", 1)) < 1:
        raise UsageError(f"list_append has a limit of at least 1, not {columns.options['limit']}")
    if "keep" in columns.options and "limit" not in columns.options:
        raise UsageError("list_append without a limit keeps everything: leave `keep` out")


def _hll_union(step: Step) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    both = pc.and_(pc.is_valid(old), pc.is_valid(new)).to_numpy(zero_copy_only=False)
    merged: list[bytes | None] = pc.coalesce(new, old).to_pylist()
    rows = np.flatnonzero(both).tolist()
    if rows:
        library = datasketches()
        for row in rows:  # no library merges sketches by the column
            merged[row] = _union(library, step, old[row].as_py(), new[row].as_py())
    return (pa.array(merged, step.fields[0].type),)


def datasketches() -> Any:
    """The library of the extra `sketch`, imported when it is first needed."""
    try:
        return importlib.import_module("datasketches")
    except ImportError:
        raise Unsupported(
            "hll_union needs the package datasketches, and it is not installed",
            advice="Install the extra: pip install 'lamina[sketch]'",
        ) from None


def _union(library: Any, step: Step, old: bytes, new: bytes) -> bytes:
    name = step.fields[0].name
    left, right = (_read_sketch(library, name, data) for data in (old, new))
    sizes = left.lg_config_k, right.lg_config_k
    if sizes[0] != sizes[1] and not step.option("allow_different_lg_k", False):
        raise UsageError(
            f"hll_union of column {name!r}: a sketch of lg_k {sizes[0]} and one of {sizes[1]}",
            advice="Make all with one lgConfigK, or set allow_different_lg_k",
        )
    union = library.hll_union(min(sizes))
    union.update(left)
    union.update(right)
    data: bytes = union.get_result(library.tgt_hll_type.HLL_8).serialize_updatable()
    return data


def _read_sketch(library: Any, name: str, data: bytes) -> Any:
    try:
        return library.hll_sketch.deserialize(data)
    except (ValueError, IndexError, RuntimeError) as error:
        raise Corrupt(f"hll_union of column {name!r}: not an HLL sketch: {error}") from None


def _check_hll(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(
        0, lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), what="binary"
    )
    datasketches()


COLLECTIONS = {
    "list_append": Function(_list_append, _check_list, {"limit": int, "keep": str}),
    "hll_union": Function(_hll_union, _check_hll, {"allow_different_lg_k": bool}),
}
