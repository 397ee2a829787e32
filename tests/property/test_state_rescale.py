"""State made with any P and opened with any other: the same rows, each at its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.state import run_file, scanning
from lamina.state.changes import split
from lamina.state.layers import PlacedRun, stack
from lamina.state.merge import Merge
from lamina.state.partition import StatePartition
from lamina.state.run import Run, run_of_batch, slots_of_batch
from lamina.state.run_file import read_run
from lamina.state.vnodes import EVERYTHING, SlotRange, vnodes_of_slots
from tests.support.states import EPOCH, KV, as_dict, kv, run_bytes

POWERS = [1, 2, 4, 8, 16, 32, 64]
KEYS = 120
DEPTH = 3
MERGES = [Merge("sum", ("v",))]

EPOCHS = [
    kv({key: key for key in range(KEYS)}),
    kv(dict.fromkeys(range(0, KEYS, 3), 1000)),
    kv(dict.fromkeys(range(0, KEYS, 5))),
]
MODEL = {key: key + (0 if key % 3 else 1000) for key in range(KEYS) if key % 5}
CHANGES = kv({key: 7 if key % 2 else None for key in range(0, 2 * KEYS, 4)} | {1: 7, 5: 7})
AFTER = {**{k: v for k, v in MODEL.items() if k % 4}, 1: MODEL[1] + 7, 5: 7}


def filed(batches: Iterator[pa.RecordBatch], floor: int | None) -> Run:
    data = run_bytes(batches, KV, epochs=EPOCH, floor=floor)
    return read_run(pa.py_buffer(data), "made")


def ranges(partitions: int) -> list[SlotRange]:
    return [SlotRange.of_partition(partition, partitions) for partition in range(partitions)]


def made_with(partitions: int, as_run: Callable[[pa.RecordBatch], Run]) -> list[PlacedRun]:
    """The runs of all partitions; every epoch leaves one in each, also an empty one."""
    states = [StatePartition(KV, merges=MERGES, within=within) for within in ranges(partitions)]
    for epoch in EPOCHS:
        parts = split(epoch, ranges(partitions))
        states = [
            state.with_run(as_run(state.apply(part).run))
            for state, part in zip(states, parts, strict=True)
        ]
    return [PlacedRun(run, state.within) for state in states for run in state.runs]


def opened(placed: list[PlacedRun], partitions: int) -> list[StatePartition]:
    return [
        StatePartition(KV, stack(placed, within), merges=MERGES, within=within)
        for within in ranges(partitions)
    ]


def all_rows(states: list[StatePartition]) -> dict[int, int]:
    """Every row, once, and each at its owner."""
    found: dict[int, int] = {}
    for partition, state in enumerate(states):
        rows = as_dict(state)
        assert not rows.keys() & found.keys()
        slots = slots_of_batch(kv(dict.fromkeys(rows, 0)))
        assert np.all(vnodes_of_slots(slots) % len(states) == partition)
        found |= rows
    return found


def looked_up(states: list[StatePartition]) -> dict[int, int]:
    """Every key asked of everybody: only its owner knows it."""
    keys = range(2 * KEYS)
    asked = pa.record_batch({"k": pa.array(keys, pa.int64())})
    found: dict[int, int] = {}
    for state in states:
        looked = state.get(asked)
        for key, there, value in zip(
            keys, looked.found.tolist(), looked.values.column("v").to_pylist(), strict=True
        ):
            if there:
                assert key not in found
                found[key] = value
    return found


def check_rescaled(placed: list[PlacedRun], partitions: int) -> None:
    states = opened(placed, partitions)
    assert all(len(state.runs) == DEPTH for state in states), "no deeper than before"
    assert all_rows(states) == MODEL
    assert looked_up(states) == MODEL
    parts = split(CHANGES, ranges(partitions))
    states = [
        state.with_run(run_of_batch(state.apply(part).run))
        for state, part in zip(states, parts, strict=True)
    ]
    assert all_rows(states) == AFTER
    upper = [state.compact(range(1, DEPTH + 1), filed) for state in states]
    assert all_rows(upper) == AFTER
    whole = [state.compact(range(2), filed) for state in upper]
    assert all_rows(whole) == looked_up(whole) == AFTER
    assert sum(run.rows for state in whole for run in state.runs) == len(AFTER)


@pytest.mark.parametrize("before", POWERS)
def test_any_p_opens_what_any_p_has_written(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    for module in (run_file, scanning):
        monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    placed = made_with(before, lambda batch: filed(iter([batch]), None))
    for after in POWERS:
        check_rescaled(placed, after)


def test_a_state_that_was_rescaled_twice_is_read_from_files_of_three_ps() -> None:
    for first, second, third in product([1, 4, 16], [2, 8], [1, 4, 64]):
        placed = made_with(first, run_of_batch)
        states = opened(placed, second)
        parts = split(CHANGES, ranges(second))
        placed += [
            PlacedRun(run_of_batch(state.apply(part).run), state.within)
            for state, part in zip(states, parts, strict=True)
        ]
        final = opened(placed, third)
        assert all(len(state.runs) == DEPTH + 1 for state in final)
        assert all_rows(final) == looked_up(final) == AFTER


def test_slices_of_merged_files_stay_where_they_are(tmp_path: Path) -> None:
    """A bottom of P = 1 under runs of P = 8, opened with P = 2 and back with P = 1."""
    bottom = StatePartition(KV, [p.run for p in made_with(1, run_of_batch)])
    placed = [PlacedRun(bottom.compact(range(DEPTH), filed).runs[0], EVERYTHING)]
    placed += [
        PlacedRun(run_of_batch(part), within)
        for part, within in zip(split(kv({3: None, 8: 80}), ranges(8)), ranges(8), strict=True)
    ]
    expected = {**{k: v for k, v in MODEL.items() if k != 3}, 8: 80}
    for partitions in (1, 2, 8, 64):
        states = opened(placed, partitions)
        assert all_rows(states) == looked_up(states) == expected
        assert all(len(state.runs) == 2 for state in states)
