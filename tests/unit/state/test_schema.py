"""Columns of a state: what they may be called and be, and how they may change."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.errors import StateChanged, UsageError
from lamina.state.layers import PlacedRun, stack
from lamina.state.merge import Merge
from lamina.state.partition import StatePartition
from lamina.state.run import run_of_batch
from lamina.state.run_file import open_run, write_run
from lamina.state.schema import (
    StateSchema,
    check_successor,
    floor_of_run,
    schema_of_run,
    time_values,
)
from lamina.state.vnodes import EVERYTHING, SlotRange
from tests.support.states import EPOCH, KV, TIMED, WINDOWED, apply_all, in_files, made, scanned

DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def with_value(kind: pa.DataType) -> StateSchema:
    return StateSchema(KV.key, pa.schema([("v", kind)]))


# what a schema may be


@pytest.mark.parametrize("name", ["_slot", "_op", "k"])
def test_names_that_are_taken_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name!r} is taken"):
        StateSchema(KV.key, pa.schema([(name, pa.int64())]))
    with pytest.raises(UsageError, match=f"{name!r} is taken"):
        StateSchema(pa.schema([("k", pa.int64()), (name, pa.int64())]), pa.schema([]))


def test_a_state_without_a_key_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one key column"):
        StateSchema(pa.schema([]), KV.value)


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int64()), pa.timestamp("ns")])
def test_a_type_that_cannot_be_a_key_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match="bad"):
        StateSchema(pa.schema([("bad", kind)]), KV.value)


@pytest.mark.parametrize(
    "kind", [DICTIONARY, pa.struct([("a", DICTIONARY)]), pa.list_(pa.struct([("a", DICTIONARY)]))]
)
def test_dictionary_encoded_values_are_refused_however_deep(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match="'v' is dictionary-encoded"):
        with_value(kind)


@pytest.mark.parametrize(
    ("time", "message"), [("x", "no column 'x'"), ("v", "string is not a time")]
)
def test_rows_are_expired_by_a_time_only(time: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        StateSchema(KV.key, pa.schema([("v", pa.string())]), time)


@pytest.mark.parametrize("schema", [KV, TIMED, WINDOWED])
def test_a_run_says_which_schema_it_has(schema: StateSchema) -> None:
    assert schema_of_run(schema.run_with(7)) == schema
    assert floor_of_run(schema.run_with(7)) == 7
    assert floor_of_run(schema.run) is None


def test_times_are_numbers_of_their_own_unit() -> None:
    far = 2**63 - 1
    assert time_values(pa.array([5, None], pa.date32())).tolist() == [5, far]
    assert time_values(pa.array([86_400_000, None], pa.date64())).tolist() == [86_400_000, far]
    assert time_values(pa.array([-3, None], pa.timestamp("us", "UTC"))).tolist() == [-3, far]
    assert time_values(pa.array([], pa.int64())).tolist() == []


# how it may change


def test_a_changed_key_is_refused_by_name() -> None:
    other = StateSchema(pa.schema([("k", pa.int32())]), KV.value)
    with pytest.raises(StateChanged, match="orders: the key column 'k' is int32, and int64"):
        check_successor(KV, other, "orders")
    renamed = StateSchema(pa.schema([("id", pa.int64())]), KV.value)
    with pytest.raises(StateChanged, match=r"orders: the key is \(id\), and \(k\) in its state"):
        check_successor(KV, renamed, "orders")
    with pytest.raises(StateChanged, match="orders: rows expire by 't', and by None"):
        check_successor(StateSchema(KV.key, TIMED.value), TIMED, "orders")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.uint64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.decimal128(10, 2), pa.decimal128(9, 2)),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_a_value_that_does_not_widen_is_refused_by_name(old: pa.DataType, new: pa.DataType) -> None:
    with pytest.raises(StateChanged, match=r"orders: the value column 'v' is .* in its state"):
        check_successor(with_value(old), with_value(new), "orders")


def test_a_value_column_does_not_vanish_and_does_not_come_without_nulls() -> None:
    wider = StateSchema(KV.key, pa.schema([("v", pa.int64()), ("w", pa.int64())]))
    check_successor(KV, wider, "orders")
    with pytest.raises(StateChanged, match="its state has a value column 'w'"):
        check_successor(wider, KV, "orders")
    strict = StateSchema(
        KV.key, pa.schema([("v", pa.int64()), pa.field("w", pa.int64(), nullable=False)])
    )
    with pytest.raises(StateChanged, match="'w' cannot be null"):
        check_successor(KV, strict, "orders")


def test_runs_of_another_state_are_not_read_as_this_one() -> None:
    old = run_of_batch(made(with_value(pa.int64()), [{"k": 1, "v": 1}]), name="old.run")
    with pytest.raises(StateChanged, match=r"old\.run: the value column 'v' is int32"):
        StatePartition(with_value(pa.int32()), [old])
    key = StateSchema(pa.schema([("k", pa.int32())]), KV.value)
    with pytest.raises(StateChanged, match=r"old\.run: the key column 'k' is int32"):
        StatePartition(key, []).with_run(old)
    halves = [SlotRange.of_partition(partition, 2) for partition in range(2)]
    fine = run_of_batch(made(key, []))
    placed = [PlacedRun(old, halves[0]), PlacedRun(fine, halves[1])]
    with pytest.raises(StateChanged, match="the key column 'k' is int32"):
        StatePartition(key, stack(placed, EVERYTHING))


WIDENED: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.int8(), pa.int16(), -5, 300),
    (pa.int32(), pa.int64(), -5, 2**40),
    (pa.uint8(), pa.uint64(), 5, 2**64 - 1),
    (pa.float32(), pa.float64(), 0.5, 0.1),
    (pa.decimal128(6, 2), pa.decimal128(20, 2), Decimal("-1.25"), Decimal("123456789012.50")),
    (pa.decimal128(38, 2), pa.decimal256(50, 2), Decimal("-1.25"), Decimal(10) ** 45),
    (pa.string(), pa.large_string(), "é", "new"),
    (pa.binary(), pa.large_binary(), b"\0", b"new"),
]


@pytest.mark.parametrize("case", WIDENED, ids=lambda case: f"{case[0]}-{case[1]}")
@pytest.mark.parametrize("filed", [False, True], ids=["memory", "file"])
def test_old_runs_are_read_with_wider_columns(
    tmp_path: Path, case: tuple[pa.DataType, pa.DataType, Any, Any], filed: bool
) -> None:
    before, after, old, new = case
    narrow = with_value(before)
    wide = StateSchema(KV.key, pa.schema([("w", pa.string()), ("v", after)]))
    check_successor(narrow, wide, "orders")
    batch = made(narrow, [{"k": key, "v": old} for key in range(4)])
    run = run_of_batch(batch)
    if filed:
        write_run(tmp_path / "old.run", [batch], narrow, epochs=EPOCH)
        run = open_run(tmp_path / "old.run")
    state = StatePartition(wide, [run])
    done = state.apply(made(wide, [{"k": 3, "v": new, "w": "x"}, {"k": 4, "v": new, "w": "y"}]))
    olds = dict(zip(done.keys.column("k").to_pylist(), done.old.values.to_pylist(), strict=True))
    assert olds == {3: {"w": None, "v": old}, 4: {"w": None, "v": None}}
    state = state.with_run(run_of_batch(done.run))
    expected = dict.fromkeys(range(3), (None, old)) | {3: ("x", new), 4: ("y", new)}
    for each in (state, state.compact(range(2), in_files(tmp_path / "merged", wide))):
        assert {row["k"]: (row["w"], row["v"]) for row in scanned(each.scan())} == expected
        looked = each.get(pa.record_batch({"k": pa.array([0, 3, 9])}))
        assert looked.found.tolist() == [True, True, False]
        assert looked.values.column("v").to_pylist() == [old, new, None]


def test_a_merge_function_goes_on_over_a_wider_column() -> None:
    narrow = with_value(pa.int32())
    wide = with_value(pa.int64())
    before = apply_all(StatePartition(narrow), made(narrow, [{"k": 1, "v": 2**31 - 1}]))
    state = StatePartition(wide, before.runs, merges=[Merge("sum", ("v",))])
    state = apply_all(state, made(wide, [{"k": 1, "v": 1}]))
    assert scanned(state.scan()) == [{"k": 1, "v": 2**31}]


def test_columns_may_change_their_order() -> None:
    one = StateSchema(KV.key, pa.schema([("a", pa.int64()), ("b", pa.string())]))
    two = StateSchema(KV.key, pa.schema([("b", pa.string()), ("a", pa.int64())]))
    state = apply_all(StatePartition(one), made(one, [{"k": 1, "a": 1, "b": "x"}]))
    assert scanned(StatePartition(two, state.runs).scan()) == [{"k": 1, "b": "x", "a": 1}]
