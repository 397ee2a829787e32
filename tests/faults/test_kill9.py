"""kill -9 at random times against the writing process; one history over all rounds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from lamina.clock import SystemClock
from tests.faults.model import LONG, SEED, Folders, Oracle, check_fallback, check_home
from tests.faults.process import running

ROUNDS = 200 if LONG else 20
SECONDS_MAX = 0.4
"""Early moments are likelier: some rounds die while they recover."""


def test_no_acknowledged_epoch_is_lost_to_kill_9(tmp_path: Path) -> None:
    folders, oracle = Folders.below(tmp_path), Oracle(SEED)
    draw, acked, fallbacks = random.Random(SEED), 0, 0
    for number in range(ROUNDS):
        least = acked
        acked = max(acked, write_and_kill(folders, draw.random() ** 2 * SECONDS_MAX))
        assert acked >= least
        fallbacks += check_a_copy(folders, tmp_path / f"copy-{number}", oracle, acked)
    assert acked > ROUNDS, "hardly anything was ever written"
    assert fallbacks, "there was never an older checkpoint"
    assert check_home(folders, oracle, acked) >= acked


def write_and_kill(folders: Folders, seconds: float) -> int:
    """One life of the process; returns the last epoch it acknowledged."""
    with running(folders) as process:
        process.wait_for_begin()
        SystemClock().wait(seconds)
        return process.kill()


def check_a_copy(folders: Folders, copy: Path, oracle: Oracle, acked: int) -> bool:
    """The original stays as the kill left it: the next life must cope with it by itself.

    True if there was an older checkpoint to fall back to, and that was tried too.
    """
    copied = Folders.below(copy)
    try:
        for source, target in ((folders.home, copied.home), (folders.store, copied.store)):
            if source.exists():  # the first life may die before it has made them
                shutil.copytree(source, target)
        return check_fallback(copied, oracle, check_home(copied, oracle, acked))
    finally:
        shutil.rmtree(copy)
