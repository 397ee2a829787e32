"""Ask a running pipeline something through files in its home, and wait for the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from lamina.cli.support.places import PipelinePlace
from lamina.cli.support.screen import waiting
from lamina.clock import SystemClock
from lamina.errors import NotFound, StoreUnavailable
from lamina.os_errors import typed_errors
from lamina.running.control import Process, Status, read_status
from lamina.running.holder import find_holder, is_own_status

LOOK_AGAIN_S = 0.2
TIMEOUT_S = 300.0

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the pipeline to answer.",
)


def _holder(home: Path) -> Process | None:
    with typed_errors(home):
        if not home.is_dir():
            advice = "Has it ever run? `lamina run` creates its home; --home says where it is"
            raise NotFound("there is no home here", where=str(home), advice=advice)
    return find_holder(home, read_status(home))


def still_runs(home: Path, run: Status) -> bool:
    """Whether this very run still has the home; a supervisor may have started another one."""
    if _holder(home) is None:
        return False
    said = read_status(home)
    return said is None or (said.run, said.pid) == (run.run, run.pid)


class Wait:
    """Looks again and again, until a deadline."""

    def __init__(self, place: PipelinePlace, timeout_s: float) -> None:
        self._home = place.home
        self._timeout_s = timeout_s
        self._clock = SystemClock()
        self._deadline = self._clock.monotonic() + timeout_s

    def for_a_run(self) -> Status | None:
        """What the run that has the home says of itself; None if nothing runs.

        A process that has just taken the lock says it in a moment.
        """
        while (holder := _holder(self._home)) is not None:
            said = read_status(self._home)
            if is_own_status(said, holder):
                return said
            self._pause(holder)
        return None

    def until(self, done: Callable[[], bool], what: str, process: Process) -> None:
        with waiting(what):
            while not done():
                self._pause(process)

    def _pause(self, process: Process) -> None:
        if self._clock.monotonic() >= self._deadline:
            raise StoreUnavailable(
                f"pid {process.pid} on {process.host} has not answered in {self._timeout_s:g} s",
                advice="It ends its epoch first. Look at its output, or wait longer with --timeout",
            )
        self._clock.wait(LOOK_AGAIN_S)
