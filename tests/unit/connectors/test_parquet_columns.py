"""Columns of Parquet files in the types of a pipeline: read exactly, or refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lamina.connectors.parquet_columns import fits, fitted
from lamina.errors import Refused

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("have", "wanted"),
    [
        (pa.int8(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.large_string(), pa.string()),
        (pa.binary(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ms"), UTC),
        (pa.timestamp("ns", "Europe/Berlin"), UTC),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct({"A": pa.int32()}), pa.struct({"a": pa.int64(), "b": pa.string()})),
    ],
)
def test_a_smaller_type_is_read(have: pa.DataType, wanted: pa.DataType) -> None:
    assert fits(have, wanted)
    batch = pa.record_batch([pa.array([None, None], have)], names=["X"])
    (column,) = fitted(batch, pa.schema({"x": wanted}), "here")
    assert column.type == wanted
    assert column.null_count == 2


@pytest.mark.parametrize(
    ("have", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.uint64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int8()),
        (pa.decimal128(12, 2), pa.decimal128(10, 2)),
        (pa.decimal128(10, 3), pa.decimal128(10, 2)),
        (UTC, pa.timestamp("us")),
        (pa.date32(), UTC),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.struct({"a": pa.string()}), pa.struct({"a": pa.int64()})),
        (pa.struct({"a": pa.string()}), pa.string()),
        (pa.null(), pa.int64()),
    ],
)
def test_another_type_is_refused_with_both(have: pa.DataType, wanted: pa.DataType) -> None:
    batch = pa.record_batch([pa.array([None], have)], names=["x"])
    with pytest.raises(Refused, match="the column 'x' is") as raised:
        fitted(batch, pa.schema({"x": wanted}), "s3://b/k")
    assert raised.value.where == "s3://b/k"


def test_values_stay_what_they_are() -> None:
    def read(values: list[Any], have: pa.DataType, wanted: pa.DataType) -> list[Any]:
        batch = pa.record_batch([pa.array(values, have)], names=["x"]).slice(1)
        found: list[Any] = fitted(batch, pa.schema({"x": wanted}), "here")[0].to_pylist()
        return found

    assert read([0, -7, None], pa.int8(), pa.int64()) == [-7, None]
    assert read([None, Decimal("1.25")], pa.decimal128(5, 2), pa.decimal128(20, 4)) == [
        Decimal("1.2500")
    ]
    inner = pa.struct({"A": pa.int32(), "c": pa.string()})
    wanted = pa.struct({"b": pa.string(), "a": pa.int64()})
    rows = [None, None, {"A": 1, "c": "x"}, {"A": None, "c": None}]
    assert read(rows, inner, wanted) == [None, {"b": None, "a": 1}, {"b": None, "a": None}]
    assert read([[], [1], None], pa.list_(pa.int8()), pa.list_(pa.int64())) == [[1], None]


PRICE, WANTED = pa.struct({"Price": pa.int32(), "x": pa.string()}), pa.struct({"price": pa.int64()})


@pytest.mark.parametrize(
    ("have", "wanted", "values", "found"),
    [
        (
            pa.list_(PRICE),
            pa.list_(WANTED),
            [[{"Price": 9}], None, [], [{"Price": 1}, None, {"Price": None}]],
            [None, [], [{"price": 1}, None, {"price": None}]],
        ),
        (
            pa.large_list(PRICE),
            pa.list_(WANTED),
            [None, [{"Price": 2}], None],
            [[{"price": 2}], None],
        ),
        (
            pa.map_(pa.string(), PRICE),
            pa.map_(pa.string(), WANTED),
            [[("z", {"Price": 9})], None, [], [("k", {"Price": 3}), ("n", None)]],
            [None, [], [("k", {"price": 3}), ("n", None)]],
        ),
        (
            pa.struct({"A": pa.list_(pa.map_(pa.string(), pa.list_(PRICE)))}),
            pa.struct({"a": pa.list_(pa.map_(pa.string(), pa.list_(WANTED)))}),
            [None, {"A": [[("k", [{"Price": 4}])]]}],
            [{"a": [[("k", [{"price": 4}])]]}],
        ),
        (
            pa.list_(pa.dictionary(pa.int8(), pa.string())),
            pa.list_(pa.string()),
            [None, ["a", "b"]],
            [["a", "b"]],
        ),
    ],
)
def test_fields_in_another_case_inside_lists_and_maps_are_not_null(
    have: pa.DataType, wanted: pa.DataType, values: list[Any], found: list[Any]
) -> None:
    """In parts of arrays, too."""
    batch = pa.record_batch([pa.array(values, have)], names=["x"]).slice(1)
    (column,) = fitted(batch, pa.schema({"x": wanted}), "here")
    column.validate(full=True)
    assert (column.type, column.to_pylist()) == (wanted, found)


@pytest.mark.parametrize(
    "nested", [lambda kind: kind, pa.list_, lambda kind: pa.map_("int8", kind)]
)
def test_two_fields_of_one_name_are_refused_at_every_depth(nested: Any) -> None:
    twins = pa.struct({"A": pa.int64(), "a": pa.int64()})
    batch = pa.record_batch([pa.array([None], nested(twins))], names=["x"])
    with pytest.raises(Refused, match="two columns of one name"):
        fitted(batch, pa.schema({"x": nested(pa.struct({"a": pa.int64()}))}), "here")


def test_digits_of_a_time_are_not_lost() -> None:
    batch = pa.record_batch([pa.array([1001], pa.timestamp("ns"))], names=["x"])
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        fitted(batch, pa.schema({"x": UTC}), "here")


def test_missing_columns_are_null_and_two_of_one_name_are_refused() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "A"])
    with pytest.raises(Refused, match="two columns of one name"):
        fitted(batch, pa.schema({"a": pa.int64()}), "here")
    (column,) = fitted(batch.select([0]), pa.schema({"b": pa.string()}), "here")
    assert column == pa.nulls(1, pa.string())
