"""Pipelines whose home is in an object store: killed anywhere, on machines that share no disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from lamina.clock import Clock
from lamina.engine.engine import Engine
from lamina.errors import Fenced, Refused, StoreError, StoreUnavailable, WalDamaged, WouldLose
from lamina.format.remote_names import EPOCHS, RUNS
from lamina.store import MemoryStore, Store
from lamina.store.base import Data
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from lamina.workspace.base import Workspace
from lamina.workspace.remote import RemoteWorkspace
from lamina.workspace.remote.places import Held
from tests.engine.pipelines import Bomb, World, kill, run_out
from tests.engine.test_kills import EXPECTED

PLACES = (
    "after vwap",
    "after append",
    "before COMMIT",
    "after COMMIT",
    "after publish",
    "after rotate",
    "dropped driver",
    "dropped staged",
)
HUGE = 1 << 20


@dataclass
class Machines(World):
    """Every process is on a machine of its own: it finds nothing but what is in the store."""

    carried: int = HUGE  # what is larger is put by its task
    objects: Store = field(default_factory=MemoryStore)
    machines: count[int] = field(default_factory=lambda: count(1))
    take_over: bool = True

    def space(self, clock: Clock, store: Store) -> Workspace:
        return RemoteWorkspace(
            Held(self.objects),
            self.root / f"machine-{next(self.machines)}",
            clock,
            saved=Held(store),
            tasks_here=False,
            take_over=self.take_over,
            carried_bytes=self.carried,
        )


@pytest.mark.parametrize("carried", [0, 700, HUGE])
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_any_step_another_machine_goes_on(
    place: str, carried: int, tmp_path: Path
) -> None:
    settings = replace(World(tmp_path).settings, looks_ahead=carried == HUGE)
    world = Machines(tmp_path, carried=carried, settings=settings)
    for nth, partitions in ((1, 2), (2, 4)):
        engine = world.open(Bomb(place, nth), partitions=partitions)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish(partitions=1)
    assert world.outcome() == EXPECTED


def test_an_epoch_is_one_object_and_no_look(tmp_path: Path) -> None:
    """Without a checkpoint, and however many streams and partitions there are."""
    inner = MemoryStore()
    counted = FaultyStore(inner)
    world = Machines(tmp_path, objects=counted)
    engine = world.open()
    run_out(engine, epochs=2)
    counted.calls.clear()
    before = len(_keys(inner, EPOCHS))
    report = engine.step()
    assert report is not None
    assert sum(report.rows_out.values()) > 0
    assert counted.calls == {"put_if_absent": 1}
    assert len(_keys(inner, EPOCHS)) == before + 1
    kill(engine)


class SlowStore(MemoryStore):
    """Says when a piece is asked for, and gives it only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = Event()
        self.may_answer.set()

    def put_if_absent(self, key: str, data: Data) -> None:
        assert self.may_answer.wait(60)
        super().put_if_absent(key, data)


def test_the_next_epoch_runs_while_a_decision_is_on_its_way_and_nothing_is_published(
    tmp_path: Path,
) -> None:
    store = SlowStore()
    settings = replace(World(tmp_path).settings, looks_ahead=True)
    world = Machines(tmp_path, objects=store, settings=settings)
    seen: list[tuple[str, int]] = []

    def note(place: str) -> None:
        seen.append((place, sum(len(world.got(sink)) for sink in world.plan.sinks)))
        if place == "before COMMIT" and len(seen) < 20:
            store.may_answer.clear()
        elif place == "after busiest":
            store.may_answer.set()  # the last stream of an epoch

    engine = world.open(note)
    run_out(engine)
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED
    places = [place for place, _ in seen]
    decided, settled = places.index("before COMMIT"), places.index("after COMMIT")
    assert "after busiest" in places[decided:settled], "the next epoch has run in between"
    published = {count for _, count in seen[decided : settled + 1]}
    assert len(published) == 1, "nothing is published before the answer"


def test_a_decision_that_is_refused_takes_what_ran_ahead_with_it(tmp_path: Path) -> None:
    settings = replace(World(tmp_path).settings, looks_ahead=True)
    world = Machines(tmp_path, settings=settings)
    asleep = world.open()
    run_out(asleep, epochs=2)
    other = world.open()
    with pytest.raises(Fenced):
        asleep.step()
    with pytest.raises(Refused, match="interrupted"):
        asleep.step()
    run_out(other)
    other.checkpoint()
    assert world.outcome() == EXPECTED


def test_of_large_runs_and_output_each_task_puts_one_object_and_the_epoch_is_one(
    tmp_path: Path,
) -> None:
    world = Machines(tmp_path, carried=0)
    counted = FaultyStore(world.objects)
    world.objects = counted
    engine = world.open()
    run_out(engine, epochs=1)
    for _ in range(2):
        counted.calls.clear()
        before = {folder: set(_keys(counted, folder)) for folder in (EPOCHS, RUNS, "staged")}
        report = engine.step()
        assert report is not None
        made = {folder: set(_keys(counted, folder)) - there for folder, there in before.items()}
        ranges = {key.split("/")[1] for key in made[RUNS]}
        assert len(made[EPOCHS]) == counted.calls["put_if_absent"] == 1, "the decision"
        assert 1 <= len(made[RUNS]) <= len(ranges) * len(world.plan.streams), "one of each task"
        tasks = [key.rpartition("/")[2].rsplit("-", 2)[0] for key in made["staged"]]
        assert len(tasks) == len(set(tasks)), "one of each task with output"
        assert {file.path for file in report.staged} <= made["staged"], "and those between streams"
        assert counted.calls["put"] == len(made[RUNS]) + len(made["staged"])
    kill(engine)


def test_a_machine_that_sleeps_is_fenced_before_any_effect(tmp_path: Path) -> None:
    """However much the other one has done, saved and deleted meanwhile."""
    world = Machines(tmp_path)
    asleep = world.open()
    run_out(asleep, epochs=1)
    other = world.open()
    run_out(other, epochs=7)
    with pytest.raises(Fenced):
        run_out(asleep)
    run_out(other)
    other.checkpoint()
    assert world.outcome() == EXPECTED


class Meanwhile(MemoryStore):
    """Lets somebody do something between a look at the log and the first create after it."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], None] | None = None

    def put_if_absent(self, key: str, data: Data) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()
        super().put_if_absent(key, data)


def test_a_claim_in_the_place_of_a_deleted_piece_does_not_count(tmp_path: Path) -> None:
    """The log was read up to a piece; those behind it were written, saved and deleted since."""
    store = Meanwhile()
    world = Machines(tmp_path, objects=store)
    running = world.open()
    run_out(running, epochs=1)

    def go_on() -> None:
        run_out(running, epochs=7)

    store.then = go_on
    late = world.open()
    with pytest.raises(Fenced):
        run_out(running)
    run_out(late)
    late.checkpoint()
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize("place", ["before vwap", "before COMMIT", "after publish"])
def test_who_is_taken_over_in_mid_epoch_publishes_nothing_more(place: str, tmp_path: Path) -> None:
    world = Machines(tmp_path)
    others: list[Engine] = []

    def take_over(at: str) -> None:
        if at == place and not others:
            others.append(world.open())
            run_out(others[0], epochs=5)

    engine = world.open(take_over)
    with pytest.raises(Fenced):
        run_out(engine)
    run_out(others[0])
    others[0].checkpoint()
    assert world.outcome() == EXPECTED


def test_another_machine_asks_a_person_first(tmp_path: Path) -> None:
    world = Machines(tmp_path, take_over=False)
    engine = world.open()
    run_out(engine, epochs=2)
    with pytest.raises(Refused, match="--take-over"):
        world.open()
    run_out(engine, epochs=1)
    engine.close()
    world.open().close()  # it has ended in order: nobody need be asked
    kill(world.open())
    with pytest.raises(Refused, match="--take-over"):
        world.open()
    world.take_over = True
    world.finish()
    assert world.outcome() == EXPECTED


def test_claims_stay_for_ever_and_other_pieces_go(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    for _ in range(3):
        engine = world.open()
        run_out(engine, epochs=4)
        engine.checkpoint()
        engine.close()
    keys = _keys(world.objects, EPOCHS)
    assert len(keys) < 12, "what checkpoints have is gone"
    assert keys[0].endswith(f"{1:020d}.wal"), "the first claim is there"


@pytest.mark.parametrize("which", [-1, -2, -3])
def test_a_piece_that_somebody_has_deleted_is_named(which: int, tmp_path: Path) -> None:
    """All but the last one: without that the log is a shorter one, as sinks and store would say."""
    world = Machines(tmp_path)
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    keys = _keys(world.objects, EPOCHS)
    world.objects.delete(keys[which - 1])
    with pytest.raises(WalDamaged, match="is missing"):
        world.open()


def test_a_run_that_somebody_has_deleted_is_named(tmp_path: Path) -> None:
    world = Machines(tmp_path, carried=0)
    engine = world.open()
    run_out(engine, epochs=2)
    kill(engine)
    gone = _keys(world.objects, RUNS)[0]
    world.objects.delete(gone)
    with pytest.raises(WouldLose) as error:
        world.open()
    assert gone.removeprefix(f"{RUNS}/") in str(error.value)


TROUBLE = (FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER, FaultKind.EXISTS_AFTER)


@pytest.mark.parametrize("kind", TROUBLE)
def test_a_store_that_fails_now_and_then_costs_time_and_nothing_else(
    kind: FaultKind, tmp_path: Path
) -> None:
    faults = [Fault("put_if_absent", kind, probability=0.5)]
    inner = MemoryStore()
    world = Machines(tmp_path, objects=inner)
    kill(world.open())
    world.objects = FaultyStore(inner, 5, faults)
    for _ in range(2):
        engine = world.open()
        run_out(engine, epochs=4)
        kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_store_that_stays_away_ends_the_run_and_the_epoch_is_there_or_not(tmp_path: Path) -> None:
    inner = MemoryStore()
    world = Machines(tmp_path, objects=inner)
    kill(world.open())
    for kind in (FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER):
        faults = [Fault("put_if_absent", kind, call=call) for call in range(6, 99)]
        world.objects = FaultyStore(inner, 5, faults)
        engine = world.open()
        with pytest.raises(StoreUnavailable):
            run_out(engine)
        with pytest.raises((Refused, StoreError)):
            engine.step()
        kill(engine)
    world.objects = inner
    world.finish()
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize("harm", ["gone", "flipped", "in the way"])
def test_the_cache_of_a_machine_may_be_damaged(harm: str, tmp_path: Path) -> None:
    world = Machines(tmp_path, carried=700)
    engine = world.open()
    folder = engine._works._space._cache("vwap").path.parent  # type: ignore[attr-defined]
    for _ in range(20):
        if engine.step() is None:
            break
        engine.finish_checkpoint()
        for file in (each for each in folder.rglob("*.*") if each.is_file()):
            data = file.read_bytes()
            if harm == "gone":
                file.unlink()
            elif harm == "flipped":
                file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
            else:
                file.unlink()
                file.mkdir()
    engine.checkpoint()
    engine.close()
    assert world.outcome() == EXPECTED


def _keys(store: Store, folder: str) -> list[str]:
    return [info.key for info in store.list(folder)]
