"""Keys and values from outside: checked, hashed and sorted, or refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import StateChanged, UsageError
from lamina.state.changes import changes, check_changes, slots_of_keys, split
from lamina.state.run import slots_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import EVERYTHING, SlotRange, vnodes_of_slots
from tests.support.states import KV, kv, made

COUNTED = StateSchema(KV.key, pa.schema([pa.field("v", pa.int64(), nullable=False)]))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_changes_are_sorted_and_in_the_form_of_a_run() -> None:
    found = kv({key: key for key in range(100)})
    assert found.schema.equals(KV.run)
    slots = slots_of_batch(found)
    assert np.all(slots[1:] > slots[:-1])
    assert slots.tolist() == slots_of_keys(KV.keys_of(found)).tolist()
    check_changes(KV, found, EVERYTHING)


def test_columns_are_taken_by_name_and_others_left_out() -> None:
    found = changes(KV, batch(x=pa.array(["?"]), v=pa.array([1]), k=pa.array([2])))
    assert [(row["k"], row["v"]) for row in found.to_pylist()] == [(2, 1)]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"v": pa.array([1])}, UsageError, "'k' is missing"),
        ({"k": pa.array([1])}, UsageError, "'v' is missing"),
        ({"k": pa.array([1], pa.int32()), "v": pa.array([1])}, StateChanged, "'k' is int32"),
        ({"k": pa.array([1]), "v": pa.array([1.5])}, StateChanged, "'v' is double"),
        ({"k": pa.array([1, 1]), "v": pa.array([1, 2])}, UsageError, "twice"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_by_column(
    columns: dict[str, pa.Array], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        changes(KV, batch(**columns))


def test_a_null_is_refused_where_there_can_be_none() -> None:
    nulls = batch(k=pa.array([1, 2]), v=pa.array([None, 3], pa.int64()))
    with pytest.raises(UsageError, match="'v' cannot be null"):
        changes(COUNTED, nulls)
    with pytest.raises(UsageError, match="'v' cannot be null"):
        changes(COUNTED, nulls, deletes=np.array([False, True]))
    assert changes(COUNTED, nulls, deletes=np.array([True, False])).num_rows == 2
    strict = StateSchema(pa.schema([pa.field("k", pa.int64(), nullable=False)]), KV.value)
    with pytest.raises(UsageError, match="'k' cannot be null"):
        changes(strict, batch(k=pa.array([None], pa.int64()), v=pa.array([1])))


def test_deletes_need_no_values_and_have_none() -> None:
    only_keys = batch(k=pa.array([1, 2]))
    found = changes(KV, only_keys, deletes=np.ones(2, np.bool_))
    assert found.column("v").null_count == 2
    mixed = batch(k=pa.array([1, 2]), v=pa.array([10, 20]))
    rows = changes(KV, mixed, deletes=np.array([True, False])).to_pylist()
    assert {row["k"]: row["v"] for row in rows} == {1: None, 2: 20}
    with pytest.raises(UsageError, match="'v' is missing"):
        changes(KV, only_keys, deletes=np.array([True, False]))


def test_an_empty_batch_is_no_change() -> None:
    found = kv({})
    assert found.num_rows == 0
    check_changes(KV, found, SlotRange.of_partition(3, 4))


def test_one_number_is_one_key_however_it_is_written() -> None:
    schema = StateSchema(pa.schema([("k", pa.float64())]), KV.value)
    odd_nan = np.array([0x7FF8_0000_0000_0001], np.uint64).view(np.float64)[0]
    for same in ([0.0, -0.0], [math.nan, odd_nan]):
        with pytest.raises(UsageError, match="twice"):
            changes(schema, batch(k=pa.array(np.array(same)), v=pa.array([1, 2])))
    encoded = batch(k=pa.array([2.5]).dictionary_encode(), v=pa.array([1]).dictionary_encode())
    assert changes(schema, encoded).column("k").to_pylist() == [2.5]


NESTED: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        [{"a": -0.0, "b": "x"}, {"a": 0.0, "b": "x"}],
    ),
    (pa.list_(pa.float32()), [[1.0, -0.0], [1.0, 0.0]]),
]


@pytest.mark.parametrize(("kind", "same"), NESTED)
def test_one_nested_key_is_one_key_however_it_is_written(
    kind: pa.DataType, same: list[Any]
) -> None:
    schema = StateSchema(pa.schema([("k", kind)]), KV.value)
    with pytest.raises(UsageError, match="twice"):
        made(schema, [{"k": key, "v": 1} for key in same])


def test_splitting_gives_every_row_to_its_owner() -> None:
    found = kv({key: key for key in range(200)})
    parts = split(found, [SlotRange.of_partition(p, 8) for p in range(8)])
    assert sum(part.num_rows for part in parts) == 200
    for partition, part in enumerate(parts):
        assert set(vnodes_of_slots(slots_of_batch(part)) % 8) <= {partition}
        check_changes(KV, part, SlotRange.of_partition(partition, 8))
    with pytest.raises(UsageError, match="another partition"):
        check_changes(KV, parts[1], SlotRange.of_partition(0, 8))
