"""`lamina list`: which checkpoints exist."""

from __future__ import annotations

import click

from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target, nothing_here, store_options
from lamina.cli.support.words import begun, size
from lamina.format.log import Committed
from lamina.protocol.history import History

COLUMNS = (">EPOCH", "ID", "BEGUN (UTC)", ">GENERATION", ">SIZE", "MARKS", "SAVEPOINTS", "PARENT")


@click.command("list")
@store_options()
@json_option
def list_command(target: Target, screen: Screen) -> None:
    """List the checkpoints, by epoch.

    "newest" marks the highest epoch, "current" the checkpoint that the pipeline continues from.
    """
    checkpointer = target.to_read()
    found = checkpointer.list_checkpoints()
    history = checkpointer.history()
    if not history.seq:
        raise nothing_here(checkpointer)  # a mistyped base is not a pipeline without checkpoints
    if screen.as_json:
        screen.json(shapes.place(checkpointer) | shapes.checkpoints(found, history))
    elif found:
        screen.table(COLUMNS, [_row(each, history) for each in found])
    else:
        screen.line(f"no checkpoints in {checkpointer.store.url}")


def _row(committed: Committed, history: History) -> tuple[str, ...]:
    return (
        str(committed.epoch),
        str(committed.id),
        begun(committed.id),
        str(committed.generation),
        size(committed.entry.total_size),
        marks(committed, history) or "-",
        ", ".join(history.pinned(committed.id)) or "-",
        str(committed.entry.parent or "-"),
    )


def marks(committed: Committed, history: History) -> str:
    """What sets a checkpoint apart from the others."""
    newest = history.newest
    is_newest = newest is not None and newest.id == committed.id
    found = {"newest": is_newest, "current": history.base == committed.id}
    return ", ".join(mark for mark, holds in found.items() if holds)
