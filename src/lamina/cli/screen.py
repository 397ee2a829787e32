"""What a person or a script reads: answers on stdout; notes, progress and questions on stderr.

On a terminal tables have colours; in a pipe they are plain columns. Lines are never cut: a
terminal may wrap them, a script gets every id whole. With --json stdout is one JSON document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TextIO

import click
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lamina.checkpoint.progress import Progress, Report, silent
from lamina.cli.words import printable
from lamina.errors import LaminaError

_WIDTH = 1_000_000  # wider than any table, so that rich never cuts a cell
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


class Answered(Exception):
    """A command failed after its answer: the error ends it, but is no answer of its own."""

    def __init__(self, error: LaminaError) -> None:
        super().__init__(str(error))
        self.error = error


class Screen:
    """Where one command answers."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: Mapping[str, Any]) -> None:
        """The whole answer to a script."""
        click.echo(json.dumps(value, indent=2))

    def line(self, text: str = "") -> None:
        """One line of an answer to a person."""
        click.echo(printable(text))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under a head; a column whose name starts with > is aligned to the right."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(
                name.removeprefix(">"), justify="right" if name[0] == ">" else "left", no_wrap=True
            )
        for row in rows:
            table.add_row(*(_cell(cell) for cell in row))
        self._print(table)

    def note(self, text: str) -> None:
        """Something worth knowing for a person who looks; nothing for a script."""
        if sys.stderr.isatty():
            _console(sys.stderr).print(Text(printable(text), style="dim"), soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Report]:
        """A bar on a terminal; silence elsewhere."""
        if not sys.stderr.isatty():
            yield silent
            return
        with progress.Progress(
            *progress.Progress.get_default_columns(),
            console=_console(sys.stderr, width=None),
            transient=True,
        ) as bar:
            task = bar.add_task(what, total=None)

            def report(step: Progress) -> None:
                bar.update(task, completed=step.done, total=step.total)

            yield report

    def _print(self, table: Table) -> None:
        console = _console(sys.stdout)
        with console.capture() as captured:
            console.print(table)
        for text in captured.get().splitlines():
            click.echo(text.rstrip(), color=console.color_system is not None)


def stdin_is_terminal() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def _cell(text: str) -> Text:
    return Text(printable(text), style=_STYLES.get(text, ""))


def _console(stream: TextIO, width: int | None = _WIDTH) -> Console:
    """NO_COLOR and TERM=dumb are rich's to honour; whether it is a terminal is ours to say."""
    return Console(
        file=stream, width=width, force_terminal=stream.isatty(), highlight=False, emoji=False
    )


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --json; it gets a `screen`."""

    @wraps(command)
    def run(as_json: bool, **rest: Any) -> None:
        command(screen=Screen(as_json=as_json), **rest)

    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")(
        run
    )
