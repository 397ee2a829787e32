"""A merge that makes another one due is one merge: no row is written twice in one epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lamina.state.changes import changes
from lamina.state.partition import StatePartition
from lamina.state.run import run_of_batch
from lamina.state.scanning import STEP_ROWS, scan_runs
from lamina.state.schema import StateSchema

MIB = 1024 * 1024
SCHEMA = StateSchema(pa.schema([("key", pa.int64())]), pa.schema([("value", pa.int64())]))


def rows(keys: np.ndarray, value: int) -> pa.RecordBatch:
    values = np.full(len(keys), value)
    return changes(SCHEMA, pa.record_batch({"key": keys, "value": values}))


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([900, 3, 3], None),
        ([900, 3, 3, 3], range(1, 4)),
        ([900, 9, 9, 3, 3, 3], range(1, 6)),
        ([900, 29, 29, 9, 9, 3, 3, 3], range(1, 8)),
        ([900, 29, 9, 9, 3, 3, 3], range(2, 7)),
    ],
)
def test_tiers_that_fill_one_another_become_one_run(sizes: list[int], chosen: range | None) -> None:
    run = run_of_batch(rows(np.arange(3), 1))
    runs = [replace(run, size=size * MIB) for size in sizes]
    assert StatePartition(SCHEMA, runs).plan_compaction(fan_out=3) == chosen


def test_a_window_is_merged_in_steps_and_the_newest_value_of_every_key_stays() -> None:
    old = run_of_batch(rows(np.arange(STEP_ROWS * 3), 1))
    new = run_of_batch(rows(np.arange(0, STEP_ROWS * 3, 3), 2))
    batches = list(scan_runs([old, new], SCHEMA, bottom=True))
    assert len(batches) > 1
    table = pa.Table.from_batches(batches).sort_by("key")
    assert table["key"].to_pylist() == list(range(STEP_ROWS * 3))
    assert table["value"].to_pylist() == [2, 1, 1] * STEP_ROWS
