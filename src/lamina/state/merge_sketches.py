"""Merges of sketches of Apache DataSketches, as Spark writes them.

`hll_union` merges what Spark's hll_sketch_agg writes, and writes what Spark's hll_union_agg does.
Two sketches of different sizes are refused, as in Spark, unless `allow_different_lg_k` is set; then
the smaller size is what remains.

`kll_union` does the same for quantiles, with sketches of kll_sketch_agg_double. Which values a full
sketch keeps is drawn by lot: two runs may differ, within the accuracy of the sketch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Corrupt, Unsupported, UsageError
from lamina.state.merge_function import Columns, Function, Step


def _hll_union(step: Step) -> Sequence[pa.Array]:
    return _unions("hll_union", step, _union_of_hlls)


def _kll_union(step: Step) -> Sequence[pa.Array]:
    return _unions("kll_union", step, _union_of_klls)


def _unions(
    function: str, step: Step, union: Callable[[Any, Step, bytes, bytes], bytes]
) -> Sequence[pa.Array]:
    (old,), (new,) = step.old, step.new
    both = pc.and_(pc.is_valid(old), pc.is_valid(new)).to_numpy(zero_copy_only=False)
    merged: list[bytes | None] = pc.coalesce(new, old).to_pylist()
    rows = np.flatnonzero(both).tolist()
    if rows:
        library = datasketches(function)
        for row in rows:  # no library merges sketches by the column
            merged[row] = union(library, step, old[row].as_py(), new[row].as_py())
    return (pa.array(merged, step.fields[0].type),)


def datasketches(function: str) -> Any:
    """The library of the extra `sketch`, imported when *function* first needs it."""
    try:
        return importlib.import_module("datasketches")
    except ImportError:
        raise Unsupported(
            f"{function} needs the package datasketches, and it is not installed",
            advice="Install the extra: pip install 'lamina[sketch]'",
        ) from None


def _union_of_hlls(library: Any, step: Step, old: bytes, new: bytes) -> bytes:
    name = step.fields[0].name
    left, right = (_read(library.hll_sketch, "an HLL", name, data) for data in (old, new))
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


def _union_of_klls(library: Any, step: Step, old: bytes, new: bytes) -> bytes:
    name = step.fields[0].name
    left, right = (_read(library.kll_doubles_sketch, "a KLL", name, data) for data in (old, new))
    left.merge(right)
    data: bytes = left.serialize()
    return data


def _read(kind: Any, what: str, name: str, data: bytes) -> Any:
    try:
        return kind.deserialize(data)
    except (ValueError, IndexError, RuntimeError) as error:
        raise Corrupt(f"the sketches of column {name!r}: not {what} sketch: {error}") from None


def _check(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(
        0, lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), what="binary"
    )
    datasketches(columns.function)


SKETCHES = {
    "hll_union": Function(_hll_union, _check, {"allow_different_lg_k": bool}),
    "kll_union": Function(_kll_union, _check, {}),
}
