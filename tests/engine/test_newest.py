"""The newest checkpoint is of the line that counts, not one that a person gave up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lamina
from lamina.checkpoint import Checkpointer
from lamina.checkpoint.commit_log import CommitLog
from lamina.recovery import RecoveryConfig
from lamina.store import open_store
from lamina.testing.faulty import Killed
from tests.engine.pipelines import World, kill, run_out


def newest(world: World) -> int | None:
    found = Checkpointer(world.store).history().newest
    return None if found is None else found.epoch


def with_checkpoints(root: Path, *, every: int, epochs: int = 6) -> World:
    world = World(root)
    world.settings = replace(world.settings, checkpoint_epochs=every, retain=9)
    engine = world.open()
    run_out(engine, epochs=epochs)
    engine.close()
    return world


@pytest.mark.parametrize(("every", "lands_on"), [(1, 4), (2, 4), (3, 3)])
def test_after_a_loss_the_newest_was_the_checkpoint_that_was_given_up(
    every: int, lands_on: int, tmp_path: Path
) -> None:
    world = with_checkpoints(tmp_path, every=every)
    assert newest(world) == 6
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open(recovery=RecoveryConfig(lose_after=4))
    assert (engine.epoch, newest(world)) == (4, lands_on)
    run_out(engine, epochs=2)
    kill(engine)
    engine = world.open()
    assert (engine.epoch, newest(world)) == (8, lands_on)
    engine.checkpoint()
    engine.close()
    assert newest(world) == 8


def test_a_checkpoint_below_the_one_that_was_given_up_is_the_newest(tmp_path: Path) -> None:
    """It holds epoch 5, and one of epoch 6 is still there."""
    world = with_checkpoints(tmp_path, every=3)
    engine = world.open(recovery=RecoveryConfig(lose_after=5))
    engine.checkpoint()
    engine.close()
    assert newest(world) == 5
    world.open().close()
    assert newest(world) == 5


def test_after_a_fresh_start_no_old_checkpoint_is_the_newest(tmp_path: Path) -> None:
    world = with_checkpoints(tmp_path, every=3)
    world.open(recovery=RecoveryConfig(start_fresh=True)).close()
    assert newest(world) is None
    engine = world.open()
    assert (engine.epoch, newest(world)) == (0, None)
    run_out(engine, epochs=1)
    engine.checkpoint()
    engine.close()
    assert newest(world) == 7


def test_a_loss_that_was_not_adopted_takes_its_word_back(tmp_path: Path) -> None:
    """Killed between the TAKEOVER that gives up and the ADOPT: nothing is given up."""
    world = with_checkpoints(tmp_path, every=1)
    log_of = Checkpointer(world.store)
    history = log_of.history()
    tip = str(history.checkpoints[2].id)
    log = CommitLog(world.store, log_of.paths)
    log.take_over(history.home, generation=history.generation + 7, tip=tip)
    assert newest(world) == 3
    engine = world.open()
    assert (engine.epoch, newest(world)) == (6, 6)
    engine.close()


def test_a_rewind_moves_the_newest_and_a_killed_one_does_not(tmp_path: Path) -> None:
    with lamina.open(tmp_path, retain=9) as store:
        for value in (b"1", b"2", b"3"):
            store.put(b"k", value)
            store.commit()
            store.checkpoint()
            store.wait_for_checkpoint()
        store.rewind(1)
    checkpointer = Checkpointer(open_store(str(tmp_path / "checkpoints")))
    found = checkpointer.history().newest
    assert found is not None
    assert found.epoch == 1
    with lamina.open(tmp_path, retain=9) as store:
        assert store.get(b"k") == b"1"
        store.put(b"k", b"4")
        store.commit()
        store.checkpoint()
        store.wait_for_checkpoint()
        store._driver.commit = _killed  # type: ignore[method-assign]
        with pytest.raises(Killed):
            store.rewind(2)
        assert checkpointer.history().newest == checkpointer.history().checkpoints[1]
        store._recovered.close()
    with lamina.open(tmp_path, retain=9) as store:
        assert store.get(b"k") == b"4"
    found = checkpointer.history().newest
    assert found is not None
    assert found.epoch == 5


def _killed(_: object) -> None:
    raise Killed("between REWIND and COMMIT")
