"""Killed at every object that a checkpoint puts: uploads, manifest, log entry, hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.checkpoint import state as checkpoint_state
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill, run_out

assert LIMITS.rows is not None
DATA = {"trades": TRADES[:75], "orders": ORDERS[:60]}
EXPECTED = expected(DATA, LIMITS.rows)


@pytest.fixture(autouse=True)
def every_run_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)


def run_with(world: World, *faults: Fault) -> FaultyStore:
    """One process on a store with faults; it ends as a kill does, whenever one strikes."""
    store = FaultyStore(world.store, faults=faults)
    engine = world.open(store=store)
    try:
        run_out(engine)
    finally:
        kill(engine)
    return store


@pytest.mark.parametrize("when", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
@pytest.mark.parametrize("operation", ["put_if_absent", "put"])
def test_a_kill_at_any_put_loses_and_doubles_nothing(
    operation: str, when: FaultKind, tmp_path: Path
) -> None:
    puts = run_with(World(tmp_path / "probe", data=DATA)).calls[operation]
    assert puts > 1
    for call in range(1, puts + 1):
        world = World(tmp_path / str(call), data=DATA)
        with pytest.raises(Killed):
            run_with(world, Fault(operation, when, call=call))
        world.finish()
        assert world.outcome() == EXPECTED, f"{operation} {call}"
