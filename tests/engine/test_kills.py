"""Killed at every step of an epoch and of a checkpoint: the result is that of a run without."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.testing.faulty import Killed
from tests.engine.pipelines import (
    LIMITS,
    ORDERS,
    STREAMS,
    TRADES,
    Bomb,
    World,
    expected,
    kill,
    run_out,
)

PLACES = (
    *(f"{when} {stream.name}" for stream in STREAMS for when in ("before", "after")),
    "before append",
    "after append",
    "before stage",
    "after stage",
    "before COMMIT",
    "after COMMIT",
    "before publish",
    "after publish",
    "before note",
    "before rotate",
    "after rotate",
    "before drop",
    "dropped driver",
    "dropped cores",
    "dropped staged",
    "after sweep",
)
assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


def test_without_a_kill_the_result_is_that_of_plain_python(tmp_path: Path) -> None:
    world, bomb = World(tmp_path), Bomb()
    engine = world.open(bomb)
    run_out(engine)
    engine.close()
    assert world.outcome() == EXPECTED
    assert set(bomb.seen) == set(PLACES), "a place that no test kills at"


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_step_loses_and_doubles_nothing(place: str, tmp_path: Path) -> None:
    """Twice: the first time that it gets there, and after that recovery the second time."""
    world = World(tmp_path)
    for nth in (1, 2):
        engine = world.open(Bomb(place, nth))
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED
