"""Sinks that fail, are behind, or are ahead: every epoch reaches each of them, in order, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.engine.engine import Engine
from lamina.engine.ports import Publication, Sink
from lamina.errors import Diverged, StoreUnavailable, WouldLose
from lamina.format.commit import Point
from lamina.format.manifest_model import Failed, SinkCommitted
from lamina.recovery import RecoveryConfig
from lamina.testing import ManualClock
from lamina.testing.faulty import Killed
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, Bomb, World, expected, kill, run_out
from tests.support.memory_sink import MemorySink, MemoryTable

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)
SINK = "totals"


class FlakySink(MemorySink):
    """Does not answer while it is down; counts how often it was asked to publish."""

    def __init__(self, name: str, table: MemoryTable) -> None:
        super().__init__(name, table)
        self.down = False
        self.lost_answers = 0
        self.asked = 0

    def publish(self, publication: Publication) -> None:
        self.asked += 1
        if self.down:
            raise StoreUnavailable("no answer")
        super().publish(publication)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnavailable("no answer, but it was done")


def opened(world: World, clock: ManualClock, behind_max: int = 8) -> tuple[Engine, FlakySink]:
    world.settings = replace(world.settings, behind_max=behind_max)
    flaky = FlakySink(SINK, world.tables[SINK])
    sinks: dict[str, Sink] = {**world.sinks(), SINK: flaky}
    return world.open(sinks=sinks, clock=clock), flaky


def test_a_sink_that_fails_is_not_skipped_and_keeps_its_order(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock)
    run_out(engine, epochs=2)
    sink.down = True
    reports = run_out(engine, epochs=3)
    assert [report.sinks_behind for report in reports] == [1, 2, 3]
    assert isinstance(engine.publisher.statuses()[SINK], Failed)
    assert "no answer" in engine.publisher.errors()[SINK]
    sink.down = False
    clock.advance(60)
    run_out(engine)
    assert isinstance(engine.publisher.statuses()[SINK], SinkCommitted)
    assert engine.publisher.errors() == {}
    engine.close()
    assert world.outcome() == EXPECTED


def test_a_sink_that_is_down_is_asked_less_and_less_often(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock)
    sink.down = True
    engine.step()
    asked = []
    for _ in range(12):
        before = sink.asked
        clock.advance(0.5)
        engine.publisher.drive()
        asked.append(sink.asked - before)
    assert asked == [1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    kill(engine)


def test_a_sink_too_far_behind_holds_the_pipeline_and_lets_it_go_again(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock, behind_max=2)
    sink.down = True
    assert len(run_out(engine)) == 3
    assert SINK in engine.held
    head = engine.epoch
    for _ in range(5):
        clock.advance(60)
        assert engine.step() is None
    assert engine.epoch == head
    sink.down = False
    clock.advance(60)
    run_out(engine)
    assert engine.held == ""
    engine.close()
    assert world.outcome() == EXPECTED


def test_a_publish_whose_answer_was_lost_is_not_done_twice(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock, behind_max=20)
    sink.lost_answers = 2
    run_out(engine, epochs=2)
    clock.advance(60)
    run_out(engine)
    engine.drain()
    engine.close()
    assert world.outcome() == EXPECTED
    assert sink.asked == engine.epoch


def test_a_drain_that_cannot_give_everything_says_so(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock)
    sink.down = True
    engine.step()
    with pytest.raises(StoreUnavailable, match="no answer"):
        engine.drain()
    sink.down = False
    engine.drain()
    assert engine.publisher.behind == 0
    kill(engine)


def test_a_sink_that_was_behind_at_the_crash_is_driven_by_recovery(tmp_path: Path) -> None:
    """A checkpoint that is asked for meanwhile says why there is none: it would lack output."""
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock)
    run_out(engine, epochs=2)
    sink.down = True
    run_out(engine, epochs=4)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no answer"):
            engine.checkpoint()
    kill(engine)
    engine, sink = opened(world, clock)
    assert engine.publisher.behind == 4
    sink.down = True
    engine.step()
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED


def test_no_checkpoint_is_made_by_itself_while_a_sink_is_behind(tmp_path: Path) -> None:
    world, clock = World(tmp_path), ManualClock()
    engine, sink = opened(world, clock)
    sink.down = True
    run_out(engine, epochs=5)
    assert engine._saves.base is None
    sink.down = False
    clock.advance(60)
    run_out(engine, epochs=1)
    assert engine._saves.base is not None
    kill(engine)


@pytest.mark.parametrize("place", ["after publish", "before publish"])
def test_killed_between_two_sinks_both_get_the_epoch_once(place: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    second = MemorySink(SINK, world.tables[SINK])

    class Dying(MemorySink):
        def publish(self, publication: Publication) -> None:
            if place == "after publish":
                super().publish(publication)
            if publication.point.epoch == 4:
                raise Killed(self.name)
            if place == "before publish":
                super().publish(publication)

    sinks: dict[str, Sink] = {**world.sinks(), SINK: Dying(SINK, second.table)}
    engine = world.open(sinks=sinks)
    with pytest.raises(Killed):
        run_out(engine)
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_sink_ahead_of_what_a_person_gave_up_goes_on(tmp_path: Path) -> None:
    """Decision 0008: it keeps the rows of the lost epochs, and gets those that come after."""
    world = World(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=5)
    kill(engine)
    for process in range(3):
        lost = RecoveryConfig(lose_after=3) if process == 0 else None
        engine = world.open(Bomb("before COMMIT", 1 + process), recovery=lost)
        with pytest.raises(Killed):
            run_out(engine)
        kill(engine)
    world.finish()
    for sink, wanted in EXPECTED.items():
        kept = {e: t for e, t in world.tables[sink].epochs.items() if e not in (4, 5)}
        world.tables[sink].epochs = kept
        assert world.got(sink) == wanted


def test_a_sink_ahead_without_a_persons_word_stops(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.finish()
    world.tables[SINK].point = Point(99, "ab" * 32)
    with pytest.raises(WouldLose, match="holds epoch 99"):
        world.open()


def test_a_sink_with_another_history_of_the_epoch_stops(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.open()
    run_out(engine, epochs=2)
    world.tables[SINK].point = Point(3, "ab" * 32)
    with pytest.raises(Diverged):
        engine.step()
    kill(engine)


def test_some_rows_of_an_epoch_can_be_shown_and_what_is_gone_shows_none(tmp_path: Path) -> None:
    engine = World(tmp_path).open()
    [report] = run_out(engine, epochs=1)
    rows = engine.publisher.sample(SINK, report.staged, 2)
    assert rows is not None
    assert 0 < rows.num_rows <= 2
    for file in report.staged:
        (tmp_path / "home" / file.path).write_bytes(b"damaged")
    assert engine.publisher.sample(SINK, report.staged, 2) is None
    for file in report.staged:
        (tmp_path / "home" / file.path).unlink()
    assert engine.publisher.sample(SINK, report.staged, 2) is None
    assert engine.publisher.sample("no such sink", report.staged, 2) is None
    kill(engine)
