"""`lamina stop` and `lamina checkpoint`: what a running pipeline is asked by files in its home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from lamina.checkpoint import Checkpointer
from lamina.cli import shapes
from lamina.cli.run_places import PipelinePlace, pipeline_argument
from lamina.cli.screen import Screen, json_option
from lamina.cli.shapes import Shape
from lamina.cli.target import open_at
from lamina.clock import SystemClock
from lamina.errors import NotFound, StoreUnavailable
from lamina.os_errors import typed_errors
from lamina.protocol.history import History
from lamina.running.control import Ask, Process, ask, is_asked, read_status
from lamina.running.holder import find_holder

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
    """Let a running pipeline end its epoch, make a checkpoint and exit; wait until it has.

    Ends with 0 when nothing runs any more, also if nothing did.
    """
    holder = _holder(place.home)
    if holder is not None:
        ask(place.home, Ask.STOP, holder)
        _wait(lambda: _holder(place.home) != holder, f"{place.name} is ending", holder, timeout)
    if screen.as_json:
        screen.json({"home": str(place.home.absolute()), "stopped": _shape(holder)})
    elif holder is None:
        screen.line("nothing runs in this home")
    else:
        screen.line(f"ended: pid {holder.pid} on {holder.host}, {_last_words(place.home)}")


@click.command("checkpoint")
@pipeline_argument
@timeout_option
@json_option
def checkpoint_command(place: PipelinePlace, timeout: float, screen: Screen) -> None:
    """Let a running pipeline make a checkpoint after its epoch; wait until it has.

    Ends with 3 if nothing runs: what ended by itself, or was stopped, has made one.
    """
    holder = _holder(place.home)
    if holder is None:
        raise NotFound(
            "no process runs this pipeline, so nobody can make a checkpoint",
            where=str(place.home),
            advice="`lamina status` shows the last one",
        )
    ask(place.home, Ask.CHECKPOINT, holder)
    _wait(lambda: _answered(place.home, holder), f"{place.name} is saving", holder, timeout)
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


def _answered(home: Path, holder: Process) -> bool:
    """The request is gone; or it never will be, because the process is."""
    if not is_asked(home, Ask.CHECKPOINT):
        return True
    if _holder(home) != holder:
        message = "the process ended before it could answer"
        raise NotFound(message, where=str(home), advice="`lamina status` shows how")
    return False


def _holder(home: Path) -> Process | None:
    with typed_errors(home):
        if not home.is_dir():
            advice = "Has it ever run? `lamina run` makes its home; --home says where"
            raise NotFound("there is no home in this place", where=str(home), advice=advice)
    return find_holder(home, read_status(home))


def _wait(done: Callable[[], bool], what: str, holder: Process, timeout: float) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + timeout
    console = Console(stderr=True, highlight=False, emoji=False)
    with console.status(what):  # nothing where there is no terminal
        while not done():
            if clock.monotonic() >= deadline:
                raise StoreUnavailable(
                    f"pid {holder.pid} on {holder.host} has not answered in {timeout:g} s",
                    advice="It ends its epoch first. Look at its output, or wait longer: --timeout",
                )
            clock.wait(LOOK_AGAIN_S)


def _last_words(home: Path) -> str:
    said = read_status(home)
    if said is None:
        return "without a word"
    why = f": {said.why}" if said.why else ""
    return f"{said.phase} at epoch {said.epoch}, checkpoint of epoch {said.saved_epoch}{why}"


def _shape(holder: Process | None) -> Shape | None:
    return None if holder is None else {"pid": holder.pid, "host": holder.host}
