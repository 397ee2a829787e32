"""Bags: what is put in, and taken out again, in any order and in any pieces."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import UsageError
from lamina.state.merge import Merge, check_merges, merge_rows
from lamina.state.merge_bags import signed_bags

NAN = float("nan")
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, -3, 7, 1 << 60],
    pa.float64(): [0.0, -1.5, NAN, float("inf"), 2.5],
    pa.string(): ["", "a", "ü", "Z"],
    pa.decimal128(9, 2): [Decimal("1.25"), Decimal("-7.00")],
    pa.bool_(): [True, False],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [
        {"x": 1, "y": None},
        {"x": None, "y": "a"},
        {"x": 1, "y": "b"},
    ],
}


def bag_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field("v", kind), pa.field("n", pa.int64(), nullable=False)]))


def merged(kind: pa.DataType, old: list[Any], new: list[Any]) -> list[Any]:
    schema = pa.schema([("b", bag_type(kind))])
    merges = (Merge("bag", ("b",)),)
    check_merges(merges, schema)
    before, after = (
        pa.RecordBatch.from_arrays([pa.array(each, bag_type(kind))], schema=schema)
        for each in (old, new)
    )
    found = np.array([each is not None for each in old])
    bags: list[Any] = merge_rows(merges, before, after, found)["b"].to_pylist()
    return bags


def items(*pairs: tuple[Any, int]) -> list[dict[str, Any]]:
    return [{"v": value, "n": count} for value, count in pairs]


def test_numbers_are_added_and_what_is_gone_is_left_out() -> None:
    old = [items((1, 2), (5, 1)), None, items((3, 1)), items()]
    new = [items((5, -1), (0, 1), (1, 1)), items((2, 1), (2, 1)), items((3, -1)), items()]
    assert merged(pa.int64(), old, new) == [items((0, 1), (1, 3)), items((2, 2)), [], []]


def test_both_zeros_are_one_value_and_so_is_every_nan() -> None:
    (found,) = merged(pa.float64(), [items((0.0, 1), (NAN, 2))], [items((-0.0, 1), (-NAN, -1))])
    assert [(str(abs(each["v"])), each["n"]) for each in found] == [("0.0", 2), ("nan", 1)]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_bag_is_what_was_put_in_and_not_taken_out(kind: pa.DataType) -> None:
    rng = random.Random(str(kind))
    left: Counter[str] = Counter()
    bag: list[Any] = items()
    for _ in range(20):
        there = [each for each in VALUES[kind] if left[repr(each)]]
        chosen = [(rng.choice(VALUES[kind]), 1) for _ in range(rng.randint(0, 4))]
        chosen += [(each, -1) for each in rng.sample(there, rng.randint(0, len(there)))]
        rng.shuffle(chosen)
        for value, count in chosen:
            left[repr(value)] += count
        (bag,) = merged(kind, [bag], [items(*chosen)])
        assert {repr(each["v"]): each["n"] for each in bag} == {k: n for k, n in left.items() if n}


def test_bags_are_turned_around_where_they_are_taken_back() -> None:
    kind = bag_type(pa.string())
    bags = pa.array([items(("a", 1), ("b", 1)), None, items(("a", 1)), items()], kind).slice(1)
    found = signed_bags(bags, np.array([True, True, False]))
    assert found.to_pylist() == [None, items(("a", -1)), []]
    assert found.type == kind


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.list_(pa.int64()), bag_type(pa.list_(pa.int64()))], ids=str
)
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match="bag cannot merge"):
        check_merges((Merge("bag", ("b",)),), pa.schema([("b", kind)]))
