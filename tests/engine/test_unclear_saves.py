"""Answers of the store that are lost, and a base that rots: a running pipeline goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer, verify
from lamina.checkpoint import state as checkpoint_state
from lamina.engine.engine import Engine
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill

assert LIMITS.rows is not None
DATA = {"trades": TRADES[:75], "orders": ORDERS[:60]}
EXPECTED = expected(DATA, LIMITS.rows)


@pytest.fixture(autouse=True)
def every_run_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)


def run_on(engine: Engine, clock: ManualClock) -> None:
    """Every epoch; a checkpoint that fails is tried again after its back-off, as `run` does it."""
    while True:
        report = engine.step()
        if engine._saves._saving is not None:
            engine._saves._saving.join()
        clock.wait(3600)
        if report is None and engine._saves._saving is None:
            return


def test_a_lost_answer_to_any_put_of_a_checkpoint_ends_no_pipeline(tmp_path: Path) -> None:
    """The log entry had landed: all later checkpoints of the process stood on a wrong parent."""
    probe = FaultyStore(World(tmp_path / "probe", data=DATA).store)
    world, clock = World(tmp_path / "probe", data=DATA), ManualClock(1)
    engine = world.open(store=probe, clock=clock)
    opened = probe.calls["put_if_absent"]
    run_on(engine, clock)
    kill(engine)
    puts = probe.calls["put_if_absent"]
    assert puts > opened + 10
    for call in range(opened + 1, puts + 1):
        world, clock = World(tmp_path / str(call), data=DATA), ManualClock(call)
        fault = Fault("put_if_absent", FaultKind.TIMEOUT_AFTER, call=call)
        engine = world.open(store=FaultyStore(world.store, faults=[fault]), clock=clock)
        run_on(engine, clock)
        engine.checkpoint()
        engine.close()
        assert world.outcome() == EXPECTED, f"put {call}"
        assert verify(Checkpointer(world.store)).ok, f"put {call}"


def test_a_base_that_rots_under_a_running_pipeline_is_replaced_by_a_full_checkpoint(
    tmp_path: Path,
) -> None:
    world, clock = World(tmp_path, data=DATA), ManualClock(1)
    engine = world.open(clock=clock)
    while engine._saves.base is None:
        assert engine.step() is not None
        engine.finish_checkpoint()
    base = engine._saves.base
    world.store.put(Checkpointer(world.store).paths.manifest(base), b"{}")
    run_on(engine, clock)
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED
    full = [c for c in Checkpointer(world.store).list_checkpoints() if c.entry.parent is None]
    assert full
    world.finish(partitions=4)
    assert world.outcome() == EXPECTED
