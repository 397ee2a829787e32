"""`lamina log`: what happened, entry by entry."""

from __future__ import annotations

from itertools import islice

import click

from lamina.checkpoint import Checkpointer
from lamina.cli import shapes
from lamina.cli.screen import Answered, Screen, json_option
from lamina.cli.target import Target, store_options
from lamina.cli.words import size, utc
from lamina.errors import LaminaError, LogDamaged
from lamina.format.log import Body, Checkpoint, Entry, Forget, Pin, Rewind, Takeover, Unpin, kind_of
from lamina.format.names import LogName


@click.command("log")
@store_options()
@click.option("--from", "first", type=click.IntRange(min=1), default=1, help="The first entry.")
@click.option("--limit", type=click.IntRange(min=1), help="How many entries at most.")
@json_option
def log_command(target: Target, first: int, limit: int | None, screen: Screen) -> None:
    """Print the commit log, one line per entry.

    What stands before a damaged or missing entry is printed all the same; then the command fails.
    """
    checkpointer = target.to_read()
    entries, damage = read_entries(checkpointer, first, limit)
    if screen.as_json:
        shown = [shapes.log_entry(entry, digest) for entry, digest in entries]
        failed = {"error": shapes.error(damage)} if damage else {}
        screen.json(shapes.place(checkpointer) | {"entries": shown} | failed)
    for entry, _ in () if screen.as_json else entries:
        screen.line(_line(entry))
    if damage:
        raise Answered(damage)


def read_entries(
    checkpointer: Checkpointer, first: int, limit: int | None
) -> tuple[list[tuple[Entry, str]], LaminaError | None]:
    """Entries from *first* on, and what stopped the reading before *limit* and the end."""
    found: list[tuple[Entry, str]] = []
    try:
        for entry in islice(checkpointer.log.entries(first), limit):
            found.append(entry)  # noqa: PERF402  what was read before a failure is kept
        if limit is None or len(found) < limit:
            _refuse_hole(checkpointer, first + len(found))
    except LaminaError as error:
        return found, error
    return found, None


def _refuse_hole(checkpointer: Checkpointer, end: int) -> None:
    """The log ends before *end*: nothing may lie behind."""
    paths = checkpointer.paths
    for info in checkpointer.store.list(paths.log_dir(), after=paths.log_entry(end - 1)):
        name = paths.parse(info.key)
        if isinstance(name, LogName):
            raise LogDamaged(
                f"log entry {end} is missing: the next one is {name.seq}",
                where=paths.log_entry(end),
            )


def _line(entry: Entry) -> str:
    head = f"{entry.seq:>6}  {utc(entry.timestamp_ms)}  generation {entry.generation}"
    return f"{head}  {kind_of(entry.body):<10}  {_says(entry.body)}"


def _says(body: Body) -> str:
    match body:
        case Takeover(generation, home):
            return f"generation {generation} from {home}"
        case Checkpoint():
            parent = f" on {body.parent}" if body.parent else ""
            return f"{body.id} epoch {body.epoch}{parent}, {size(body.total_size)}"
        case Rewind(epoch, to, to_epoch):
            return f"epoch {epoch} goes on from {to} (epoch {to_epoch})"
        case Pin(name, id):
            return f"{name!r} is {id}"
        case Unpin(name):
            return f"{name!r}"
        case Forget(ids):
            return " ".join(map(str, ids))
