"""Two drivers, two homes, one store, one sink: the code that ships, under the scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import LaminaError
from lamina.format import commit as format_commit
from lamina.format.commit import AdoptRecord
from lamina.recovery import manager
from lamina.wal import driver_log, segment
from tests.crash import pipeline
from tests.crash.disk import RecordingLock
from tests.crash.pipeline import Broken
from tests.sim.real_run import Outcome, run_real_seed
from tests.sim.real_world import PausingDisk

SEEDS = max(50, int(os.environ.get("LAMINA_SIM_SEEDS", "150")) // 4)
FIRST = int(os.environ.get("LAMINA_SIM_FIRST", "0"))
SEEDS_MAX = 100
Patch = Callable[[Any, str, Any], None]


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
    assert totals.forgotten > SEEDS // 25
    assert totals.moves > 0
    assert totals.losses > SEEDS // 10


def test_the_guarantees_hold_when_every_adopt_is_several_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_commit, "ADOPT_BYTES_MAX", 1)
    for seed in range(FIRST, FIRST + SEEDS // 5):
        run_real_seed(seed, tmp_path)


def test_a_seed_of_the_real_code_replays_to_the_same_outcome(tmp_path: Path) -> None:
    assert run_real_seed(3, tmp_path) == run_real_seed(3, tmp_path)


# The rules are needed: without any one of them the same seeds fail.


def nothing_is_replayed(patch: Patch) -> None:
    patch(manager, "_prove", lambda *_: ())


def a_commit_is_acknowledged_before_its_sync(patch: Patch) -> None:
    patch(segment.SegmentWriter, "sync", lambda _: None)


def adopted_commits_are_not_copied(patch: Patch) -> None:
    adopt = driver_log.DriverLog.adopt
    headless = AdoptRecord(None, ())
    patch(driver_log.DriverLog, "adopt", lambda self, _: adopt(self, headless))


def a_driver_does_not_look_for_a_newer_segment(patch: Patch) -> None:
    patch(driver_log.DriverLog, "_check_owner", lambda _: None)


def segments_are_dropped_whatever_they_hold(patch: Patch) -> None:
    patch(pipeline, "wal_floor", lambda *_: 1 << 40)


def two_tasks_have_the_lock_of_one_core(patch: Patch) -> None:
    def granted(self: PausingDisk, path: str) -> RecordingLock:
        return RecordingLock(self, path)

    patch(PausingDisk, "try_lock", granted)


def what_a_sink_counts_as_is_forgotten(patch: Patch) -> None:
    patch(driver_log.DriverLog, "sinks", {})


MUTANTS = [
    what_a_sink_counts_as_is_forgotten,
    nothing_is_replayed,
    a_commit_is_acknowledged_before_its_sync,
    adopted_commits_are_not_copied,
    a_driver_does_not_look_for_a_newer_segment,
    segments_are_dropped_whatever_they_hold,
    two_tasks_have_the_lock_of_one_core,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_the_real_code_fails_when_a_rule_is_broken(
    mutant: Callable[[Patch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch.setattr)
    for seed in range(SEEDS_MAX):
        try:
            run_real_seed(seed, tmp_path)
        except (Broken, LaminaError, AssertionError) as caught:
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"{SEEDS_MAX} seeds without a complaint: the rule or the simulation is idle")
