"""Several runs as one: the newest row of each key, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.state import run_file, scanning
from lamina.state.run import Run, run_of_batch, slots_of_batch
from lamina.state.run_file import open_run, write_run
from lamina.state.scanning import highest, newest_rows, scan_runs
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange
from tests.support.states import EPOCH, KV, TIMED, kv, made, scanned

KIB = 1024


def small_blocks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in (run_file, scanning):
        monkeypatch.setattr(module, "BLOCK_ROWS", rows)


def filed(path: Path, batch: pa.RecordBatch, schema: StateSchema = KV) -> Run:
    write_run(path, [batch], schema, epochs=EPOCH)
    return open_run(path)


def test_the_newest_run_wins_also_with_a_delete() -> None:
    runs = [
        run_of_batch(kv({1: 1, 2: 2, 3: 3, 4: 4})),
        run_of_batch(kv({2: 20, 3: None})),
        run_of_batch(kv({3: 300, 4: None})),
    ]
    rows = scanned(scan_runs(runs, KV, bottom=False))
    assert {row["k"]: (row["_op"], row["v"]) for row in rows} == {
        1: (0, 1),
        2: (0, 20),
        3: (0, 300),
        4: (1, None),
    }
    live = scanned(scan_runs(runs, KV, bottom=True))
    assert {row["k"]: row["v"] for row in live} == {1: 1, 2: 20, 3: 300}


def test_a_merge_is_in_order_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 3)
    runs = [
        filed(tmp_path / "a", kv(dict.fromkeys(range(60), 1), slots=[k // 4 for k in range(60)])),
        filed(
            tmp_path / "b", kv(dict.fromkeys(range(9, 50), 2), slots=[k // 4 for k in range(9, 50)])
        ),
        filed(tmp_path / "c", kv(dict.fromkeys(range(30, 33), 3), slots=[7, 7, 8])),
    ]
    batches = list(scan_runs(runs, KV, bottom=True))
    slots = [int(slot) for batch in batches for slot in slots_of_batch(batch)]
    assert slots == sorted(slots)
    expected = {k: 3 if 30 <= k < 33 else 2 if 9 <= k < 50 else 1 for k in range(60)}
    assert {row["k"]: row["v"] for row in scanned(batches)} == expected
    for first in range(0, 16, 3):
        part = scanned(scan_runs(runs, KV, within=SlotRange(first, first + 4), bottom=True))
        assert {row["k"] for row in part} == {k for k in range(60) if first <= k // 4 <= first + 4}


def test_what_is_merged_can_be_written_and_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 4)
    runs = [filed(tmp_path / str(n), kv(dict.fromkeys(range(n, 40, n + 1), n))) for n in range(5)]
    write_run(tmp_path / "low", scan_runs(runs[:3], KV, bottom=True), KV, epochs=EPOCH)
    write_run(tmp_path / "high", scan_runs(runs[3:], KV, bottom=False), KV, epochs=EPOCH)
    halves = [open_run(tmp_path / "low"), open_run(tmp_path / "high")]
    assert scanned(scan_runs(halves, KV, bottom=True)) == scanned(scan_runs(runs, KV, bottom=True))


def test_floors_of_all_runs_hold_and_the_highest_wins() -> None:
    rows = [{"k": n, "v": n, "t": n} for n in range(6)]
    floors = [run_of_batch(pa.RecordBatch.from_pylist([], TIMED.run_with(n))) for n in (3, 2)]
    runs = [run_of_batch(made(TIMED, rows)), *floors]
    kept = scanned(scan_runs(runs, TIMED, bottom=True))
    assert sorted(row["k"] for row in kept) == [3, 4, 5]
    kept = scanned(scan_runs(runs, TIMED, bottom=True, floor=5))
    assert [row["k"] for row in kept] == [5]
    assert highest([]) is None
    assert highest([None, -5, None]) == -5


def test_runs_with_different_floors_can_be_joined() -> None:
    rows = made(TIMED, [{"k": 1, "v": 1, "t": 9}])
    other = made(TIMED, [{"k": 2, "v": 2, "t": 9}])
    floored = other.replace_schema_metadata(TIMED.run_with(5).metadata)
    runs = [run_of_batch(rows), run_of_batch(floored)]
    assert sorted(row["k"] for row in scanned(scan_runs(runs, TIMED, bottom=True))) == [1, 2]


def test_one_run_alone_is_passed_on_without_a_copy() -> None:
    batch = kv({key: key for key in range(10)})
    assert newest_rows([batch], KV) is batch
    (passed,) = scan_runs([run_of_batch(batch)], KV, bottom=True)
    assert passed.column("k").buffers()[1].address == batch.column("k").buffers()[1].address


def _peak(batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """The most that Arrow held while somebody walked through, and the largest batch."""
    before, peak, largest = pa.total_allocated_bytes(), 0, 0
    for batch in batches:
        peak = max(peak, pa.total_allocated_bytes() - before)
        largest = max(largest, batch.nbytes)
    return peak, largest


def test_a_merge_holds_a_few_blocks_and_not_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 512)
    keys = range(40_000)
    runs = [
        filed(tmp_path / str(n), kv({k: n for k in keys if k % (n + 1) == 0})) for n in range(4)
    ]
    total = sum(run.size for run in runs)
    block = max(block.size for run in runs for block in run.blocks)
    peak, _ = _peak(scan_runs(runs, KV, bottom=True))
    assert peak < 20 * block < total / 4


def test_a_merge_of_long_values_is_bounded_by_bytes_and_not_only_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (run_file, scanning):
        monkeypatch.setattr(module, "BLOCK_BYTES", 64 * KIB)
    schema = StateSchema(KV.key, pa.schema([("v", pa.string())]))
    long = [{"k": key, "v": f"{key:04}" * KIB} for key in range(1_000)]
    runs = [
        filed(tmp_path / "a", made(schema, long), schema),
        filed(tmp_path / "b", made(schema, long[::2]), schema),
    ]
    total = sum(run.size for run in runs)
    assert total > 5_000 * KIB
    peak, largest = _peak(scan_runs(runs, schema, bottom=True))
    assert largest < 512 * KIB
    assert peak < 2_000 * KIB
    assert len(scanned(scan_runs(runs, schema, bottom=True))) == 1_000
