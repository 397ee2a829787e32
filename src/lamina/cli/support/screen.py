"""What a person or a script reads: answers on stdout; notes, progress and questions on stderr.

On a terminal tables have colours; in a pipe they are plain columns. Lines are never cut: a
terminal may wrap them, a script gets every id whole. With --json stdout is one JSON document.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TextIO

import click

from lamina.checkpoint.progress import Progress, Report, silent
from lamina.cli.support.words import printable

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: dict[str, dict[str, Any]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
    "note": {"dim": True},
}


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
        for line in table_lines(columns, rows, color=_has_color(sys.stdout)):
            click.echo(line)

    def note(self, text: str) -> None:
        """Something worth knowing for a person who looks; nothing for a script."""
        if sys.stderr.isatty():
            text = printable(text)
            click.echo(click.style(text, dim=True) if _has_color(sys.stderr) else text, err=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Report]:
        """A bar on a terminal; silence elsewhere."""
        if not sys.stderr.isatty():
            yield silent
            return
        from rich import progress  # noqa: PLC0415  slow to import, and for terminals only

        with progress.Progress(
            *progress.Progress.get_default_columns(), console=terminal(), transient=True
        ) as bar:
            task = bar.add_task(what, total=None)

            def report(step: Progress) -> None:
                bar.update(task, completed=step.done, total=step.total)

            yield report


def terminal() -> Console:
    """stderr, for what changes in place; NO_COLOR and TERM=dumb are rich's to honour."""
    from rich.console import Console  # noqa: PLC0415  slow to import, and for terminals only

    return Console(
        file=sys.stderr, force_terminal=sys.stderr.isatty(), highlight=False, emoji=False
    )


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is waited for, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with terminal().status(what):
        yield


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, color: bool = False
) -> Iterator[str]:
    """Columns side by side, two spaces apart, none of them cut."""
    head = [name.removeprefix(">") for name in columns]
    cells = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[at]) for row in cells) for at in range(len(head))]
    for number, row in enumerate(cells):
        parts = []
        for name, text, width in zip(columns, row, widths, strict=True):
            space = " " * (width - _width(text))
            style = {"bold": True} if number == 0 else _STYLES.get(text, {})
            shown = click.style(text, **style) if color and style else text
            parts.append(space + shown if name[0] == ">" else shown + space)
        yield "  ".join(parts).rstrip()


def _width(text: str) -> int:
    """In a terminal's cells: Chinese characters, say, take two."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) != 0 for each in text)


def _has_color(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def stdin_is_terminal() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --json; it gets a `screen`."""

    @wraps(command)
    def run(as_json: bool, **rest: Any) -> None:
        command(screen=Screen(as_json=as_json), **rest)

    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")(
        run
    )
