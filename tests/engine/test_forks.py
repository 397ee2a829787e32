"""A fork runs beside its origin: each has the rows it would have alone, whatever the other does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import (
    Checkpointer,
    create_savepoint,
    drop_savepoint,
    list_savepoints,
    run_gc,
    verify,
)
from lamina.checkpoint.forking import fork_checkpoint
from lamina.recovery import RecoveryConfig
from lamina.store import Store, open_store
from tests.engine.pipelines import LIMITS, ORDERS, PLAN, TRADES, World, expected, kill, run_out

FROM_NOW = RecoveryConfig(sinks_from_now=frozenset(PLAN.sinks))
DATA = {"trades": TRADES, "orders": ORDERS}


@pytest.fixture(autouse=True)
def every_run_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of these tests is so small that manifests would hold it."""
    monkeypatch.setattr("lamina.checkpoint.state.INLINE_BYTES_MAX", 0)


def store_at(folder: Path) -> Store:
    return open_store(str(folder / "store"))


def started(tmp_path: Path, epochs: int) -> World:
    """A pipeline after some epochs, and its checkpoint called `here`."""
    world = World(tmp_path / "p", store=store_at(tmp_path / "p"))
    engine = world.open()
    run_out(engine, epochs=epochs)
    engine.checkpoint()
    engine.close()
    create_savepoint(Checkpointer(world.store), "here")
    return world


def fork_of(world: World, folder: Path) -> World:
    """As `lamina fork` makes one: a place, a name and sinks of its own."""
    fork = World(
        folder, store=store_at(folder), plan=replace(PLAN, pipeline="q", pipeline_hash="cd" * 32)
    )
    source = Checkpointer(world.store)
    fork_checkpoint(source, source.history().pins["here"], Checkpointer(fork.store))
    return fork


@pytest.mark.parametrize("fork_first", [True, False])
def test_both_go_on_with_the_rows_they_would_have_alone(tmp_path: Path, fork_first: bool) -> None:
    world = started(tmp_path, epochs=4)
    before = world.outcome()
    fork = fork_of(world, tmp_path / "q")
    Checkpointer(world.store).log.unpin("here")
    if fork_first:
        fork.open(recovery=FROM_NOW).close()
        fork.finish()
        world.finish()
    else:
        world.finish()
        run_gc(Checkpointer(world.store), retain=1)
        fork.open(recovery=FROM_NOW).close()
        fork.finish()
    assert LIMITS.rows is not None
    whole = expected(DATA, LIMITS.rows)
    assert world.outcome() == whole
    assert fork.outcome() == {name: rows[len(before[name]) :] for name, rows in whole.items()}
    assert verify(Checkpointer(world.store)).ok
    assert verify(Checkpointer(fork.store)).ok


def test_a_fork_that_is_killed_and_rescaled_is_exact(tmp_path: Path) -> None:
    world = started(tmp_path, epochs=3)
    before = world.outcome()
    fork = fork_of(world, tmp_path / "q")
    engine = fork.open(recovery=FROM_NOW)
    run_out(engine, epochs=2)
    kill(engine)
    fork.finish(partitions=4)
    assert LIMITS.rows is not None
    whole = expected(DATA, LIMITS.rows)
    assert fork.outcome() == {name: rows[len(before[name]) :] for name, rows in whole.items()}


def test_the_engine_of_a_fork_gives_the_savepoint_back_and_not_too_early(tmp_path: Path) -> None:
    world = started(tmp_path, epochs=4)
    fork = fork_of(world, tmp_path / "q")
    drop_savepoint(Checkpointer(world.store), "here")
    origin = tmp_path / "q" / "store" / "origin.json"
    steps: list[bool] = []
    engine = fork.open(recovery=FROM_NOW)
    while run_out(engine, epochs=1):
        engine.checkpoint()
        for each in (world, fork):
            run_gc(Checkpointer(each.store), retain=1)
        shares = bool(list_savepoints(Checkpointer(world.store)))
        assert shares == origin.exists()
        assert verify(Checkpointer(fork.store)).ok
        steps.append(shares)
    engine.close()
    assert steps[0], "what has not changed is still that of the origin"
    assert not steps[-1], "by now every run was compacted"
    assert steps == sorted(steps, reverse=True)
