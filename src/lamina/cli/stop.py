"""`lamina stop` and `lamina checkpoint`: what a running pipeline is asked by files in its home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from lamina.checkpoint import Checkpointer
from lamina.cli import shapes
from lamina.cli.run_places import PipelinePlace, pipeline_argument
from lamina.cli.screen import Screen, json_option, waiting
from lamina.cli.shapes import Shape
from lamina.cli.target import open_at
from lamina.cli.words import utc
from lamina.clock import SystemClock
from lamina.errors import NotFound, StoreUnavailable
from lamina.os_errors import typed_errors
from lamina.protocol.history import History
from lamina.running.control import Ask, Process, Status, ask, is_asked, read_status
from lamina.running.holder import find_holder, is_own_status

LOOK_AGAIN_S = 0.2
TIMEOUT_S = 300.0

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for it.",
)


@click.command("stop")
@pipeline_argument
@timeout_option
@json_option
def stop_command(place: PipelinePlace, timeout: float, screen: Screen) -> None:
    """Stop a running pipeline, with a checkpoint.

    It ends its epoch, makes a checkpoint and exits; this command waits until it has. Ends with 0
    when nothing runs any more, also if nothing did.
    """
    wait = _Wait(place, timeout)
    run = wait.for_a_run()
    if run is not None:
        ask(place.home, Ask.STOP, run)
        wait.until(lambda: not _runs(place.home, run), f"{place.name} is ending", run.process)
    if screen.as_json:
        screen.json({"home": str(place.home.absolute()), "stopped": _shape(run)})
    elif run is None:
        screen.line("nothing runs in this home" + _last_seen(place.home))
    else:
        screen.line(f"ended: pid {run.pid} on {run.host}, {_last_words(place.home)}")


@click.command("checkpoint")
@pipeline_argument
@timeout_option
@json_option
def checkpoint_command(place: PipelinePlace, timeout: float, screen: Screen) -> None:
    """Let a running pipeline make a checkpoint now.

    It does so after its epoch; this command waits until it has. Ends with 3 if nothing runs: what
    ended by itself, or was stopped, has made one.
    """
    wait = _Wait(place, timeout)
    run = wait.for_a_run()
    if run is None:
        raise NotFound(
            "no process runs this pipeline, so nobody can make a checkpoint",
            where=str(place.home),
            advice="`lamina status` shows the last one",
        )
    ask(place.home, Ask.CHECKPOINT, run)
    wait.until(lambda: _answered(place.home, run), f"{place.name} is saving", run.process)
    said = read_status(place.home)
    if said is not None and said.refused:
        raise StoreUnavailable(f"no checkpoint was made: {said.refused}", where=place.store)
    history = Checkpointer(open_at(place.store, {}, writable=False), vnode_count=None).history()
    _answer(screen, place, history)


def _answer(screen: Screen, place: PipelinePlace, history: History) -> None:
    newest = history.newest
    if screen.as_json:
        made = shapes.checkpoint(newest, history) if newest else None
        screen.json({"home": str(place.home.absolute()), "checkpoint": made})
    elif newest is None:
        screen.line("there is no epoch yet, so there is nothing to save")
    else:
        screen.line(f"{newest.id}, epoch {newest.epoch}")


def _answered(home: Path, run: Status) -> bool:
    """The request is gone; or it never will be, because the process is."""
    if not is_asked(home, Ask.CHECKPOINT):
        return True
    if not _runs(home, run):
        message = "the process ended before it could answer"
        raise NotFound(message, where=str(home), advice="`lamina status` shows how")
    return False


def _holder(home: Path) -> Process | None:
    with typed_errors(home):
        if not home.is_dir():
            advice = "Has it ever run? `lamina run` makes its home; --home says where"
            raise NotFound("there is no home in this place", where=str(home), advice=advice)
    return find_holder(home, read_status(home))


def _runs(home: Path, run: Status) -> bool:
    """Whether this very run still has the home; a supervisor may have started another one."""
    if _holder(home) is None:
        return False
    said = read_status(home)
    return said is None or (said.run, said.pid) == (run.run, run.pid)


class _Wait:
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
                advice="It ends its epoch first. Look at its output, or wait longer: --timeout",
            )
        self._clock.wait(LOOK_AGAIN_S)


def _last_seen(home: Path) -> str:
    """Of a run on another computer that did not say it was over: its lock is free."""
    said = read_status(home)
    if said is None or said.is_over or said.process.is_here:
        return ""
    return f"; last seen on {said.host} (pid {said.pid}) at {utc(said.updated_ms)}"


def _last_words(home: Path) -> str:
    said = read_status(home)
    if said is None:
        return "without a word"
    why = f": {said.why}" if said.why else ""
    return f"{said.phase} at epoch {said.epoch}, checkpoint of epoch {said.saved_epoch}{why}"


def _shape(run: Status | None) -> Shape | None:
    return None if run is None else {"pid": run.pid, "host": run.host}
