"""One partition: what apply, get, scan, expire and merge answer, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import StateChanged, UsageError
from lamina.state.merge import Merge
from lamina.state.partition import StatePartition
from lamina.state.run import TimeRange, run_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange
from tests.support.states import (
    KV,
    TIMED,
    WINDOWED,
    apply_all,
    as_dict,
    in_files,
    kv,
    made,
    rows_batch,
    scanned,
)

COUNT = [Merge("count", ("v",))]


def keys(*values: int | None, kind: pa.DataType = None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, kind or pa.int64())})


def expired(state: StatePartition, before: int) -> tuple[list[int], StatePartition]:
    gone, run = state.expire(before)
    return sorted(row["k"] for row in scanned(gone)), state.with_run(run_of_batch(run))


def timed(*rows: tuple[int, int | None]) -> pa.RecordBatch:
    return made(TIMED, [{"k": key, "v": key, "t": time} for key, time in rows])


# values that cannot be null


@pytest.mark.parametrize("merges", [(), COUNT])
def test_a_count_that_cannot_be_null_can_be_applied_to_nothing(merges: list[Merge]) -> None:
    schema = StateSchema(KV.key, pa.schema([pa.field("v", pa.int64(), nullable=False)]))
    state = StatePartition(schema, merges=merges)
    done = state.apply(made(schema, [{"k": 1, "v": 5}]))
    assert not done.old.found.any()
    assert done.old.values.to_pylist() == [{"v": None}]
    state = apply_all(state, made(schema, [{"k": 1, "v": 5}]), made(schema, [{"k": 2, "v": 1}]))
    looked = state.get(keys(1, 2, 3))
    assert looked.found.tolist() == [True, True, False]
    looked.values.validate(full=True)
    assert looked.values.column("v").to_pylist() == [5, 1, None]
    (rows,) = state.scan()
    assert not rows.schema.field("v").nullable
    assert state.apply(made(schema, [])).rows == 0


def test_a_state_without_values_knows_its_keys(tmp_path: Path) -> None:
    schema = StateSchema(KV.key, pa.schema([]))
    state = apply_all(StatePartition(schema), made(schema, [{"k": 1}, {"k": 2}]))
    done = state.apply(made(schema, [{"k": 2}, {"k": 3}], deleted=[True, False]))
    found = dict(zip(done.keys.column("k").to_pylist(), done.old.found.tolist(), strict=True))
    assert found == {2: True, 3: False}
    state = state.with_run(run_of_batch(done.run))
    assert state.get(keys(1, 2, 3)).found.tolist() == [True, False, True]
    state = state.compact(range(2), in_files(tmp_path, schema))
    assert sorted(row["k"] for row in scanned(state.scan())) == [1, 3]


# bad requests


def test_a_key_of_another_type_is_refused_and_not_just_absent() -> None:
    state = apply_all(StatePartition(KV), kv({1: 10}))
    with pytest.raises(StateChanged, match="'k' is int32, and int64 in the state"):
        state.get(keys(1, kind=pa.int32()))
    with pytest.raises(UsageError, match="'k' is missing"):
        state.get(pa.record_batch({"x": pa.array([1])}))


def test_dictionary_encoded_keys_are_looked_up_by_their_values() -> None:
    state = apply_all(StatePartition(KV), kv({1: 10}))
    encoded = pa.record_batch({"k": pa.array([1, 2, 1], pa.int64()).dictionary_encode()})
    assert state.get(encoded).found.tolist() == [True, False, True]


def test_nothing_asked_is_nothing_found() -> None:
    state = apply_all(StatePartition(KV), kv({1: 10}))
    looked = state.get(keys())
    assert (len(looked.found), looked.values.num_rows) == (0, 0)
    assert StatePartition(KV).get(keys(1, 2)).found.tolist() == [False, False]
    assert list(StatePartition(KV).scan()) == []


def test_a_key_asked_for_twice_and_out_of_order_is_answered_in_the_order_asked() -> None:
    state = apply_all(StatePartition(KV), kv({key: key * 10 for key in range(50)}))
    looked = state.get(keys(7, 99, 7, 3, None))
    assert looked.found.tolist() == [True, False, True, True, False]
    assert looked.values.column("v").to_pylist() == [70, None, 70, 30, None]


def test_changes_of_another_partition_are_refused() -> None:
    within = SlotRange.of_partition(0, 2)
    state = StatePartition(KV, within=within)
    with pytest.raises(UsageError, match="another partition"):
        state.apply(kv({key: key for key in range(20)}))
    with pytest.raises(UsageError, match="another partition"):
        state.apply(kv({1: 1}, slots=[within.last + 1]))
    assert state.apply(kv({1: 1}, slots=[within.last])).rows == 1
    upper = SlotRange.of_partition(1, 2)
    with pytest.raises(UsageError, match="another partition"):
        StatePartition(KV, within=upper).apply(kv({1: 1}, slots=[upper.first - 1]))
    assert StatePartition(KV, within=upper).apply(kv({1: 1}, slots=[upper.first])).rows == 1


def test_changes_out_of_order_are_refused() -> None:
    batch = kv({1: 1, 2: 2, 3: 3}, slots=[1, 2, 3])
    with pytest.raises(UsageError, match="sorted by slot"):
        StatePartition(KV).apply(batch.take(pa.array([1, 0, 2])))
    shared = kv({1: 1, 2: 2}, slots=[5, 5])
    with pytest.raises(UsageError, match="sorted by their keys"):
        StatePartition(KV).apply(shared.take(pa.array([1, 0])))
    with pytest.raises(UsageError, match="twice"):
        StatePartition(KV).apply(batch.take(pa.array([0, 0])))


def test_changes_of_another_schema_are_refused() -> None:
    with pytest.raises(UsageError, match="Make them with"):
        StatePartition(KV).apply(timed((1, 1)))
    with pytest.raises(UsageError, match="Make them with"):
        StatePartition(KV).apply(rows_batch(KV, [{"k": 1, "v": 1}]))


def test_every_value_column_needs_its_merge() -> None:
    with pytest.raises(UsageError, match="'t'"):
        StatePartition(TIMED, merges=COUNT)


# deletes


def test_a_delete_of_what_is_not_there_is_not_written() -> None:
    state = apply_all(StatePartition(KV), kv({1: 10}))
    done = state.apply(kv({1: None, 2: None}))
    assert done.rows == 1
    assert done.new.found.tolist() == [False, False]
    assert sorted(done.old.found.tolist()) == [False, True]
    state = state.with_run(run_of_batch(done.run))
    assert state.apply(kv({1: None})).rows == 0, "it is gone already"
    assert state.apply(kv({1: None}), old_values=False).rows == 1, "nobody looked"


def test_a_delete_leaves_no_values_behind() -> None:
    """A count of nothing was 0, also in the row that says that the key is gone."""
    state = apply_all(StatePartition(KV, merges=COUNT), kv({1: 5, 2: 6}))
    done = state.apply(kv({1: None, 3: None}))
    assert done.new.values.column("v").to_pylist() == [None, None]
    assert [(row["k"], row["_op"], row["v"]) for row in done.run.to_pylist()] == [(1, 1, None)]


def test_a_merge_after_a_delete_starts_anew() -> None:
    state = StatePartition(KV, merges=COUNT)
    state = apply_all(state, kv({1: 5}), kv({1: 6}), kv({1: None}), kv({1: 1}))
    assert as_dict(state) == {1: 1}
    assert as_dict(apply_all(state, kv({1: 2}))) == {1: 3}


def test_a_delete_that_is_merged_above_the_bottom_still_hides(tmp_path: Path) -> None:
    state = apply_all(StatePartition(KV), kv({1: 1, 2: 2}), kv({1: None}), kv({3: 3}))
    state = state.compact(range(1, 3), in_files(tmp_path, KV))
    assert state.runs[1].rows == 2
    assert as_dict(state) == {2: 2, 3: 3}
    state = state.compact(range(2), in_files(tmp_path / "bottom", KV))
    assert (len(state.runs), state.runs[0].rows) == (1, 2), "the bottom has no deletes"


def test_an_older_list_goes_on_reading_what_it_had(tmp_path: Path) -> None:
    before = apply_all(StatePartition(KV), kv({1: 1}))
    after = apply_all(before, kv({1: 2})).compact(range(2), in_files(tmp_path, KV))
    assert (as_dict(before), as_dict(after)) == ({1: 1}, {1: 2})


def test_amplification_is_counted() -> None:
    state = apply_all(StatePartition(KV), kv({1: 1, 2: 2}), kv({1: 2}), kv({2: None}))
    counted = state.statistics(count=True)
    assert (counted.rows, counted.live) == (4, 1)
    assert state.statistics().live is None
    assert StatePartition(KV).statistics(count=True).live == 0


# time


def test_state_without_a_time_is_not_expired() -> None:
    with pytest.raises(UsageError, match="no time column"):
        StatePartition(KV).expire(5)


def test_rows_go_once_and_stay_away(tmp_path: Path) -> None:
    state = apply_all(StatePartition(TIMED), timed((1, 10), (2, 20), (3, 30), (4, None)))
    gone, state = expired(state, 20)
    assert gone == [1]
    assert expired(state, 20)[0] == []
    assert expired(state, 5)[0] == []
    assert expired(state, 5)[1].floor == 20, "a floor never falls"
    gone, state = expired(state, 31)
    assert gone == [2, 3]
    assert not state.get(keys(1, 2, 3)).found.any()
    assert state.get(keys(4)).found.all(), "no time, no end"
    for chosen in (range(1, 3), range(2)):
        state = state.compact(chosen, in_files(tmp_path / str(chosen.start), TIMED))
        assert [row["k"] for row in scanned(state.scan())] == [4]
        assert state.floor == 31
    assert state.runs[0].rows == 1
    assert state.runs[0].floor == 31
    assert StatePartition(TIMED, state.runs).floor == 31, "also for who has only the files"


def test_a_floor_does_not_fall_in_a_run_either() -> None:
    _, state = expired(StatePartition(TIMED), 20)
    _, run = state.expire(5)
    assert run_of_batch(run).floor == 20


def test_an_old_time_of_a_key_is_not_taken_for_its_time() -> None:
    """Its newest row may lie in a block without the wanted times."""
    state = apply_all(StatePartition(TIMED), timed((1, 5)), timed((1, 25)))
    assert scanned(state.scan(times=TimeRange(0, 10))) == []
    assert expired(state, 10)[0] == []


def test_an_expired_value_does_not_bring_back_the_one_below(tmp_path: Path) -> None:
    state = apply_all(StatePartition(TIMED), timed((1, 100)), timed((1, 10)), timed((2, 50)))
    gone, state = expired(state, 20)
    assert gone == [1]
    assert not state.get(keys(1)).found.any()
    state = state.compact(range(1, 4), in_files(tmp_path, TIMED))
    assert not state.get(keys(1)).found.any()
    assert [row["k"] for row in scanned(state.scan())] == [2]
    (block,) = [state.runs[1].load(0)]
    dead = [row for row in block.to_pylist() if row["_op"] == 1]
    assert [(row["k"], row["v"], row["t"]) for row in dead] == [(1, None, None)]


def test_late_rows_are_refused_with_their_number() -> None:
    _, state = expired(StatePartition(TIMED), 20)
    with pytest.raises(UsageError, match="2 changes are from before 20"):
        state.apply(timed((1, 19), (2, 20), (3, -1)))
    assert state.apply(timed((2, 20))).rows == 1


def test_a_merged_time_below_the_floor_is_gone_before_it_is_merged() -> None:
    merges = [Merge("sum", ("v",)), Merge("max", ("t",))]
    state = apply_all(StatePartition(TIMED, merges=merges), timed((1, 10)))
    _, state = expired(state, 20)
    done = state.apply(timed((1, 30)))
    assert not done.old.found.any()
    assert done.new.values.to_pylist() == [{"v": 1, "t": 30}]


def test_windows_are_scanned_by_time() -> None:
    rows = [{"k": n % 3, "t": n, "v": n} for n in range(12)]
    state = apply_all(StatePartition(WINDOWED), made(WINDOWED, rows[:6]), made(WINDOWED, rows[4:]))
    found = scanned(state.scan(times=TimeRange(3, 7)))
    assert sorted(row["v"] for row in found) == [3, 4, 5, 6]
    assert list(state.scan(SlotRange(5, 5), TimeRange(50, None))) == []
    assert np.count_nonzero(state.get(rows_batch(WINDOWED, rows)).found) == 12
