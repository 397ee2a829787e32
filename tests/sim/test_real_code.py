"""Two drivers, two homes, one store, one sink: the code that ships, under the scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.crash.inline import patch_inline
from tests.sim.real_run import Outcome, run_real_seed

SEEDS = int(os.environ.get("LAMINA_SIM_SEEDS", "500")) // 4
FIRST = int(os.environ.get("LAMINA_SIM_FIRST", "0"))
SEEDS_MAX = 200
Patch = Callable[[Any, str, Any], None]


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_inline(monkeypatch)


def test_the_guarantees_hold_for_the_real_code_under_every_seed(tmp_path: Path) -> None:
    found = [astuple(run_real_seed(seed, tmp_path)) for seed in range(FIRST, FIRST + SEEDS)]
    totals = Outcome(*map(sum, zip(*found, strict=True)))
    print(f"{SEEDS} seeds: {totals}")
    # A simulation in which nothing happens proves nothing.
    assert totals.recoveries > 3 * SEEDS
    assert totals.epochs > 5 * SEEDS
    assert totals.replayed > 2 * SEEDS
    assert totals.checkpoints > SEEDS
    assert min(totals.dropped, totals.cuts, totals.kills) > SEEDS
    assert totals.forgotten > SEEDS // 10
    assert totals.moves > SEEDS // 50


def test_a_seed_of_the_real_code_replays_to_the_same_outcome(tmp_path: Path) -> None:
    assert run_real_seed(3, tmp_path) == run_real_seed(3, tmp_path)
