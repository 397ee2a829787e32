"""The time of an epoch: it rises, whatever the clock does, also from process to process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamina.engine.epoch_times import EpochTimes
from lamina.engine.model import StreamResult, StreamWork
from lamina.engine.planning import END_US, Watermarks
from lamina.engine.plans import EnginePlan
from lamina.engine.ports import Runner
from lamina.testing import ManualClock
from tests.engine.pipelines import DELAY, PLAN, SECOND, World, kill, run_out

CLOCKED = EnginePlan("p", "ab" * 32, (), {}, {"a": DELAY, "b": 0}, frozenset({"a"}))
START_MS = 1_000_000


class Clock(ManualClock):
    """One that a person may set."""

    def set_back(self, seconds: float) -> None:
        self._waited_seconds -= seconds


def test_it_is_the_drivers_clock_while_that_rises() -> None:
    clock = ManualClock(now_ms=START_MS)
    times = EpochTimes(clock, CLOCKED)
    assert times.next_us(Watermarks()) == START_MS * 1000
    clock.advance(1.5)
    assert times.next_us(Watermarks()) == START_MS * 1000 + 1_500_000


def test_it_rises_though_the_clock_is_set_back_or_stands_still() -> None:
    clock = Clock(now_ms=START_MS)
    times = EpochTimes(clock, CLOCKED)
    clock.advance(10)
    first = times.next_us(Watermarks())
    assert times.next_us(Watermarks()) == first + 1
    clock.set_back(5)
    assert times.next_us(Watermarks()) == first + 2
    clock.advance(20)
    assert times.next_us(Watermarks()) == START_MS * 1000 + 25 * SECOND


def test_after_a_start_it_is_later_than_what_was_committed() -> None:
    """Of sources that go by it; one that was drained says nothing."""
    times = EpochTimes(ManualClock(now_ms=START_MS), CLOCKED)
    before = START_MS * 1000 + 99 * SECOND
    assert times.next_us(Watermarks({"a": before - DELAY, "b": before * 2})) == before + 1
    fresh = EpochTimes(ManualClock(now_ms=START_MS), CLOCKED)
    assert fresh.next_us(Watermarks({"a": END_US})) == START_MS * 1000


def test_it_is_not_held_to_be_a_wrong_clock() -> None:
    """After a day without rows its time is a day ahead of the watermark."""
    marks = Watermarks({"a": 0, "b": 0})
    assert marks.latest_max(["a", "b"], CLOCKED.delays_by_rows, SECOND) == {"b": SECOND}


class Listening:
    """A runner that notes the time of each work that it passes on."""

    def __init__(self, runner: Runner, times: list[int]) -> None:
        self._runner = runner
        self._times = times

    def run(self, work: StreamWork) -> StreamResult:
        self._times.append(work.epoch_time_us)
        return self._runner.run(work)


def test_all_streams_of_an_epoch_have_one_time(tmp_path: Path) -> None:
    world = World(tmp_path, plan=replace(PLAN, by_clock=frozenset({"trades"})))
    engine, times = world.open(clock=ManualClock(now_ms=START_MS)), list[int]()
    engine._runner = Listening(engine._runner, times)
    reports = run_out(engine, epochs=3)
    kill(engine)
    streams = len(PLAN.streams)
    assert len(times) == len(reports) * streams
    assert [len(set(times[i : i + streams])) for i in range(0, len(times), streams)] == [1, 1, 1]
    assert len(set(times)) == 3
