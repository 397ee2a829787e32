"""Aggregates in Python that pipelines of these tests call, each with a model in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lamina

Values = Mapping[str, Any]


class GeometricMean:
    """Of the values above zero; null without any."""

    state: ClassVar = {"logs": pa.float64(), "n": pa.int64()}

    def partial(self, rows: lamina.Rows) -> Values:
        x = rows.numpy("x", math.nan)
        is_above = x > 0
        logs = np.log(x, where=is_above, out=np.zeros(len(x)))
        first = rows.starts[:-1]
        n = np.add.reduceat(is_above, first, dtype=np.int64)
        return {"logs": np.add.reduceat(logs, first), "n": n}

    def merge(self, old: lamina.Columns, new: lamina.Columns) -> Values:
        return {name: pc.add(old[name], new[name]) for name in ("logs", "n")}

    def finish(self, state: lamina.Columns) -> pa.Array:
        n = state.numpy("n")
        return pa.array(np.exp(state.numpy("logs") / np.maximum(n, 1)), mask=n == 0)


class WeightedSum:
    """Of whole numbers, exact; a row with a null does not count. Null without any."""

    state: ClassVar = {"total": pa.int64(), "n": pa.int64()}

    def partial(self, rows: lamina.Rows) -> Values:
        product = pc.multiply_checked(rows["v"], rows["w"])
        values = pc.fill_null(product, 0).to_numpy(zero_copy_only=False)
        there = product.is_valid().to_numpy(zero_copy_only=False)
        total, n = np.zeros(rows.keys, np.int64), np.zeros(rows.keys, np.int64)
        np.add.at(total, rows.key_of, values)
        np.add.at(n, rows.key_of, there)
        return {"n": n, "total": total}

    def merge(self, old: lamina.Columns, new: lamina.Columns) -> pa.RecordBatch:
        columns = [pc.add_checked(old[name], new[name]) for name in ("total", "n")]
        return pa.RecordBatch.from_arrays(columns, names=["total", "n"])

    def finish(self, state: lamina.Columns) -> pa.Array:
        return pc.if_else(pc.equal(state["n"], 0), pa.scalar(None, pa.int64()), state["total"])


class Longest:
    """The longest text; of equals the first by its bytes."""

    state: ClassVar = {"text": pa.string()}

    def partial(self, rows: lamina.Rows) -> Values:
        table = pa.table({"text": rows["s"], "key": rows.key_of, "length": _length(rows["s"])})
        order = [("key", "ascending"), ("length", "descending"), ("text", "ascending")]
        ordered = table.take(pc.sort_indices(table, order))
        first = np.searchsorted(ordered["key"].to_numpy(), np.arange(rows.keys))
        return {"text": ordered["text"].take(pa.array(first))}

    def merge(self, old: lamina.Columns, new: lamina.Columns) -> Values:
        mine, theirs = old["text"], new["text"]
        longer = pc.greater(_length(mine), _length(theirs))
        same = pc.equal(_length(mine), _length(theirs))
        wins = pc.or_(longer, pc.and_(same, pc.fill_null(pc.less(mine, theirs), True)))
        return {"text": pc.if_else(wins, mine, theirs)}

    def finish(self, state: lamina.Columns) -> pa.Array:
        return state["text"]


class Tally:
    """How many values are null, NaN, and a zero below zero: nothing of a value is lost."""

    state: ClassVar = {"nulls": pa.int64(), "others": pa.list_(pa.int64(), 2)}

    def partial(self, rows: lamina.Rows) -> Values:
        x, nulls = rows.numpy("x", 1.0), rows["x"].is_null().to_numpy(zero_copy_only=False)
        first = rows.starts[:-1]
        kinds = [np.isnan(x), (x == 0) & np.signbit(x)]
        counts = [np.add.reduceat(each, first, dtype=np.int64) for each in kinds]
        others = pa.array(np.column_stack(counts).ravel())
        return {
            "nulls": np.add.reduceat(nulls, first, dtype=np.int64),
            "others": pa.FixedSizeListArray.from_arrays(others, 2),
        }

    def merge(self, old: lamina.Columns, new: lamina.Columns) -> Values:
        both = pc.add(old["others"].flatten(), new["others"].flatten())
        others = pa.FixedSizeListArray.from_arrays(both, 2)
        return {"nulls": pc.add(old["nulls"], new["nulls"]), "others": others}

    def finish(self, state: lamina.Columns) -> pa.Array:
        pairs = state["others"].flatten().to_numpy().reshape(-1, 2)
        columns = [state["nulls"], pa.array(pairs[:, 0]), pa.array(pairs[:, 1])]
        return pa.StructArray.from_arrays(columns, names=["nulls", "nans", "zeros"])


def _length(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.utf8_length(texts), -1)


def geometric_mean(values: Sequence[float | None]) -> float | None:
    above = [math.log(x) for x in values if x is not None and x > 0]
    return math.exp(math.fsum(above) / len(above)) if above else None


def weighted_sum(pairs: Sequence[tuple[int | None, int | None]]) -> int | None:
    products = [v * w for v, w in pairs if v is not None and w is not None]
    return sum(products) if products else None


def longest(texts: Sequence[str | None]) -> str | None:
    there = [text for text in texts if text is not None]
    return min(there, key=lambda text: (-len(text), text.encode())) if there else None


def tally(values: Sequence[float | None]) -> dict[str, int] | None:
    if not values:
        return None
    there = [x for x in values if x is not None]
    return {
        "nulls": len(values) - len(there),
        "nans": sum(map(math.isnan, there)),
        "zeros": sum(x == 0 and math.copysign(1, x) < 0 for x in there),
    }


MODULE = "tests.spark.python_aggregates"
AGGREGATES: Mapping[str, tuple[str, str, str, Callable[..., Any]]] = {
    "gmean": ("x DOUBLE", "DOUBLE", "GeometricMean", geometric_mean),
    "wsum": ("v BIGINT, w BIGINT", "BIGINT", "WeightedSum", weighted_sum),
    "longest": ("s STRING", "STRING", "Longest", longest),
    "tally": ("x DOUBLE", "STRUCT<nulls: BIGINT, nans: BIGINT, zeros: BIGINT>", "Tally", tally),
}
"""By name: parameters, type, class, and the same in plain Python."""

DECLARED = "".join(
    f"CREATE AGGREGATE FUNCTION {name}({given}) RETURNS {returns} LANGUAGE PYTHON"
    f" AS '{MODULE}:{code}';\n"
    for name, (given, returns, code, _) in AGGREGATES.items()
)
