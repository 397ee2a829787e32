"""`lamina savepoint`: checkpoints with a name, kept until a person drops it."""

from __future__ import annotations

import click

from lamina.checkpoint import create_savepoint, drop_savepoint, list_savepoints
from lamina.checkpoint.finding import LATEST, find_checkpoint, is_reserved
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import (
    Target,
    nothing_here,
    store_options,
)
from lamina.cli.support.words import begun
from lamina.errors import UsageError


@click.group("savepoint")
def savepoint_group() -> None:
    """Name checkpoints, to keep them until you drop the name."""


@savepoint_group.command("create")
@store_options()
@click.argument("name")
@click.argument("reference", metavar="[ID|SAVEPOINT|EPOCH|latest]", default=LATEST)
@json_option
def create_command(target: Target, name: str, reference: str, screen: Screen) -> None:
    """Name a checkpoint, by default the newest.

    Giving the same name to the same checkpoint again is not an error.
    """
    if is_reserved(name):
        raise UsageError(f"a savepoint called {name!r} could not be told from a checkpoint")
    checkpointer = target.to_write()
    found = create_savepoint(checkpointer, name, find_checkpoint(checkpointer, reference).id)
    if screen.as_json:
        answer = {"savepoint": shapes.savepoint(found, checkpointer.history())}
        screen.json(shapes.place(checkpointer) | answer)
    else:
        checkpoint = found.checkpoint
        screen.line(f"savepoint {name!r} is {checkpoint.id}, epoch {checkpoint.epoch}")


@savepoint_group.command("list")
@store_options()
@json_option
def list_command(target: Target, screen: Screen) -> None:
    """List the savepoints, by name."""
    checkpointer = target.to_read()
    found = list_savepoints(checkpointer)
    history = checkpointer.history()
    if not history.seq:
        raise nothing_here(checkpointer)
    if screen.as_json:
        answer = {"savepoints": [shapes.savepoint(each, history) for each in found]}
        screen.json(shapes.place(checkpointer) | answer)
    elif found:
        rows = [
            (s.name, str(s.checkpoint.epoch), str(s.checkpoint.id), begun(s.checkpoint.id))
            for s in found
        ]
        screen.table(("NAME", ">EPOCH", "ID", "BEGUN (UTC)"), rows)
    else:
        screen.line(f"no savepoints in {checkpointer.store.url}")


@savepoint_group.command("drop")
@store_options()
@click.argument("name")
@json_option
def drop_command(target: Target, name: str, screen: Screen) -> None:
    """Drop a savepoint; a later gc may then delete its checkpoint."""
    checkpointer = target.to_write()
    dropped = drop_savepoint(checkpointer, name)
    if screen.as_json:
        answer = {"dropped": shapes.savepoint(dropped, checkpointer.history())}
        screen.json(shapes.place(checkpointer) | answer)
    else:
        screen.line(f"dropped savepoint {name!r} of {dropped.checkpoint.id}")
