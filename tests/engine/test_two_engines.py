"""Two processes on one pipeline: one of them is fenced, whatever it was doing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.errors import Fenced, Refused, StoreFull
from lamina.recovery import RecoveryConfig
from lamina.testing.faulty import Killed
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, Bomb, World, expected, kill, run_out

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)
TAKE_OVER = RecoveryConfig(take_over_home=True)


def test_a_second_process_in_the_same_home_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.open()
    run_out(first, epochs=4)
    with pytest.raises(Fenced, match="lock of this home"):
        world.open()
    run_out(first)
    first.close()
    assert world.outcome() == EXPECTED


def test_another_home_needs_a_persons_word(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.finish()
    with pytest.raises(Refused, match="take-over-home"):
        replace(world, home_name="other").open()


@pytest.mark.parametrize("place", ["before vwap", "before COMMIT", "after COMMIT", "after publish"])
def test_who_was_taken_over_in_mid_epoch_publishes_nothing_more(place: str, tmp_path: Path) -> None:
    """The other home begins at the last checkpoint; no sink is ahead of it."""
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    other = replace(world, home_name="other")
    later: list[object] = []

    def taken_over(at: str) -> None:
        if at == place and not later:
            later.append(None)
            later[0] = other.open(recovery=TAKE_OVER)

    first = world.open()
    run_out(first, epochs=3)
    first.checkpoint()
    first.close()
    first = world.open(taken_over)
    if place == "after publish":
        with pytest.raises(Exception, match="holds epoch 4"):
            run_out(first)  # the sinks are ahead of the checkpoint: nobody may take over
        kill(first)
        return
    with pytest.raises(Fenced):
        run_out(first)
    kill(first)
    (second,) = later
    run_out(second)  # type: ignore[arg-type]
    second.close()  # type: ignore[attr-defined]
    assert world.outcome() == EXPECTED


def test_a_checkpoint_of_who_was_taken_over_does_not_exist(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    first = world.open()
    run_out(first, epochs=3)
    first.checkpoint()
    second = replace(world, home_name="other").open(recovery=TAKE_OVER)
    with pytest.raises(Fenced):
        run_out(first)
    with pytest.raises(Fenced):
        first.checkpoint()
    first.close()
    run_out(second)
    second.checkpoint()
    second.close()
    assert world.outcome() == EXPECTED
    replace(world, home_name="other").finish()
    assert world.outcome() == EXPECTED


def test_an_engine_that_was_broken_off_at_its_decision_does_not_go_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.open(Bomb("after COMMIT", 2))
    with pytest.raises(Killed):
        run_out(engine)
    with pytest.raises(Refused, match="the commit was interrupted"):
        engine.step()
    engine.close()
    world.finish()
    assert world.outcome() == EXPECTED


def test_an_epoch_that_failed_before_its_decision_can_be_run_again(tmp_path: Path) -> None:
    """A runner whose cluster is full for a moment; what its tasks wrote does not count."""
    world = World(tmp_path)
    left = [("after append", 3), ("after totals", 2), ("before COMMIT", 4)]
    seen: dict[str, int] = {}

    def unavailable(place: str) -> None:
        seen[place] = seen.get(place, 0) + 1
        if (place, seen[place]) in left:
            left.remove((place, seen[place]))
            raise StoreFull("the cluster has no space")

    engine = world.open(unavailable)
    for _ in range(3):
        with pytest.raises(StoreFull):
            run_out(engine)
    run_out(engine)
    engine.close()
    assert world.outcome() == EXPECTED
