"""Checkpoints go along with a home that moves: the same log, ids and bytes, killed anywhere."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.checkpoint.forking import fork_checkpoint
from lamina.checkpoint.savepoints import create_savepoint
from lamina.errors import Corrupt, Fenced, LaminaError, Refused
from lamina.recovery.moving import MoveReport, move_home
from lamina.recovery.moving_stores import StoreMove
from lamina.store import Data, MemoryStore, Store, open_store
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from tests.engine.pipelines import PROCESSES, kill, run_out
from tests.engine.test_kills import EXPECTED
from tests.engine.test_moved_homes import Places, again, begun

STEP = 1 if os.environ.get("LAMINA_MOVE_KILLS") == "all" else 11


@dataclass
class Both(Places):
    """A home and its store move together; each place has a store of its own."""

    def along(self, source: str, target: str, through: Store | None = None) -> MoveReport:
        clock = ManualClock(next(PROCESSES))
        stores = StoreMove(
            Checkpointer(self.saved(source), clock=clock),
            Checkpointer(through or self.saved(target), clock=clock),
            where=f"the store of {target}",
        )
        at = self.place(source, clock)
        return move_home(at, self.destination(target), clock=clock, stores=stores)

    def saved(self, at: str) -> Store:
        return open_store(str(self.root / f"{at}-store"), probe=False)

    def go(self, at: str) -> None:
        self.at, self.store = at, self.saved(at)


def started(root: Path, at: str = "local") -> Both:
    world = Both(root)
    world.go(at)
    begun(world, at)
    return world


def test_there_and_on_and_back_with_checkpoints_at_each_place(tmp_path: Path) -> None:
    """Back into a store that has what was there before: the log goes on behind it."""
    world = started(tmp_path)
    create_savepoint(Checkpointer(world.store), "kept")
    places = ("local", "remote", "remote-2", "local-2")
    for source, target in pairwise(places):
        before = Checkpointer(world.saved(source)).history()
        told = world.along(source, target)
        assert told.store == f"the store of {target}"
        assert told.objects > 0
        world.go(target)
        after = Checkpointer(world.store).history()
        assert after.checkpoints == before.checkpoints
        assert after.pins == before.pins
        engine = world.open()
        run_out(engine, epochs=2)
        engine.checkpoint()
        kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED


def test_killed_at_any_call_of_the_new_store_the_same_move_goes_on(tmp_path: Path) -> None:
    first = started(tmp_path / "begun")
    counted = FaultyStore(MemoryStore())
    with_clock = replace(again(first, "counted"), at="local")
    assert isinstance(with_clock, Both)
    with_clock.along("local", "remote", counted)
    seen = 0
    for operation in ("put", "put_if_absent", "get", "list"):
        for call in range(counted.calls[operation], 0, -STEP):
            world = again(first, f"{operation}-{call}")
            assert isinstance(world, Both)
            kind = FaultKind.KILL_AFTER if "put" in operation else FaultKind.KILL_BEFORE
            fault = [Fault(operation, kind, call)]
            with pytest.raises(Killed):
                world.along("local", "remote", FaultyStore(world.saved("remote"), 0, fault))
            if call % 2:
                world.go("local")
                engine = world.open()  # it is still there, and may go on
                run_out(engine, epochs=1)
                kill(engine)
            world.along("local", "remote")
            world.go("remote")
            kill(world.open())
            seen += 1
            if call == counted.calls[operation]:
                world.finish()
                assert world.outcome() == EXPECTED, operation
    assert seen >= 4


def test_another_history_at_the_new_place_is_left_alone(tmp_path: Path) -> None:
    """Said before anything is claimed."""
    world = started(tmp_path)
    other = started(tmp_path / "other", "remote")
    other.go("remote")
    kill(other.open())
    with pytest.raises(Refused, match="other checkpoints here"):
        world.along("local", "remote", other.saved("remote"))
    assert Checkpointer(world.store).history().lineage_kind == "CHECKPOINT"
    world.go("local")
    world.finish()
    assert world.outcome() == EXPECTED


def test_checkpoints_of_another_home_do_not_go_along(tmp_path: Path) -> None:
    world = started(tmp_path)
    other = started(tmp_path / "other", "local")
    clock = ManualClock(next(PROCESSES))
    for must_exist in (True, False):
        stores = StoreMove(
            Checkpointer(other.store),
            Checkpointer(MemoryStore()),
            where="there",
            must_exist=must_exist,
        )
        place, target = world.place("local", clock), world.destination("remote")
        if must_exist:
            with pytest.raises(Refused, match="are not here"):
                move_home(place, target, clock=clock, stores=stores)
            continue
        told = move_home(place, target, clock=clock, stores=stores)
        assert (told.store, told.objects) == ("", 0)
    world.at = "remote"
    world.finish()
    assert world.outcome() == EXPECTED


def test_checkpoints_that_do_not_read_back_keep_the_home_where_it_is(tmp_path: Path) -> None:
    world = started(tmp_path)

    class Flipping(MemoryStore):
        def put_if_absent(self, key: str, data: Data) -> None:
            if key.endswith((".snap", ".delta", "manifest.json")):
                raw = bytearray(data.read_bytes() if isinstance(data, Path) else data)
                raw[len(raw) // 2] ^= 1
                data = bytes(raw)
            super().put_if_absent(key, data)

    with pytest.raises(LaminaError) as error:
        world.along("local", "remote", Flipping())
    assert isinstance(error.value, Corrupt)
    assert world.starts("remote") is None
    world.go("local")
    world.finish()
    assert world.outcome() == EXPECTED


def test_who_still_makes_a_checkpoint_at_the_old_place_is_fenced(tmp_path: Path) -> None:
    """It would have been at the old place alone."""
    world = Both(tmp_path)
    world.go("remote")
    asleep = world.open()
    run_out(asleep, epochs=2)
    world.along("remote", "remote-2")
    before = Checkpointer(world.saved("remote")).history()
    with pytest.raises(Fenced):
        asleep.checkpoint()
    assert Checkpointer(world.saved("remote")).history() == before
    kill(asleep)
    world.go("remote-2")
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_store_that_forks_read_from_is_said_to_be_needed(tmp_path: Path) -> None:
    """The rest of the old place can be deleted; with it the fork would lose its checkpoint."""
    world = started(tmp_path)
    source = Checkpointer(world.saved("local"))
    [*_, newest] = source.history().checkpoints
    fork = open_store(str(tmp_path / "fork"))
    made = fork_checkpoint(source, newest.id, Checkpointer(fork))
    create_savepoint(source, "mine", newest.id)
    assert world.along("local", "remote").forks == (made.savepoint,)


def test_a_savepoint_that_is_made_meanwhile_is_not_lost(tmp_path: Path) -> None:
    world = started(tmp_path)
    old = Checkpointer(world.saved("local"))

    class Meanwhile(MemoryStore):
        is_done = False

        def put_if_absent(self, key: str, data: Data) -> None:
            if not self.is_done and "/log/" in f"/{key}":
                self.is_done = True
                create_savepoint(old, "now")
            super().put_if_absent(key, data)

    store = Meanwhile()
    with pytest.raises(Fenced, match="while it was copied"):
        world.along("local", "remote", store)
    world.along("local", "remote", store)
    assert "now" in Checkpointer(store).history().pins
