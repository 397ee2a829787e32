"""Against the live Spark: partial aggregates of epochs, merged, equal its batch result."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import Overflow
from lamina.state.merge import Merge, check_merges, merge_rows

EPOCHS, KEYS, ROWS = 5, 12, 1500
DDL = (
    "epoch int, k int, i int, l bigint, m decimal(12,2), d double, n double, f float, s string, "
    "x binary, y date, t timestamp, b boolean, u bigint"
)
EPOCH_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# column: (partial aggregate in Spark SQL, merge function); the same SQL over all rows is the truth
SINGLE = {
    "sum_i": ("sum(i)", "sum"),
    "sum_l": ("sum(l)", "sum"),
    "sum_m": ("sum(m)", "sum"),
    "count_all": ("count(*)", "count"),
    "count_i": ("count(i)", "count"),
    "any_b": ("bool_or(b)", "any"),
    "all_b": ("bool_and(b)", "all"),
    **{
        f"{function}_{column}": (f"{function}({column})", function)
        for function in ("min", "max")
        for column in "ilndfmsxytb"
    },
}


def rows(seed: int) -> list[tuple[Any, ...]]:
    """Random rows: every key misses some epochs, every column has nulls, key 0 has nothing else."""
    rng = random.Random(seed)
    unique = list(range(ROWS))
    rng.shuffle(unique)
    return [_row(rng, by) for by in unique]


def _row(rng: random.Random, by: int) -> tuple[Any, ...]:
    key = rng.randrange(KEYS)

    def maybe(value: Any) -> Any:
        return None if key == 0 or rng.random() < 0.2 else value

    return (
        rng.choice([e for e in range(EPOCHS) if (e + key) % 4]),
        key,
        maybe(rng.randint(-(2**31), 2**31 - 1)),
        maybe(rng.randint(-(10**15), 10**15)),
        maybe(Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-2)),
        maybe(rng.uniform(-1e3, 1e3)),
        maybe(rng.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, rng.uniform(-1, 1)])),
        maybe(rng.choice([math.nan, 0.0, rng.choice([-1.5, 2.5, math.inf])])),
        maybe("".join(rng.choices("aZé\uffff\U0001f600", k=rng.randrange(4)))),
        maybe(rng.randbytes(rng.randrange(3))),
        maybe(dt.date(1970, 1, 1) + dt.timedelta(days=rng.randint(-20000, 20000))),
        maybe(EPOCH_ZERO + dt.timedelta(microseconds=rng.randint(-(10**15), 10**15))),
        maybe(rng.random() < 0.5),
        by,
    )


@pytest.fixture(scope="module")
def data(spark: Any) -> Iterator[str]:
    """The name of a view of random rows."""
    spark.createDataFrame(rows(20), DDL).createOrReplaceTempView("merge_rows")
    yield "merge_rows"
    spark.catalog.dropTempView("merge_rows")


def values_by_key(frame: Any) -> dict[int, pa.RecordBatch]:
    """Each key's values as a batch of one row; the first column is the key."""
    table = frame.toArrow().combine_chunks()
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    keys = batch.column(0).to_pylist()
    values = batch.select(batch.schema.names[1:])
    return {key: values.slice(row, 1) for row, key in enumerate(keys)}


def merged_epochs(
    spark: Any, select: str, merges: list[Merge], *, view: str = "merge_rows"
) -> dict[int, dict[str, Any]]:
    """The state after all epochs: Spark makes the partials, merge_rows merges them."""
    state: dict[int, pa.RecordBatch] = {}
    for epoch in range(EPOCHS):
        sql = f"SELECT k, {select} FROM {view} WHERE epoch = {epoch} GROUP BY k"
        partials = values_by_key(spark.sql(sql))
        if not partials:
            continue
        new = pa.Table.from_batches(list(partials.values())).combine_chunks().to_batches()[0]
        old_rows = [state.get(key, batch) for key, batch in partials.items()]
        old = pa.Table.from_batches(old_rows).combine_chunks().to_batches()[0]
        check_merges(merges, new.schema)
        result = merge_rows(merges, old, new, np.array([key in state for key in partials]))
        assert result.schema.equals(new.schema)
        state |= {key: result.slice(row, 1) for row, key in enumerate(partials)}
    return {key: batch.to_pylist()[0] for key, batch in state.items()}


def whole(spark: Any, select: str, *, view: str = "merge_rows") -> dict[int, dict[str, Any]]:
    """The same aggregates by Spark, over all rows at once."""
    found = values_by_key(spark.sql(f"SELECT k, {select} FROM {view} GROUP BY k"))
    return {key: batch.to_pylist()[0] for key, batch in found.items()}


@contextmanager
def ansi(spark: Any, *, enabled: bool) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(enabled).lower())
    try:
        yield
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_single_column_functions_equal_the_batch(spark: Any, data: str) -> None:
    select = ", ".join(f"{sql} AS {name}" for name, (sql, _) in SINGLE.items())
    merges = [Merge(function, (name,)) for name, (_, function) in SINGLE.items()]
    merged, truth = merged_epochs(spark, select, merges), whole(spark, select)
    assert set(merged) == set(truth) == set(range(KEYS))
    for key, values in truth.items():
        for name, value in values.items():
            # Zeros are equal, and which of them a batch keeps is up to the order of its rows.
            zero = isinstance(value, float) and value == 0
            got = abs(merged[key][name]) if zero else merged[key][name]
            assert repr(got) == repr(abs(value) if zero else value), (key, name)


def test_sums_of_doubles_and_variance_equal_the_batch(spark: Any, data: str) -> None:
    partials = (
        "sum(d) AS total, sum(n) AS odd, CAST(count(d) AS DOUBLE) AS n, avg(d) AS mean, "
        "var_pop(d) * count(d) AS m2"
    )
    merges = [
        Merge("sum", ("total",)),
        Merge("sum", ("odd",)),
        Merge("moments", ("n", "mean", "m2")),
    ]
    merged = merged_epochs(spark, partials, merges)
    truth = whole(spark, "sum(d) AS total, sum(n) AS odd, avg(d) AS mean, var_samp(d) AS v")
    for key, values in truth.items():
        state = merged[key]
        variance = state["m2"] / (state["n"] - 1) if state["n"] else None
        for got, want in (
            (state["total"], values["total"]),
            (state["odd"], values["odd"]),
            (state["mean"], values["mean"]),
            (variance, values["v"]),
        ):
            near = want and pytest.approx(want, rel=1e-9, abs=1e-9, nan_ok=True)
            assert got == near, key


def test_min_by_max_by_and_lists_equal_the_batch(spark: Any, data: str) -> None:
    select = (
        "min_by(s, u) AS first, min(u) AS first_u, max_by(s, u) AS last, max(u) AS last_u, "
        "max_by(s, u) FILTER (WHERE s IS NOT NULL) AS some, "
        "max(u) FILTER (WHERE s IS NOT NULL) AS some_u, collect_list(s) AS names"
    )
    merges = [
        Merge("first_by", ("first", "first_u")),
        Merge("last_by", ("last", "last_u")),
        Merge("last_by", ("some", "some_u"), {"ignore_nulls": True}),
        Merge("list_append", ("names",)),
    ]
    merged, truth = merged_epochs(spark, select, merges), whole(spark, select)
    assert set(merged) == set(truth)
    for key, values in truth.items():
        assert sorted(merged[key].pop("names")) == sorted(values.pop("names"))
        assert merged[key] == values


LONG_MAX = (1 << 63) - 1


@pytest.fixture(scope="module")
def extremes(spark: Any) -> Iterator[str]:
    """A view whose sums leave their types in the second epoch."""
    most = Decimal("9" * 38)
    made = [(0, 1, LONG_MAX, most), (1, 1, 1, Decimal(1)), (2, 1, -5, Decimal(-5))]
    frame = spark.createDataFrame(made, "epoch int, k int, l bigint, m decimal(38,0)")
    frame.createOrReplaceTempView("merge_extremes")
    yield "merge_extremes"
    spark.catalog.dropTempView("merge_extremes")


@pytest.mark.parametrize("column", ["l", "m"])
def test_under_ansi_an_overflow_stops_both(spark: Any, extremes: str, column: str) -> None:
    select = f"sum({column}) AS total"
    upper = f"(SELECT * FROM {extremes} WHERE epoch < 2)"
    with ansi(spark, enabled=True):
        with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"):
            whole(spark, select, view=upper)
        with pytest.raises(Overflow, match=r"sum of column 'total' .* 1 of 1 rows"):
            merged_epochs(spark, select, [Merge("sum", ("total",))], view=extremes)


def test_without_ansi_longs_wrap_and_decimals_stay_null(spark: Any, extremes: str) -> None:
    select = "sum(l) AS wrapped, sum(m) AS lost, count(m) = 0 AS lost_empty"
    merges = [
        Merge("sum", ("wrapped",), {"ansi": False}),
        Merge("sum", ("lost", "lost_empty"), {"ansi": False}),
    ]
    upper = f"(SELECT * FROM {extremes} WHERE epoch < 2)"
    with ansi(spark, enabled=False):
        assert merged_epochs(spark, select, merges, view=upper) == whole(spark, select, view=upper)
        later = merged_epochs(spark, select, merges, view=extremes)[1]
    assert later == {"wrapped": LONG_MAX - 4, "lost": None, "lost_empty": False}


SKETCH = "hll_sketch_agg(i) AS exact, hll_sketch_agg(v, 10) AS dense"


def test_sketches_are_spark_s_own(spark: Any) -> None:
    pytest.importorskip("datasketches")
    view = (
        f"(SELECT id % {EPOCHS} AS epoch, id % 3 AS k, id % 17 AS i, id * 7 % 40009 AS v "
        "FROM range(60000))"
    )
    merges = [Merge("hll_union", ("exact",)), Merge("hll_union", ("dense",))]
    merged = merged_epochs(spark, SKETCH, merges, view=view)
    partials = f"(SELECT k, epoch, {SKETCH} FROM {view} GROUP BY k, epoch)"
    union = "hll_union_agg(exact) AS exact, hll_union_agg(dense) AS dense"
    truth = whole(spark, union, view=partials)
    frame = spark.createDataFrame(
        [
            (key, name, bytes(merged[key][name]), bytes(values[name]))
            for key, values in truth.items()
            for name in values
        ],
        "k bigint, name string, ours binary, theirs binary",
    )
    estimates = frame.selectExpr(
        "name",
        "hll_sketch_estimate(ours) AS ours",
        "hll_sketch_estimate(theirs) AS theirs",
        "hll_sketch_estimate(hll_union(ours, theirs)) AS both",
    ).collect()
    assert len(estimates) == 6
    for row in estimates:
        assert row.ours == row.theirs == row.both, row
        assert row.ours == 17 if row.name == "exact" else row.ours > 10000
