"""A home moves between folders and object stores: killed anywhere, it is at one of two places."""

from __future__ import annotations

import os
import shutil
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count, pairwise, product
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pytest

from lamina.clock import Clock
from lamina.engine.engine import Engine
from lamina.errors import Corrupt, Fenced, Refused, WalDamaged
from lamina.recovery.destinations import Destination, Folder, Objects
from lamina.recovery.moving import MoveReport, move_home
from lamina.running.history import HistoryWriter
from lamina.store import Data, Store, open_store
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from lamina.workspace import LocalWorkspace
from lamina.workspace.base import Workspace
from lamina.workspace.history import read_history
from lamina.workspace.remote import RemoteWorkspace
from lamina.workspace.remote.places import Held
from tests.engine.pipelines import PROCESSES, Bomb, World, kill, run_out
from tests.engine.test_kills import EXPECTED
from tests.support.histories import row

WAYS = ("local remote", "remote local", "remote remote", "local local")
FEW = 0 if os.environ.get("LAMINA_MOVE_KILLS") == "all" else 5
"""Only each fifth call of an operation, from the last one on, and not every way."""

OPERATIONS = ("put", "put_if_absent", "delete", "get", "list", "list_folder")


@dataclass
class Places(World):
    """A pipeline that starts at the place whose name is *at*: `remote...` is an object store."""

    at: str = "local"
    carried: int = 700
    machines: count[int] = field(default_factory=lambda: count(1))

    def objects(self, at: str) -> Store:
        return open_store(str(self.root / at), probe=False)

    def space(self, clock: Clock, store: Store) -> Workspace:
        return self.place(self.at, clock, Held(store))

    def place(self, at: str, clock: Clock, saved: Held | None = None) -> Workspace:
        if at.startswith("local"):
            return LocalWorkspace(self.root / at, clock)
        return RemoteWorkspace(
            Held(self.objects(at)),
            self.root / f"machine-{next(self.machines)}",
            clock,
            saved=saved,
            tasks_here=False,
            take_over=True,
            carried_bytes=self.carried,
        )

    def move(self, source: str, target: str, store: Store | None = None) -> MoveReport:
        clock = ManualClock(next(PROCESSES))
        return move_home(self.place(source, clock), self.destination(target, store), clock=clock)

    def destination(self, at: str, store: Store | None = None) -> Destination:
        if at.startswith("local"):
            return Folder(self.root / at)
        scratch = Path(mkdtemp(dir=self.root))
        return Objects(store or self.objects(at), scratch, ManualClock(next(PROCESSES)))

    def starts(self, at: str) -> Engine | None:
        """The engine, if the home is there."""
        self.at = at
        try:
            return self.open()
        except Refused:
            return None


def begun(world: Places, source: str) -> None:
    """Killed with an epoch that no sink has, and with checkpoints behind it."""
    world.at = source
    engine = world.open(Bomb("after COMMIT", 5))
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("carried", [0, 700])
def test_what_was_moved_goes_on(way: str, carried: int, tmp_path: Path) -> None:
    source, target = way.split()
    target += "-2"
    world = Places(tmp_path, carried=carried)
    begun(world, source)
    moved = world.move(source, target)
    assert moved.moved
    assert moved.epoch == 5
    assert moved.files > 0
    world.at = source
    with pytest.raises(Refused, match="has moved to"):
        world.open()
    world.at = target
    world.finish(partitions=4)
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize("way", WAYS)
def test_the_history_of_epochs_goes_along(way: str, tmp_path: Path) -> None:
    source, target = way.split()
    target += "-2"
    world, clock = Places(tmp_path), ManualClock()
    begun(world, source)

    def went_on(at: str, epochs: range, generation: int) -> list[int]:
        notes = world.place(at, clock).notes
        is_local = at.startswith("local")
        home = world.root / (at if is_local else f"scratch-{at}")
        history = HistoryWriter(home, clock, shared=None if is_local else notes)
        for epoch in epochs:
            history.add(row(epoch, generation))
        history.finish()
        history.close()
        return [each.epoch for each in read_history([notes]).rows]

    assert went_on(source, range(1, 4), 1) == [3, 2, 1]
    world.move(source, target)
    assert went_on(target, range(4, 6), 2) == [5, 4, 3, 2, 1]
    assert len(world.place(target, clock).notes.names("history")) <= 2


def test_there_and_on_and_back(tmp_path: Path) -> None:
    """With epochs, checkpoints and another number of partitions in between."""
    world = Places(tmp_path)
    begun(world, "local")
    places = ("local", "remote", "remote-2", "local-2", "remote-3")
    for turn, (source, target) in enumerate(pairwise(places)):
        world.move(source, target)
        world.at = target
        engine = world.open(partitions=(1, 4, 2)[turn % 3])
        run_out(engine, epochs=2)
        kill(engine)
        kill(world.open())  # the log has an older segment whose records still count
    world.finish()
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize(
    ("source", "kind"),
    [("remote", FaultKind.KILL_AFTER), ("local", FaultKind.KILL_BEFORE)]
    if FEW
    else product(("local", "remote"), (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER)),
)
def test_killed_at_any_call_the_home_is_at_one_of_two_places(
    source: str, kind: FaultKind, tmp_path: Path
) -> None:
    """And the same move goes on from there."""
    first = Places(tmp_path / "begun")
    first.store = open_store(str(first.root / "store"), probe=False)
    begun(first, source)
    counted = FaultyStore(again(first, "counted").objects("target"))
    again(first, "counted").move(source, "target-remote", counted)
    found = {source: 0, "remote-2": 0}
    for operation in OPERATIONS:
        for call in range(counted.calls[operation], 0, -FEW or -1):
            world = again(first, f"{operation}-{call}")
            faulty = FaultyStore(world.objects("remote-2"), 0, [Fault(operation, kind, call)])
            with pytest.raises(Killed):
                world.move(source, "remote-2", faulty)
            engines = {at: world.starts(at) for at in found}
            where = [at for at, engine in engines.items() if engine is not None]
            assert len(where) == 1, (operation, call, where)
            found[where[0]] += 1
            engine = engines[where[0]]
            assert engine is not None
            kill(engine)
            world.at = where[0]
            if where[0] == source:
                world.move(source, "remote-2")
                world.at = "remote-2"
            if call == counted.calls[operation]:
                world.finish()
                assert world.outcome() == EXPECTED, (operation, call)
    assert min(found.values()) > 0, "kills before the decision and after it"


def again(world: Places, name: str) -> Places:
    """A copy of all that outlives a process."""
    root = world.root.parent / name
    if not root.exists():
        shutil.copytree(world.root, root)
    store = open_store(str(root / "store"), probe=False)
    return replace(world, root=root, store=store, tables=deepcopy(world.tables))


def test_who_is_taken_over_while_it_moves_decides_nothing(tmp_path: Path) -> None:
    """The pipeline starts at the old place, on another machine, before the move is decided."""
    world = Places(tmp_path)
    begun(world, "remote")
    inner = world.objects("remote-2")
    others: list[Engine] = []

    class Late(FaultyStore):
        def put_if_absent(self, key: str, data: Data) -> None:
            if key.startswith("epochs/") and not others:
                others.append(world.open())
            super().put_if_absent(key, data)

    with pytest.raises(Fenced):
        world.move("remote", "remote-2", Late(inner))
    run_out(others[0], epochs=1)
    kill(others[0])
    assert world.starts("remote-2") is None
    world.move("remote", "remote-2")
    world.at = "remote-2"
    world.finish()
    assert world.outcome() == EXPECTED


def test_who_has_looked_before_the_move_does_not_start_at_the_old_place(tmp_path: Path) -> None:
    """It slept between its look at the log and its claim."""
    world = Places(tmp_path)
    begun(world, "remote")
    clock = ManualClock(next(PROCESSES))
    late = world.place("remote", clock, Held(world.store))
    home = late.claim(clock)
    world.move("remote", "remote-2")
    generation = max(late.generations()) + 5
    with pytest.raises(Refused, match="has moved to"):
        late.open_log(home, generation, partitions=2, pipeline=None)
    home.release()
    world.at = "remote-2"
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_place_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    world = Places(tmp_path)
    begun(world, "local")
    other = Places(tmp_path / "other")
    begun(other, "remote")
    with pytest.raises(Refused, match="a home here already"):
        move_home(
            world.place("local", ManualClock(1)), other.destination("remote"), clock=ManualClock(1)
        )
    other.finish()
    world.at = "local"
    world.finish()
    assert world.outcome() == other.outcome() == EXPECTED


def test_a_running_pipeline_is_not_moved(tmp_path: Path) -> None:
    world = Places(tmp_path, at="local")
    engine = world.open()
    with pytest.raises(Fenced):
        world.move("local", "remote")
    run_out(engine)
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize("way", ["local remote", "remote local"])
def test_what_does_not_read_back_is_not_decided(way: str, tmp_path: Path) -> None:
    """One byte of the copy is wrong: the home stays where it is."""
    source, target = way.split()
    world = Places(tmp_path, carried=0)
    begun(world, source)
    world.at = source
    inner = world.destination(target)
    put = inner.put_segment

    def flipping(path: str, data: pa.Buffer) -> None:
        raw = bytearray(data.to_pybytes())
        if path.startswith("core-"):
            raw[-70] ^= 1
        put(path, pa.py_buffer(bytes(raw)))

    inner.put_segment = flipping  # type: ignore[method-assign]
    clock = ManualClock(next(PROCESSES))
    with pytest.raises((Corrupt, WalDamaged)):
        move_home(world.place(source, clock), inner, clock=clock)
    assert world.starts(target) is None
    world.at = source
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    world = Places(tmp_path)
    begun(world, "local")
    clock = ManualClock(next(PROCESSES))
    before = sorted((path, path.stat().st_size) for path in tmp_path.rglob("*") if path.is_file())
    told = move_home(
        world.place("local", clock), world.destination("remote"), clock=clock, dry_run=True
    )
    files = sorted((path, path.stat().st_size) for path in tmp_path.rglob("*") if path.is_file())
    assert files == before
    moved = world.move("local", "remote")
    assert not told.moved
    assert moved.epoch == told.epoch
    assert moved.bytes > told.bytes > 0, "the claim comes to it"
