"""Slots are found wherever they lie: spread, crowded, several times, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.state.slot_index import FEW, SlotIndex
from lamina.state.vnodes import Slots

ROWS = 4096


def spread(random: np.random.Generator) -> Slots:
    return np.sort(random.integers(0, 2**64 - 1, ROWS, np.uint64, endpoint=True))


def crowded(random: np.random.Generator) -> Slots:
    """Nearly all of them in one corner, so that a table by upper bits tells nothing."""
    return np.sort(np.r_[random.integers(0, 9999, ROWS, np.uint64), np.uint64(2**64 - 1)])


def repeated(random: np.random.Generator) -> Slots:
    return np.repeat(spread(random)[::8], 8)


def one_slot(_: np.random.Generator) -> Slots:
    return np.full(ROWS, 7, np.uint64)


def one_row(_: np.random.Generator) -> Slots:
    return np.array([2**63], np.uint64)


@pytest.mark.parametrize("make", [spread, crowded, repeated, one_slot, one_row])
@pytest.mark.parametrize("count", [1, FEW, ROWS // 64 * 2, ROWS])
def test_every_slot_is_found_at_its_first_row(make: object, count: int) -> None:
    assert callable(make)
    random = np.random.default_rng(count)
    slots: Slots = make(random)
    there = random.choice(slots, count)
    beside = random.integers(0, 2**64 - 1, count, np.uint64, endpoint=True)
    wanted = np.unique(np.r_[there, beside, there + np.uint64(1), slots[:1], slots[-1:]])
    index = SlotIndex()
    for asked in (wanted, wanted[: FEW // 2], wanted[::3]):
        which, rows = index.find(slots, asked)
        expected = np.flatnonzero(np.isin(asked, slots))
        assert which.tolist() == expected.tolist()
        assert rows.tolist() == np.searchsorted(slots, asked[expected]).tolist()


def test_a_block_without_rows_has_no_slots() -> None:
    which, rows = SlotIndex().find(np.zeros(0, np.uint64), np.arange(3, dtype=np.uint64))
    assert not which.size
    assert not rows.size
