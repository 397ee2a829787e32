"""Runs of one P opened with another: slices, and layers of runs side by side."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lamina.state import run_file
from lamina.state.layers import PlacedRun, restricted, stack
from lamina.state.partition import StatePartition
from lamina.state.run import run_of_batch
from lamina.state.run_file import open_run, write_run
from lamina.state.vnodes import EVERYTHING, SlotRange
from tests.support.states import EPOCH, KV, TIMED, as_dict, in_files, kv, made, scanned

LOW, HIGH = SlotRange(0, 49), SlotRange(50, 99)


def test_a_slice_with_fewer_rows_than_its_share_is_not_lost() -> None:
    """The estimate of its rows was 0, and a merge passes over runs without rows."""
    run = run_of_batch(kv({key: key for key in range(20)}))
    found: dict[int, int] = {}
    for partition in range(64):
        within = SlotRange.of_partition(partition, 64)
        state = StatePartition(KV, stack([PlacedRun(run, EVERYTHING)], within), within=within)
        rows = as_dict(state)
        if rows:
            assert state.statistics().rows > 0
        found |= rows
    assert found == {key: key for key in range(20)}


def test_a_slice_without_rows_is_empty_and_not_an_error() -> None:
    run = run_of_batch(kv({1: 1, 2: 2}, slots=[10, 90]))
    for within in (SlotRange(20, 30), SlotRange(91, 99), SlotRange(0, 9)):
        state = StatePartition(KV, [restricted(run, within)], within=within)
        assert as_dict(state) == {}
        assert not state.get(pa.record_batch({"k": pa.array([1, 2], pa.int64())})).found.any()
    assert restricted(run, SlotRange(91, 99)).size == 0


def test_a_slice_does_not_touch_blocks_outside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_file, "BLOCK_ROWS", 10)
    write_run(tmp_path / "a", [kv({k: k for k in range(100)}, slots=range(100))], KV, epochs=EPOCH)
    part = restricted(open_run(tmp_path / "a"), SlotRange(25, 44))
    assert [(block.first_slot, block.last_slot) for block in part.blocks] == [
        (25, 29),
        (30, 39),
        (40, 44),
    ]
    assert [row["k"] for row in scanned(part.slices(KV))] == list(range(25, 45))
    edges = restricted(open_run(tmp_path / "a"), SlotRange(29, 40))
    assert [row["k"] for row in scanned(edges.slices(KV))] == list(range(29, 41))


def test_runs_side_by_side_are_one_layer_in_the_order_of_slots() -> None:
    high = run_of_batch(kv({1: 1, 2: 2}, slots=[50, 99]), name="high")
    low = run_of_batch(kv({3: 3, 4: 4}, slots=[0, 49]), name="low")
    (layer,) = stack([PlacedRun(high, HIGH), PlacedRun(low, LOW)], EVERYTHING)
    assert layer.name == "low + high"
    assert [part.name for part in layer.parts] == ["low", "high"]
    assert [row["k"] for row in scanned(layer.slices(KV))] == [3, 4, 1, 2]
    assert (layer.rows, layer.size) == (4, low.size + high.size)
    statistics = StatePartition(KV, [layer]).statistics()
    assert (statistics.runs, statistics.read_amplification) == (2, 1.0)


def test_a_newer_run_of_a_part_is_above_the_older_whole() -> None:
    placed = [
        PlacedRun(run_of_batch(kv({1: 1, 2: 2}, slots=[10, 60])), EVERYTHING),
        PlacedRun(run_of_batch(kv({1: 10}, slots=[10])), LOW),
        PlacedRun(run_of_batch(kv({2: 20}, slots=[60])), HIGH),
        PlacedRun(run_of_batch(kv({1: 100}, slots=[10])), LOW),
    ]
    assert as_dict(StatePartition(KV, stack(placed, EVERYTHING))) == {1: 100, 2: 20}
    assert len(stack(placed, EVERYTHING)) == 3
    assert len(stack(placed, HIGH)) == 2, "runs of other parts do not make it deeper"
    assert as_dict(StatePartition(KV, stack(placed, HIGH), within=HIGH)) == {2: 20}


def test_rows_of_a_run_outside_its_part_do_not_count(tmp_path: Path) -> None:
    """One file, of which another took the upper half over: its rows there are old."""
    whole = run_of_batch(kv({1: 1, 2: 2, 3: 3}, slots=[10, 60, 70]))
    upper = run_of_batch(kv({2: 20}, slots=[60]))
    layers = stack([PlacedRun(whole, LOW), PlacedRun(upper, HIGH)], EVERYTHING)
    state = StatePartition(KV, layers)
    assert len(layers) == 1
    assert as_dict(state) == {1: 1, 2: 20}
    assert as_dict(state.compact(range(1), in_files(tmp_path, KV))) == {1: 1, 2: 20}
    done = state.apply(kv({2: 5, 3: 5}, slots=[60, 70]))
    assert done.old.values.column("v").to_pylist() == [20, None]


def test_runs_of_empty_partitions_make_an_empty_layer(tmp_path: Path) -> None:
    empty = kv({}).slice(0, 0)
    placed = [PlacedRun(run_of_batch(empty), LOW), PlacedRun(run_of_batch(empty), HIGH)]
    state = StatePartition(KV, stack(placed, EVERYTHING))
    assert as_dict(state) == {}
    merged = state.compact(range(1), in_files(tmp_path, KV))
    assert as_dict(merged) == {}
    assert stack([], EVERYTHING) == ()


def test_what_a_floor_hid_stays_hidden_in_a_layer() -> None:
    rows = [{"k": n, "v": n, "t": n} for n in range(10)]
    whole = made(TIMED, rows, slots=[n * 10 for n in range(10)])
    floors = pa.RecordBatch.from_pylist([], TIMED.run_with(4))
    placed = [
        PlacedRun(run_of_batch(whole), EVERYTHING),
        PlacedRun(run_of_batch(floors), LOW),
        PlacedRun(run_of_batch(floors), HIGH),
    ]
    for within in (EVERYTHING, LOW, HIGH):
        state = StatePartition(TIMED, stack(placed, within), within=within)
        assert state.floor == 4
        kept = [n for n in range(4, 10) if within.first <= n * 10 <= within.last]
        assert [row["k"] for row in scanned(state.scan())] == kept
