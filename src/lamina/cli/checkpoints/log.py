"""`lamina log`: what happened, entry by entry."""

from __future__ import annotations

from itertools import islice

import click

from lamina.checkpoint import Checkpointer
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.session import Answered
from lamina.cli.support.target import Target, nothing_here, store_options
from lamina.cli.support.words import size, utc
from lamina.errors import LaminaError, LogDamaged
from lamina.format.log import Body, Checkpoint, Entry, Forget, Pin, Rewind, Takeover, Unpin, kind_of
from lamina.format.names import LogName


@click.command("log")
@store_options()
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=1),
    default=1,
    help="Number of the first entry to print.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of entries.")
@json_option
def log_command(target: Target, first: int, limit: int | None, screen: Screen) -> None:
    """Print the commit log, one line per entry.

    Entries before a damaged or missing one are still printed; then the command fails.
    """
    checkpointer = target.to_read()
    entries, damage = read_entries(checkpointer, first, limit)
    if not entries and not damage and not checkpointer.history().seq:
        raise nothing_here(checkpointer)
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
    listed = _listed(checkpointer, first)  # before reading: what is written meanwhile is no hole
    try:
        for entry in islice(checkpointer.log.entries(first), limit):
            found.append(entry)  # noqa: PERF402  what was read before a failure is kept
    except LaminaError as error:
        return found, error
    end = first + len(found)
    behind = [seq for seq in listed if seq >= end]
    if behind and (limit is None or len(found) < limit):
        message = f"log entry {end} is missing: the next one is {behind[0]}"
        return found, LogDamaged(message, where=checkpointer.paths.log_entry(end))
    return found, None


def _listed(checkpointer: Checkpointer, first: int) -> list[int]:
    paths = checkpointer.paths
    infos = checkpointer.store.list(paths.log_dir(), after=paths.log_entry(first - 1))
    names = (paths.parse(info.key) for info in infos)
    return [name.seq for name in names if isinstance(name, LogName)]


def _line(entry: Entry) -> str:
    head = f"{entry.seq:>6}  {utc(entry.timestamp_ms)}  generation {entry.generation}"
    return f"{head}  {kind_of(entry.body):<10}  {_says(entry.body)}"


def _says(body: Body) -> str:
    match body:
        case Takeover(generation, home, pipeline):
            whose = f", pipeline {pipeline.owner.name!r}" if pipeline else ""
            return f"generation {generation} from {home}{whose}"
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
