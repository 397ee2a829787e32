"""Rewound, and run again: what comes out is that of a run from the target, or of one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.checkpoint import create_savepoint, drop_savepoint
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.gc import run_gc
from lamina.engine.engine import EnginePlan, StreamPlan
from lamina.engine.rewinding import check_continues, rewind
from lamina.engine.surveying import choose, survey
from lamina.errors import Corrupt, NotFound, Refused, StateChanged, UsageError
from lamina.pipeline.model import Emit
from lamina.protocol.identity import PartChange
from lamina.recovery import RecoveryConfig
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from tests.engine.pipelines import (
    FROM_ORDERS,
    HOMES,
    LIMITS,
    ORDERS,
    PROCESSES,
    TRADES,
    Bomb,
    Epochs,
    World,
    expected,
    kill,
    operator,
    run_out,
)
from tests.engine.rewinds import BACK, KEEP, rewound, surveyed
from tests.support.memory_sink import MemorySink

assert LIMITS.rows is not None
DATA = {"trades": TRADES[:75], "orders": ORDERS[:60]}
EXPECTED = expected(DATA, LIMITS.rows)
SHORT = {"trades": TRADES[:45], "orders": ORDERS[:60]}
PLACES = (
    "recovered",
    "before REWIND",
    "after REWIND",
    "after COMMIT",
    "after publish",
    "before note",
    "after note",
)


@pytest.fixture(params=[False, True], ids=["local", "remote"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], World]:
    def made(name: str) -> World:
        world = World(tmp_path / name, data=DATA, is_remote=request.param)
        world.settings = replace(world.settings, retain=5)
        return world

    return made


@pytest.fixture
def world(make: Callable[[str], World]) -> World:
    return make("one")


def run(world: World) -> None:
    """To the end, as a process that is stopped in order."""
    world.finish()


def head(world: World) -> int:
    return max(table.point.epoch for table in world.tables.values() if table.point)


def shown_at(world: World, epoch: int) -> dict[str, Epochs]:
    """What sinks have of epochs up to *epoch*."""
    cut = World(world.root, plan=world.plan)
    for name, table in world.tables.items():
        cut.tables[name].epochs = {e: t for e, t in table.epochs.items() if e <= epoch}
    return cut.outcome()


def changes(world: World) -> tuple[PartChange, ...]:
    """What a start says has changed."""
    engine = world.open()
    engine.close()
    return engine.report.changes


def test_rewound_and_run_again_the_result_is_that_of_an_uninterrupted_run(world: World) -> None:
    run(world)
    assert world.outcome() == EXPECTED
    before, last = shown_at(world, 3), head(world)
    done = rewound(world, "3")
    assert done.epoch == last + 1
    assert done.checkpoint is not None
    assert world.outcome() == before
    run(world)
    assert world.outcome() == EXPECTED
    assert head(world) > done.epoch


def test_what_is_kept_comes_again(world: World) -> None:
    run(world)
    before, whole = shown_at(world, 3), world.outcome()
    rewound(world, "3", KEEP)
    assert world.outcome() == whole
    run(world)
    for sink, epochs in world.outcome().items():
        assert epochs == [*whole[sink], *whole[sink][len(before[sink]) :]]


def test_each_sink_may_have_a_choice_of_its_own(world: World) -> None:
    run(world)
    whole = world.outcome()
    rewound(world, "3", None, by_sink={"VWAP": KEEP, "totals": BACK, "busiest": BACK})
    assert world.outcome() == shown_at(world, 3) | {"vwap": whole["vwap"]}


def test_an_epoch_between_checkpoints_is_rebuilt_from_the_log(world: World) -> None:
    run(world)
    found = surveyed(world, "4")
    assert found.target.checkpoint.epoch == 3
    assert [commit.epoch for commit in found.target.commits] == [4]
    rewound(world, "4")
    run(world)
    assert world.outcome() == EXPECTED


def test_a_savepoint_and_an_id_are_targets_too(world: World) -> None:
    run(world)
    log = Checkpointer(world.store)
    create_savepoint(log, "before the fix", log.history().checkpoints[0].id)
    id = str(log.history().checkpoints[0].id)
    assert surveyed(world, "before the fix").target == surveyed(world, id).target
    rewound(world, "before the fix")
    run(world)
    assert world.outcome() == EXPECTED


def test_the_line_that_was_left_can_be_gone_back_to(world: World) -> None:
    run(world)
    last = head(world)
    rewound(world, "3")
    engine = world.open()
    run_out(engine, epochs=2)
    engine.checkpoint()
    engine.close()
    rewound(world, str(last))
    assert world.outcome() == EXPECTED
    run(world)
    assert world.outcome() == EXPECTED


def test_rewound_again_and_again(world: World) -> None:
    run(world)
    for to in ("3", "4", "3"):
        rewound(world, to)
        rewound(world, to)
        engine = world.open()
        run_out(engine, epochs=1)
        kill(engine)
    run(world)
    assert world.outcome() == EXPECTED


@pytest.mark.parametrize("choice", [BACK, KEEP])
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_any_step_it_is_on_the_old_line_or_on_the_new_one(
    place: str, choice: object, world: World
) -> None:
    run(world)
    whole, cut = world.outcome(), shown_at(world, 4)
    bomb = Bomb(place, 1)
    with pytest.raises(Killed):
        rewound(world, "4", BACK if choice is BACK else KEEP, bomb=bomb)
    is_decided = place in PLACES[3:]
    run(world)
    if not is_decided or choice is BACK:
        assert world.outcome() == EXPECTED
    else:
        again = {sink: whole[sink][len(cut[sink]) :] for sink in whole}
        assert world.outcome() == {sink: [*whole[sink], *again[sink]] for sink in whole}
    rewound(world, "4")
    run(world)
    assert world.outcome() == EXPECTED


def test_from_its_decision_on_nothing_that_a_rewind_stands_on_can_be_forgotten(
    world: World,
) -> None:
    """Whoever deletes old checkpoints while nobody runs it."""
    run(world)
    oldest = min(Checkpointer(world.store).history().checkpoints, key=lambda c: c.epoch)
    create_savepoint(Checkpointer(world.store), "old", oldest.id)
    with pytest.raises(Killed):
        rewound(world, "old", bomb=Bomb("after COMMIT", 1))
    drop_savepoint(Checkpointer(world.store), "old")
    run_gc(Checkpointer(world.store), retain=1)
    run(world)
    assert world.outcome() == EXPECTED


def test_the_number_of_a_killed_rewind_is_not_used_again(world: World) -> None:
    run(world)
    with pytest.raises(Killed):
        rewound(world, "3", bomb=Bomb("after REWIND", 1))
    number = Checkpointer(world.store).history().epoch_max
    assert number == head(world) + 1
    assert rewound(world, "3").epoch == number + 1


def test_every_place_is_killed_at(world: World) -> None:
    run(world)
    bomb = Bomb()
    rewound(world, "3", bomb=bomb)
    assert tuple(bomb.seen) == PLACES


@pytest.mark.parametrize(
    ("operation", "when"),
    [
        ("put_if_absent", FaultKind.KILL_BEFORE),
        ("put_if_absent", FaultKind.KILL_AFTER),
        ("put", FaultKind.KILL_BEFORE),
    ],
)
def test_killed_at_any_put_and_rewound_again(
    operation: str, when: FaultKind, make: Callable[[str], World]
) -> None:
    """Into the store of the checkpoints; of a remote home also into that of its own log."""

    def made(name: str) -> World:
        world = make(name)
        world.data = SHORT
        run(world)
        return world

    def attempt(world: World, *faults: Fault) -> int:
        """One store with faults behind both; how many puts it got."""
        own = HOMES[world.home]
        both = [FaultyStore(each, faults=faults) for each in (world.store, own)]
        both[1].calls = both[0].calls
        HOMES[world.home] = both[1]
        try:
            rewound(world, "3", store=both[0])
        finally:
            HOMES[world.home] = own
        return both[0].calls[operation]

    short = expected(SHORT, LIMITS.rows or 0)
    probe = made("probe")
    puts = attempt(probe)
    assert puts >= (4 if probe.is_remote else 2)
    cut = probe.outcome()
    assert cut != short
    for call in range(1, puts + 1):
        world = made(f"{call}")
        with pytest.raises(Killed):
            attempt(world, Fault(operation, when, call=call))
        assert world.outcome() in (short, cut)
        if world.outcome() == short:
            rewound(world, "3")
        run(world)
        assert world.outcome() == short, f"{operation} {call}"


def test_killed_between_two_sinks_the_next_start_gives_the_rest(world: World) -> None:
    class Deadly(MemorySink):
        def truncate(self, *_: object) -> None:
            raise Killed(self.name)

    run(world)
    for deadly in world.plan.sinks:
        sinks = world.sinks()
        sinks[deadly] = Deadly(deadly, world.tables[deadly])
        with pytest.raises(Killed):
            rewound(world, "3", sinks=sinks)
        run(world)
        assert world.outcome() == EXPECTED


def test_without_a_choice_it_is_refused_and_nothing_is_changed(world: World) -> None:
    run(world)
    before = head(world), Checkpointer(world.store).history()
    with pytest.raises(Refused, match="busiest: truncate or keep; totals: truncate or keep"):
        rewound(world, "3", None)
    assert (head(world), Checkpointer(world.store).history()) == before


def test_it_says_what_each_sink_has_since_then(world: World) -> None:
    run(world)
    whole, cut = world.outcome(), shown_at(world, 3)
    for sink in surveyed(world, "3").sinks:
        assert sink.beyond.epochs == len(whole[sink.name]) - len(cut[sink.name])
        later = whole[sink.name][len(cut[sink.name]) :]
        assert sink.beyond.rows == sum(map(len, later))


class OnlyAppends:
    """A sink that cannot take anything back."""

    def __init__(self, sink: MemorySink) -> None:
        self.name, self.delivery, self.takes = sink.name, sink.delivery, sink.takes
        self.position, self.fence = sink.position, sink.fence
        self.publish, self.close = sink.publish, sink.close


def test_a_sink_that_cannot_take_rows_back_is_named(world: World) -> None:
    run(world)
    sinks = world.sinks()
    sinks["vwap"] = OnlyAppends(MemorySink("vwap", world.tables["vwap"]))
    with pytest.raises(Refused, match="'vwap' cannot take rows back"):
        rewound(world, "3", BACK, sinks=sinks)
    with pytest.raises(UsageError, match="no sink 'other'"):
        rewound(world, "3", BACK, sinks=sinks, by_sink={"other": KEEP})
    found = rewound(world, "3", BACK, sinks=sinks, by_sink={"vwap": KEEP})
    assert found.checkpoint is not None


def test_what_was_taken_back_and_is_needed_again_is_not_left_out_silently(world: World) -> None:
    run(world)
    last = head(world)
    rewound(world, "3")
    with pytest.raises(Refused, match="has taken back"):
        rewound(world, str(last), KEEP)
    rewound(world, str(last), BACK)
    assert world.outcome() == EXPECTED


def test_a_place_that_cannot_be_gone_back_to_is_refused_with_those_that_can(world: World) -> None:
    run(world)
    last = head(world)
    with pytest.raises(NotFound, match="epoch 99 cannot") as raised:
        rewound(world, "99")
    assert "checkpoints of the epochs 3" in str(raised.value.advice)
    with pytest.raises(NotFound, match="'nothing'"):
        rewound(world, "nothing")
    with pytest.raises(Refused, match="nothing to rewind"):
        rewound(world, str(last))


def test_epochs_that_a_person_gave_up_are_no_target(world: World) -> None:
    run(world)
    engine = world.open(recovery=RecoveryConfig(lose_after=3))
    run_out(engine, epochs=1)
    engine.close()
    with pytest.raises(NotFound, match="epoch 5 cannot"):
        rewound(world, "5")
    with pytest.raises(Refused, match="was given up"):
        rewound(world, "6")


def test_a_damaged_checkpoint_is_found_before_anything_is_decided(world: World) -> None:
    run(world)
    log = Checkpointer(world.store)
    target = next(c for c in log.history().checkpoints if c.epoch == 3)
    manifest = log.load_manifest(target.id)
    key = log.paths.manifest(target.id)
    data = world.store.get(key)
    world.store.delete(key)
    world.store.put(key, data.replace(b'"epoch":3', b'"epoch":4', 1))
    with pytest.raises(Corrupt):
        rewound(world, "3")
    assert manifest.epoch == 3
    run(world)
    assert world.outcome() == EXPECTED


def test_a_sink_that_is_behind_gets_what_it_lacks_first(world: World) -> None:
    """The process was killed after its decision, before the sinks had the epoch."""
    engine = world.open(Bomb("before publish", 5))
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    rewound(world, "3")
    assert world.outcome() == shown_at(world, 3)
    run(world)
    assert world.outcome() == EXPECTED


def test_a_plan_that_is_old_is_refused(world: World) -> None:
    run(world)
    found = surveyed(world, "3")
    rewound(world, "4")
    clock = ManualClock(77)
    with pytest.raises(Refused, match="has gone on"):
        rewind(
            found,
            choose(found, BACK, {}),
            space=world.space(clock, world.store),
            checkpointer=Checkpointer(world.store, clock=clock),
            sinks=world.sinks(),
            clock=clock,
        )
    run(world)
    assert world.outcome() == EXPECTED


def test_the_next_start_compares_itself_with_the_definition_of_the_target(world: World) -> None:
    """Not with that of the epochs that were left behind, nor with the file of the rewind."""
    streams = {stream.name for stream in world.plan.streams}
    first, second = (
        replace(world.plan, pipeline_hash=d * 64, definitions=dict.fromkeys(streams, d * 64))
        for d in "ab"
    )
    world.plan = first
    engine = world.open()
    run_out(engine, epochs=4)
    kill(engine)
    world.plan = second
    run(world)
    assert not changes(world)
    rewound(world, "3")
    found = changes(world)
    assert {each.name for each in found} == streams
    assert {each.what for each in found} == {"changed"}


def test_a_state_that_todays_pipeline_cannot_go_on_with_is_refused_with_nothing_changed(
    world: World,
) -> None:
    """As a start would: here the type of a key is another one."""
    run(world)
    before = Checkpointer(world.store).history()

    def check(plan: EnginePlan) -> None:
        clock = ManualClock(next(PROCESSES))
        space, log = world.space(clock, world.store), Checkpointer(world.store, clock=clock)
        home = space.claim(clock)
        try:
            found = survey(home, log, world.sinks(), "4")
            check_continues(found, plan, world.data, space=space, checkpointer=log)
        finally:
            space.discard()
            home.release()

    check(world.plan)
    key = pa.schema([("key", pa.int64())])
    totals = StreamPlan(
        "totals", ("orders",), FROM_ORDERS, {"totals": operator(key, Emit.ON_UPDATE)}
    )
    others = [stream for stream in world.plan.streams if stream.name != "totals"]
    with pytest.raises(StateChanged):
        check(replace(world.plan, streams=(*others, totals)))
    assert Checkpointer(world.store).history() == before
