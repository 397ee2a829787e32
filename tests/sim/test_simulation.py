"""Many seeds: two drivers in two homes, twins, sinks, rewinds, pins, gc, kills, power cuts."""

from __future__ import annotations

import os
from dataclasses import astuple

from tests.sim.run import RARE, run_seed

SEEDS = int(os.environ.get("LAMINA_SIM_SEEDS", "150"))
FIRST = int(os.environ.get("LAMINA_SIM_FIRST", "0"))


def test_the_ten_guarantees_hold_under_every_seed() -> None:
    totals = [0] * 6
    for seed in (RARE, *range(FIRST, FIRST + SEEDS)):
        totals = [sum(pair) for pair in zip(totals, astuple(run_seed(seed)), strict=True)]
    # A simulation in which nothing happens proves nothing.
    recoveries, epochs, checkpoints, rewinds, deleted, fallbacks = totals
    assert recoveries > 3 * SEEDS
    assert epochs > 10 * SEEDS
    assert checkpoints > 2 * SEEDS
    assert min(rewinds, deleted) > SEEDS // 4
    assert fallbacks > SEEDS // 50


def test_a_seed_replays_to_the_same_outcome() -> None:
    assert run_seed(7) == run_seed(7)
