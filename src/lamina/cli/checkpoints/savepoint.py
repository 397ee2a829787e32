"""`lamina savepoint`: checkpoints with a name, kept until a person drops it."""

from __future__ import annotations

import click

from lamina.checkpoint import Checkpointer, create_savepoint, drop_savepoint, list_savepoints
from lamina.checkpoint.finding import LATEST, find_checkpoint, is_reserved
from lamina.checkpoint.savepoints import check_is_free, check_name
from lamina.cli.pipeline.requests import timeout_option
from lamina.cli.pipeline.savepoint import Made, checkpointer_of, savepoint_now
from lamina.cli.support import shapes
from lamina.cli.support.places import PipelinePlace, place_of
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import (
    Target,
    nothing_here,
    store_options,
)
from lamina.cli.support.words import begun, counted, size
from lamina.errors import UsageError


@click.group("savepoint")
def savepoint_group() -> None:
    """Name checkpoints, to keep them until you drop the name."""


@savepoint_group.command("create")
@store_options(always=True)
@click.option(
    "--home",
    metavar="PATH|URL",
    help="Of PIPELINE: its write-ahead log; default: .lamina/NAME/home next to the file.",
)
@timeout_option
@click.option("--dry-run", is_flag=True, help="Show what would be named; ask and change nothing.")
@click.argument(
    "words", metavar="[PIPELINE] NAME [ID|SAVEPOINT|EPOCH|latest]", nargs=-1, required=True
)
@json_option
def create_command(
    *,
    target: Target,
    home: str | None,
    timeout: float,
    dry_run: bool,
    words: tuple[str, ...],
    screen: Screen,
) -> None:
    """Name the state of a pipeline as it is now, or a checkpoint.

    With a PIPELINE file (it ends in .sql): all that is committed now. A running pipeline is asked
    for a checkpoint after its epoch; of one that does not run, the epochs since its newest
    checkpoint are saved here. With an ID, EPOCH or name as well, or with --store alone, a
    checkpoint that exists is named, by default the newest.

    Giving the same name to the same checkpoint again is not an error.
    """
    place, name, reference = _parsed(words, target, home)
    check_name(name)
    if is_reserved(name):
        raise UsageError(f"a savepoint called {name!r} could not be told from a checkpoint")
    if place is not None and reference is None:
        made = savepoint_now(place, name, timeout_s=timeout, dry_run=dry_run)
    elif place is not None:
        checkpointer = checkpointer_of(place, writable=not dry_run)
        made = _named(checkpointer, name, reference, dry_run=dry_run)
    else:
        checkpointer = target.to_read() if dry_run else target.to_write()
        made = _named(checkpointer, name, reference, dry_run=dry_run)
    _answer(screen, made, name)


def _parsed(
    words: tuple[str, ...], target: Target, home: str | None
) -> tuple[PipelinePlace | None, str, str | None]:
    """The pipeline, if one is named; the name; and the checkpoint, if one is meant."""
    has_file = len(words) > 1 and words[0].endswith(".sql")
    name, *rest = words[1:] if has_file else words
    if len(rest) > 1:
        raise click.UsageError("More than [PIPELINE] NAME [ID|SAVEPOINT|EPOCH|latest] was given.")
    reference = rest[0] if rest else None
    if has_file:
        if target.base or target.options:
            raise click.UsageError("--base and --option go with --store, without a PIPELINE.")
        return place_of(words[0], home, target.url or None), name, reference
    if not target.url:
        raise click.UsageError("Whose state? Give a PIPELINE file and a NAME, or --store.")
    if home is not None:
        raise click.UsageError("--home goes with a PIPELINE file.")
    return None, name, reference


def _named(checkpointer: Checkpointer, name: str, what: str | None, *, dry_run: bool) -> Made:
    found = find_checkpoint(checkpointer, what or LATEST)
    if dry_run:
        check_is_free(checkpointer, name, found.id)
        return Made(checkpointer, None, found.epoch)
    return Made(checkpointer, create_savepoint(checkpointer, name, found.id), found.epoch)


def _answer(screen: Screen, made: Made, name: str) -> None:
    checkpointer, found = made.checkpointer, made.savepoint
    if screen.as_json:
        answer = {
            "dry_run": found is None,
            "running": made.running is not None,
            "epoch": made.epoch,
            "saved_epochs": made.saved_epochs,
            "saved_bytes": made.saved_bytes,
            "savepoint": found and shapes.savepoint(found, checkpointer.history()),
        }
        screen.json(shapes.place(checkpointer) | answer)
        return
    if made.saved_epochs:
        verb = "would save" if found is None else "saved"
        amount = f"{counted(made.saved_epochs, 'epoch')} of the log, {size(made.saved_bytes)}"
        screen.line(f"{verb} what the newest checkpoint did not have: {amount}")
    if found is not None:
        screen.line(f"savepoint {name!r} is {found.checkpoint.id}, epoch {made.epoch}")
    elif made.running is not None:
        who = f"pid {made.running.pid} on {made.running.host}"
        screen.line(f"would ask {who} for a checkpoint of epoch {made.epoch} or later")
    else:
        screen.line(f"would name epoch {made.epoch} {name!r}")


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
