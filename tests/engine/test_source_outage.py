"""A source that does not answer for a while: the pipeline waits, and nothing is lost or doubled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, Source, SourceMemory
from lamina.errors import Refused, StoreUnavailable
from lamina.testing import ManualClock
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, ListSource, World, expected, run_out

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


class FlakySource(ListSource):
    """Does not answer in one of its calls while *down* names it."""

    down = ""

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        self._answer("plan")
        return super().plan(start, limits, memory)

    def confirm(self, planned: SourceRange) -> None:
        self._answer("confirm")

    def _answer(self, call: str) -> None:
        if self.down == call:
            raise StoreUnavailable("the broker does not answer")


@dataclass
class FlakyWorld(World):
    def __post_init__(self) -> None:
        self.flaky = FlakySource("orders", ORDERS)
        self.task_down = False

    def sources(self) -> dict[str, Source]:
        return {**super().sources(), "orders": self.flaky}

    def read(self, wanted: SourceRange) -> pa.Table:
        if self.task_down and wanted.source == "orders":
            raise StoreUnavailable("the broker does not answer a task")
        return super().read(wanted)


@pytest.mark.parametrize("call", ["plan", "confirm", "read"])
def test_an_epoch_waits_for_its_source_and_then_comes_whole(call: str, tmp_path: Path) -> None:
    world, clock = FlakyWorld(tmp_path), ManualClock()
    engine = world.open(clock=clock)
    run_out(engine, epochs=2)
    world.flaky.down, world.task_down = call, call == "read"
    for _ in range(3):
        assert engine.step() is None
    assert engine.epoch == 2
    assert "does not answer" in engine.held, "so --available-now does not take it for the end"
    assert "does not answer" in engine.trouble
    world.flaky.down, world.task_down = "", False
    assert engine.step() is None, "not before its time"
    clock.wait(10)
    run_out(engine)
    assert engine.held == engine.trouble == ""
    assert world.outcome() == EXPECTED
    engine.close()


def test_the_waits_grow(tmp_path: Path) -> None:
    world, clock = FlakyWorld(tmp_path), ManualClock()
    engine = world.open(clock=clock)
    run_out(engine, epochs=1)
    world.flaky.down, tried = "plan", 0
    for _ in range(20):
        before = engine._reading._next_try
        engine.step()
        tried += engine._reading._next_try != before
        clock.wait(0.5)
    assert 3 <= tried <= 6
    engine.close()


def test_a_source_that_never_answered_stops_the_start(tmp_path: Path) -> None:
    """A wrong host is not an outage."""
    world = FlakyWorld(tmp_path)
    world.flaky.down = "plan"
    engine = world.open()
    with pytest.raises(StoreUnavailable):
        engine.step()
    engine.close()


def test_what_waiting_does_not_mend_stops_at_once(tmp_path: Path) -> None:
    world = FlakyWorld(tmp_path)
    engine = world.open()
    run_out(engine, epochs=1)

    def gone(*_: object) -> SourceRange:
        raise Refused("the rows are gone")

    world.flaky.plan = gone  # type: ignore[method-assign]
    with pytest.raises(Refused):
        engine.step()
    engine.close()
