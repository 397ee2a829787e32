"""Look-ups in a run: blocks, and slots that several keys share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import Corrupt, UsageError
from lamina.state import run_file
from lamina.state.partition import StatePartition
from lamina.state.run import (
    Run,
    TimeRange,
    by_key_and_time,
    by_number,
    by_slot,
    find,
    run_of_batch,
    slots_of_batch,
    sort_order,
)
from lamina.state.run_file import open_run, write_run
from lamina.state.scanning import scan_runs
from lamina.state.schema import schema_of_run
from lamina.state.vnodes import SlotRange, Slots
from tests.support.states import EPOCH, KV, WINDOWED, apply_all, as_dict, kv, made, scanned


def blocks_of(path: Path, batch: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch, rows: int) -> Run:
    """A run file with *rows* in every block."""
    monkeypatch.setattr(run_file, "BLOCK_ROWS", rows)
    write_run(path, [batch], KV, epochs=EPOCH)
    return open_run(path)


def look(run: Run, keys: list[int], slots: Slots) -> dict[int, int]:
    hits = find(run, KV, slots, [pa.array(keys, pa.int64())])
    if hits is None:
        return {}
    found = hits.rows.to_pylist()
    assert [row["k"] for row in found] == [keys[i] for i in hits.asked.tolist()]
    assert len(set(hits.asked.tolist())) == len(hits.asked), "a request is answered once"
    return {row["k"]: row["v"] for row in found}


def counting(run: Run) -> tuple[Run, list[int]]:
    """The run, and which of its blocks were touched."""
    touched: list[int] = []

    def load(index: int) -> pa.RecordBatch:
        touched.append(index)
        return run.load(index)

    return replace(run, load=load), touched


def test_keys_that_share_a_slot_can_be_applied() -> None:
    state = apply_all(StatePartition(KV), kv({3: 30, 1: 10, 2: 20}, slots=[5, 5, 5]))
    assert as_dict(state) == {1: 10, 2: 20, 3: 30}
    state = apply_all(state, kv({2: None, 4: 40, 1: 11}, slots=[5, 5, 5]))
    assert as_dict(state) == {1: 11, 3: 30, 4: 40}


def test_rows_of_one_slot_that_are_in_order_stay_as_they_are() -> None:
    batch = kv({key: key for key in range(40)}, slots=[7] * 40)
    assert sort_order(slots_of_batch(batch), KV.keys_of(batch)) is None
    backwards = batch.take(pa.array(range(39, -1, -1)))
    order = sort_order(slots_of_batch(backwards), KV.keys_of(backwards))
    assert order is not None
    assert backwards.take(pa.array(order)).equals(batch)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("slot_count", [1, 2, 5, 40])
def test_a_slot_that_goes_on_in_the_next_blocks_is_found_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, slot_count: int
) -> None:
    keys = list(range(0, 80, 2))
    batch = kv({key: -key for key in keys}, slots=[(key % slot_count) << 50 for key in keys])
    run = blocks_of(tmp_path / "a.run", batch, monkeypatch, rows)
    asked = sorted(range(80), key=lambda key: key % slot_count)
    slots = np.array([(key % slot_count) << 50 for key in asked], np.uint64)
    assert look(run, asked, slots) == {key: -key for key in keys}
    absent = sorted(range(1, 80, 2), key=lambda key: key % slot_count)
    assert look(run, absent, np.array([(k % slot_count) << 50 for k in absent], np.uint64)) == {}
    again = scanned(scan_runs([run, run], KV, bottom=True))
    assert sorted(row["k"] for row in again) == keys


def test_one_collision_does_not_read_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = [n // 2 * 2 for n in range(40)]
    batch = kv({key: key for key in range(40)}, slots=slots)
    run, touched = counting(blocks_of(tmp_path / "a.run", batch, monkeypatch, 4))
    assert len(run.blocks) == 10
    assert look(run, [21], np.array([20], np.uint64)) == {21: 21}
    assert set(touched) == {5}


def test_a_look_up_touches_only_the_blocks_that_may_have_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = kv({key: key for key in range(100)}, slots=[n * 10 for n in range(100)])
    run, touched = counting(blocks_of(tmp_path / "a.run", batch, monkeypatch, 10))
    assert look(run, [0, 5, 99], np.array([0, 55, 990], np.uint64)) == {0: 0, 99: 99}
    assert touched == [0, 9]
    assert look(run, [5], np.array([95], np.uint64)) == {}, "between two blocks"
    assert touched == [0, 9]


def test_a_key_asked_for_twice_is_answered_twice() -> None:
    run = run_of_batch(kv({1: 10, 2: 20}, slots=[5, 6]))
    keys = [pa.array([1, 1, 2, 2], pa.int64())]
    hits = find(run, KV, np.array([5, 5, 6, 6], np.uint64), keys)
    assert hits is not None
    assert hits.asked.tolist() == [0, 1, 2, 3]
    shared = run_of_batch(kv({1: 10, 2: 20}, slots=[5, 5]))
    hits = find(shared, KV, np.array([5, 5, 5, 5], np.uint64), keys)
    assert hits is not None
    answers = dict(zip(hits.asked.tolist(), hits.rows.column("v").to_pylist(), strict=True))
    assert answers == {0: 10, 1: 10, 2: 20, 3: 20}


def test_a_key_that_is_there_twice_is_named() -> None:
    with pytest.raises(UsageError, match=r"twice: \(7,\)"):
        made(KV, [{"k": 7, "v": 1}, {"k": 8, "v": 1}, {"k": 7, "v": 2}])


def test_slices_at_the_edges_of_blocks_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = kv({key: key for key in range(20)}, slots=[n // 3 for n in range(20)])
    run = blocks_of(tmp_path / "a.run", batch, monkeypatch, 4)
    for first in range(8):
        for last in range(first, 8):
            rows = scanned(run.slices(KV, SlotRange(first, last)))
            assert [row["k"] for row in rows] == [n for n in range(20) if first <= n // 3 <= last]


def test_blocks_without_a_wanted_time_are_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_file, "BLOCK_ROWS", 2)
    times = [0, 1, 10, 11, None, 20]
    rows = [{"k": n, "t": time, "v": n} for n, time in enumerate(times)]
    write_run(tmp_path / "a.run", [made(WINDOWED, rows, slots=range(6))], WINDOWED, epochs=EPOCH)
    run, touched = counting(open_run(tmp_path / "a.run"))
    found = scanned(run.slices(WINDOWED, times=TimeRange(1, 11)))
    assert [row["k"] for row in found] == [0, 1, 2, 3]
    assert touched == [0, 1]
    assert TimeRange().mask(np.array([-1, 5])).all()
    assert TimeRange(5, 6).mask(np.array([4, 5, 6])).tolist() == [False, True, False]


def test_an_arrow_batch_of_somebody_else_is_no_run() -> None:
    with pytest.raises(Corrupt, match="not a run of keyed state"):
        run_of_batch(pa.record_batch({"_slot": pa.array([1], pa.uint64())}))
    with pytest.raises(Corrupt, match="not a run of keyed state"):
        schema_of_run(pa.schema([("a", pa.int64())], {b"lamina.keys": b"x"}))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 64, 65, 10_000])
@pytest.mark.parametrize("spread", [1, 7, 2**12, 2**64 - 1])
def test_rows_come_by_slot_and_those_of_one_slot_as_they_came(rows: int, spread: int) -> None:
    """Also slots that differ only in the bits whose place the row's number takes."""
    slots = np.random.default_rng(rows).integers(0, spread, rows, np.uint64, endpoint=True)
    assert by_slot(slots).tolist() == np.argsort(slots, kind="stable").tolist()


def test_the_highest_slots_are_sorted_too() -> None:
    slots = np.array([2**64 - 1, 2**64 - 2, 0, 2**64 - 1, 2**63], np.uint64)
    assert by_slot(slots).tolist() == [2, 4, 1, 0, 3]


def test_rows_of_a_key_come_by_time_and_those_of_one_time_as_they_came() -> None:
    """Whether numbers and times have room beside each other, and beside the numbers of rows."""
    rng = np.random.default_rng(5)
    for keys, first, last in ((3, -9, 9), (1000, -(2**40), 2**40), (5, -(2**62), 2**62), (1, 7, 8)):
        key_of, times = rng.integers(0, keys, 300), rng.integers(first, last, 300)
        times[::3] = times[0]
        wanted = np.lexsort((times, key_of)).tolist()
        assert by_key_and_time(key_of, times).tolist() == wanted
        assert by_number(key_of).tolist() == np.argsort(key_of, kind="stable").tolist()
    nothing = np.zeros(0, np.int64)
    assert by_key_and_time(nothing, nothing).tolist() == by_number(nothing).tolist() == []
