"""Two copies of one task, both alive: only what the runner returns ever counts (R1)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lamina.disk import LocalDisk
from lamina.engine.model import TaskResult
from lamina.engine.ports import Runner
from lamina.errors import LaminaError
from lamina.format.home_names import core_lock
from tests.engine.pipelines import LIMITS, ORDERS, TRADES, World, expected, kill, run_out
from tests.support.in_process import InProcessRunner

assert LIMITS.rows is not None
EXPECTED = expected({"trades": TRADES, "orders": ORDERS}, LIMITS.rows)


class TwinRunner(InProcessRunner):
    """Runs every task with a twin; *chosen* says whose result the action returns.

    With *locked* the twin finds the lock of the core taken, and writes a segment of its own.
    """

    chosen = 0
    locked = False

    def _task(self, work: Any, stream: Any, number: int, partials: Any) -> TaskResult:
        results = [super()._task(work, stream, number, partials)]
        disk = LocalDisk(Path(work.space.home))
        lock = disk.try_lock(core_lock(number)) if self.locked else None
        try:
            results.append(super()._task(work, stream, number, partials))
        finally:
            if lock is not None:
                lock.release()
        return results[self.chosen]


class LateRunner(InProcessRunner):
    """A task of the epoch before wakes up when its epoch has long been decided."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._late: list[Callable[[], TaskResult]] = []
        self.woken = 0

    def _task(self, work: Any, stream: Any, number: int, partials: Any) -> TaskResult:
        if len(self._late) > 6:
            with suppress(LaminaError):  # what it reads may be gone: its trouble
                self._late.pop(0)()
                self.woken += 1
        inner = super()._task
        self._late.append(lambda: inner(work, stream, number, partials))
        return inner(work, stream, number, partials)


class TwinWorld(World):
    make: Callable[..., Runner] = InProcessRunner

    def runner(self, fail_point: Callable[[str], None]) -> Runner:
        times = dict.fromkeys(self.plan.delays_us, "ts")
        return self.make(self.read, self.streams, times, fail_point)


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("chosen", [0, 1])
def test_of_two_copies_of_a_task_one_counts(chosen: int, locked: bool, tmp_path: Path) -> None:
    class Runner(TwinRunner):
        pass

    Runner.chosen, Runner.locked = chosen, locked
    world = TwinWorld(tmp_path)
    world.make = Runner
    engine = world.open()
    run_out(engine, epochs=5)
    kill(engine)
    world.finish(partitions=4)
    assert world.outcome() == EXPECTED


def test_a_task_that_wakes_up_after_its_epoch_changes_nothing(tmp_path: Path) -> None:
    made: list[LateRunner] = []

    def make(*args: Any) -> Runner:
        made.append(LateRunner(*args))
        return made[-1]

    world = TwinWorld(tmp_path)
    world.make = make
    engine = world.open()
    run_out(engine, epochs=5)
    kill(engine)
    world.finish()
    assert world.outcome() == EXPECTED
    assert sum(runner.woken for runner in made) > 10
