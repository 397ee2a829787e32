"""`lamina top`: a pipeline as it runs, from another terminal, drawn again and again."""

from __future__ import annotations

import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from lamina.cli.pipeline.history import COLUMNS, cells
from lamina.cli.pipeline.run_words import live_facts
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import table_lines
from lamina.cli.support.words import printable, utc
from lamina.clock import Clock, SystemClock
from lamina.errors import LaminaError
from lamina.front.history import history_at, history_places
from lamina.running.control import read_status
from lamina.running.holder import find_holder, is_own_status
from lamina.workspace.base import Notes

_ROWS = 10
_QUIT = ("q", "Q", "\x1b", "\x03", "")  # and the end of the input


@click.command("top")
@pipeline_argument
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
def top_command(place: PipelinePlace, interval_s: float) -> None:
    """Watch a pipeline run, from another terminal.

    Shows what the process says of itself and its last epochs. Press q or Ctrl-C to end. Where
    standard output is not a terminal one frame is printed.
    """
    places, clock = history_places(place), SystemClock()
    if not sys.stdout.isatty():
        for line in frame(place.home, places, clock):
            click.echo(line)
        return
    from rich.console import Console  # noqa: PLC0415  slow to import, and for terminals only
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, emoji=False)

    def drawn() -> Text:
        return Text("\n".join(frame(place.home, places, clock)), no_wrap=True, overflow="crop")

    with (
        _keys() as key_within,
        Live(drawn(), console=console, screen=True, auto_refresh=False) as live,
    ):
        try:
            while key_within(interval_s) not in _QUIT:
                live.update(drawn(), refresh=True)
        except KeyboardInterrupt:
            pass  # that is how it is ended


def frame(home: Path, places: tuple[Notes, ...], clock: Clock) -> Iterator[str]:
    """All lines of one look; what cannot be read now is said instead."""
    said = read_status(home)
    yield f"state       {_state(home)}"
    if said is not None:
        for name, text in live_facts(said, None, clock.now_ms()).items():
            if name != "state":
                yield printable(f"{name:<11} {text}")
        if said.why:
            yield printable(f"why         {said.why}")
    yield ""
    try:
        page = history_at(places, limit=_ROWS)
    except LaminaError as error:
        yield printable(f"no history: {error}")
        return
    yield from table_lines(COLUMNS, [cells(row) for row in page.rows])
    yield from (printable(f"not read: {each}") for each in page.skipped)


def _state(home: Path) -> str:
    """What the process does now, or how the last one ended."""
    said = read_status(home)
    holder = find_holder(home, said)
    if holder is not None:
        mine = said is not None and is_own_status(said, holder)
        return f"{said.phase if said and mine else 'starting'} (pid {holder.pid} on {holder.host})"
    if said is None:
        return "not running"
    if said.is_over:
        return f"not running: it {said.phase}"
    if said.process.is_here:
        return "not running: it was killed"
    return f"not running here: last seen {said.phase} on {said.host} at {utc(said.updated_ms)}"


@contextmanager
def _keys() -> Iterator[_KeyWithin]:
    """Keys as they are pressed, without Enter; the terminal is as before when it ends."""
    if not sys.stdin.isatty():
        yield _KeyWithin()
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _KeyWithin()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _KeyWithin:
    """The key that is pressed within some seconds; None if none is."""

    def __call__(self, seconds: float) -> str | None:
        if not sys.stdin.isatty():
            SystemClock().wait(seconds)
            return None
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else None
