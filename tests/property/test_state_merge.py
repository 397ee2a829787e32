"""However values are cut into epochs and folded, the merge is what a naive loop says."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import Overflow
from lamina.state.merge import Merge, check_merges, merge_rows

Row = tuple[Any, ...]
Fold = Callable[[Sequence[Row]], Row]
EXACT = Context(prec=80)

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(-1000, 1000)
DOUBLES = st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf])
TEXT = st.text(st.sampled_from("aZé\uffff\U0001f600"), max_size=3)
DECIMALS = st.integers(-(10**5) + 1, 10**5 - 1).map(lambda n: Decimal(n).scaleb(-2))


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def order(value: Any) -> Any:
    """Python's order made Spark's."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def reference_min(rows: Sequence[Row]) -> Row:
    return (min((x for (x,) in rows if x is not None), key=order, default=None),)


def reference_max(rows: Sequence[Row]) -> Row:
    return (max((x for (x,) in rows if x is not None), key=order, default=None),)


def reference_sum(rows: Sequence[Row]) -> Row:
    values = [x for (x,) in rows if x is not None]
    return (sum(values) if values else None,)


def reference_count(rows: Sequence[Row]) -> Row:
    return (sum(x or 0 for (x,) in rows),)


def reference_any(rows: Sequence[Row]) -> Row:
    values = [x for (x,) in rows if x is not None]
    return (any(values) if values else None,)


def reference_all(rows: Sequence[Row]) -> Row:
    values = [x for (x,) in rows if x is not None]
    return (all(values) if values else None,)


def reference_replace(rows: Sequence[Row]) -> Row:
    return rows[-1]


def reference_first_by(rows: Sequence[Row]) -> Row:
    ranked = [row for row in rows if row[-1] is not None]
    return min(ranked, key=lambda row: order(row[-1])) if ranked else rows[0]


def reference_last_by(rows: Sequence[Row]) -> Row:
    ranked = [row for row in rows if row[-1] is not None]
    return max(reversed(ranked), key=lambda row: order(row[-1])) if ranked else rows[-1]


def reference_list(rows: Sequence[Row]) -> Row:
    lists = [x for (x,) in rows if x is not None]
    return ([x for each in lists for x in each] if lists else None,)


def newest_three(rows: Sequence[Row]) -> Row:
    (whole,) = reference_list(rows)
    return (whole and whole[-3:],) if whole is not None else (None,)


def oldest_three(rows: Sequence[Row]) -> Row:
    (whole,) = reference_list(rows)
    return (whole[:3],) if whole is not None else (None,)


def sorted_list(rows: Sequence[Row]) -> Row:
    (whole,) = reference_list(rows)
    return (None if whole is None else sorted(whole, key=lambda x: (x is not None, x)),)


def greatest_two(rows: Sequence[Row]) -> Row:
    (whole,) = sorted_list([(None if x is None else list(set(x)),) for (x,) in rows])
    return (None if whole is None else list(dict.fromkeys(whole[::-1]))[:2],)


LISTS = nullable(st.lists(nullable(SMALL), max_size=4))
CASES: list[tuple[Merge, list[pa.DataType], st.SearchStrategy[Row], Fold]] = [
    (Merge("sum", ("a",)), [pa.int64()], st.tuples(nullable(SMALL)), reference_sum),
    (
        Merge("sum", ("a",)),
        [pa.decimal128(15, 2)],
        st.tuples(nullable(DECIMALS)),
        reference_sum,
    ),
    (Merge("count", ("a",)), [pa.int64()], st.tuples(nullable(SMALL)), reference_count),
    (Merge("replace", ("a",)), [pa.string()], st.tuples(nullable(TEXT)), reference_replace),
    (Merge("any", ("a",)), [pa.bool_()], st.tuples(nullable(st.booleans())), reference_any),
    (Merge("all", ("a",)), [pa.bool_()], st.tuples(nullable(st.booleans())), reference_all),
    *(
        (Merge(name, ("a",)), [kind], st.tuples(nullable(values)), fold)
        for name, fold in (("min", reference_min), ("max", reference_max))
        for kind, values in (
            (pa.int64(), LONGS),
            (pa.float64(), DOUBLES),
            (pa.string(), TEXT),
            (pa.large_string(), TEXT),
            (pa.binary(), st.binary(max_size=3)),
            (pa.decimal128(5, 2), DECIMALS),
            (pa.bool_(), st.booleans()),
        )
    ),
    *(
        (Merge(name, ("a", "b")), [pa.string(), kind], st.tuples(nullable(TEXT), by), fold)
        for name, fold in (("first_by", reference_first_by), ("last_by", reference_last_by))
        for kind, by in (
            (pa.int64(), nullable(st.integers(0, 3))),
            (pa.float64(), nullable(DOUBLES)),
        )
    ),
    (Merge("list_append", ("a",)), [pa.list_(pa.int64())], st.tuples(LISTS), reference_list),
    (
        Merge("list_append", ("a",), {"limit": 3}),
        [pa.list_(pa.int64())],
        st.tuples(LISTS),
        newest_three,
    ),
    (
        Merge("list_append", ("a",), {"limit": 3, "keep": "first"}),
        [pa.large_list(pa.int64())],
        st.tuples(LISTS),
        oldest_three,
    ),
    (Merge("list_sorted", ("a",)), [pa.list_(pa.int64())], st.tuples(LISTS), sorted_list),
    (
        Merge("list_sorted", ("a",), {"limit": 2, "descending": True, "distinct": True}),
        [pa.list_(pa.int64())],
        st.tuples(LISTS),
        greatest_two,
    ),
]


def bits(row: Row) -> Row:
    """Doubles by their bits (NaN is NaN), so that -0.0 and 0.0 are told apart."""
    return tuple(
        struct.pack("<d", math.nan if math.isnan(x) else x) if isinstance(x, float) else x
        for x in row
    )


def batch(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(merged: pa.RecordBatch) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in merged.columns), strict=True))


@given(data=st.data())
def test_a_fold_of_epochs_is_what_a_loop_over_all_values_says(data: st.DataObject) -> None:
    merge, kinds, rows, fold = data.draw(st.sampled_from(CASES))
    schema = pa.schema(list(zip(merge.columns, kinds, strict=True)))
    check_merges([merge], schema)
    keys = data.draw(st.integers(1, 4))
    epochs = data.draw(
        st.lists(st.lists(rows, min_size=keys, max_size=keys), min_size=1, max_size=5)
    )
    first = data.draw(st.lists(st.integers(0, len(epochs)), min_size=keys, max_size=keys))

    state = batch(schema, data.draw(st.lists(rows, min_size=keys, max_size=keys)))  # garbage
    for number, epoch in enumerate(epochs):
        found = np.array([begin < number for begin in first])
        state = merge_rows([merge], state, batch(schema, epoch), found)

    for key, row in enumerate(rows_of(state)):
        since = min(first[key], len(epochs) - 1)
        assert bits(row) == bits(fold([epoch[key] for epoch in epochs[since:]]))


@given(data=st.data())
def test_merging_is_associative(data: st.DataObject) -> None:
    merge, kinds, rows, _ = data.draw(st.sampled_from(CASES))
    schema = pa.schema(list(zip(merge.columns, kinds, strict=True)))
    size = data.draw(st.integers(0, 5))
    a, b, c = (
        batch(schema, data.draw(st.lists(rows, min_size=size, max_size=size))) for _ in range(3)
    )
    merged = functools.partial(merge_rows, [merge], found=np.ones(size, dtype=bool))
    left = merged(old=merged(old=a, new=b), new=c)
    right = merged(old=a, new=merged(old=b, new=c))
    assert list(map(bits, rows_of(left))) == list(map(bits, rows_of(right)))


@given(st.lists(st.tuples(LONGS, LONGS), min_size=1, max_size=5))
def test_a_sum_of_longs_is_exact_or_an_error(pairs: list[tuple[int, int]]) -> None:
    schema = pa.schema([("a", pa.int64())])
    old, new = (batch(schema, [(pair[side],) for pair in pairs]) for side in (0, 1))
    totals = [left + right for left, right in pairs]
    fits = [-(1 << 63) <= total < (1 << 63) for total in totals]
    found = np.ones(len(pairs), dtype=bool)
    wrapped = merge_rows([Merge("sum", ("a",), {"ansi": False})], old, new, found)
    half = 1 << 63
    assert rows_of(wrapped) == [((total + half) % (1 << 64) - half,) for total in totals]
    if all(fits):
        exact = merge_rows([Merge("sum", ("a",))], old, new, found)
        assert rows_of(exact) == [(total,) for total in totals]
    else:
        with pytest.raises(Overflow, match=f" {fits.count(False)} of {len(pairs)} rows"):
            merge_rows([Merge("sum", ("a",))], old, new, found)


@given(st.integers(1, 38), st.data())
def test_a_sum_of_decimals_is_exact_or_null(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    most = 10**precision - 1
    near = st.sampled_from([most, -most, 1, -1, 0])
    unscaled = st.integers(-most, most) | near
    old, new = data.draw(unscaled), data.draw(unscaled)
    schema = pa.schema([("a", pa.decimal128(precision, scale)), ("e", pa.bool_())])

    def side(number: int) -> pa.RecordBatch:
        return batch(schema, [(Decimal(number).scaleb(-scale, EXACT), False)])

    merge = Merge("sum", ("a", "e"), {"ansi": False})
    check_merges([merge], schema)
    ((total, empty),) = rows_of(merge_rows([merge], side(old), side(new), np.array([True])))
    assert empty is False
    fits = abs(old + new) <= most
    assert total == (Decimal(old + new).scaleb(-scale, EXACT) if fits else None)


@given(
    st.lists(
        st.lists(st.floats(-1e6, 1e6), max_size=6),
        min_size=1,
        max_size=6,
    )
)
def test_moments_of_parts_are_the_moments_of_all(parts: list[list[float]]) -> None:
    merge = Merge("moments", ("n", "mean", "m2"))
    schema = pa.schema([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])

    def moments(values: list[float]) -> Row:
        if not values:
            return 0, None, None
        mean = float(np.mean(values))
        return len(values), mean, float(np.sum((np.array(values) - mean) ** 2))

    state = batch(schema, [(0, None, None)])
    for part in parts:
        state = merge_rows([merge], state, batch(schema, [moments(part)]), np.array([True]))
    ((n, mean, m2),) = rows_of(state)
    everything = [value for part in parts for value in part]
    expected = moments(everything)
    assert n == expected[0]
    if n:
        assert math.isclose(mean, expected[1], rel_tol=1e-9, abs_tol=1e-6)
        assert math.isclose(m2, expected[2], rel_tol=1e-9, abs_tol=1e-3)
