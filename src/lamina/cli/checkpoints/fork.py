"""`lamina fork`: a second pipeline that starts from a checkpoint of the first, by reference."""

from __future__ import annotations

import click

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.finding import LATEST, find_checkpoint
from lamina.checkpoint.forking import ForkPlan, fork_checkpoint, plan_fork
from lamina.cli.support import shapes
from lamina.cli.support.places import pipeline_argument, place_of
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import open_at, require_log
from lamina.cli.support.words import counted, size
from lamina.errors import NotFound
from lamina.front.places import PipelinePlace


@click.command("fork")
@pipeline_argument
@click.argument("new", metavar="NEW")
@click.option(
    "--at",
    metavar="ID|SAVEPOINT|EPOCH|latest",
    default=LATEST,
    show_default=True,
    help="The checkpoint to start from.",
)
@click.option(
    "--to-home",
    metavar="PATH|URL",
    help="Home of the new pipeline, if it is not .lamina/NEW/home next to its file.",
)
@click.option(
    "--to-store",
    metavar="URL",
    help="Store of the new pipeline, if it is not .lamina/NEW/store next to its file.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be shared and change nothing.")
@json_option
def fork_command(
    *,
    place: PipelinePlace,
    new: str,
    at: str,
    to_home: str | None,
    to_store: str | None,
    dry_run: bool,
    screen: Screen,
) -> None:
    """Let a second pipeline start from a checkpoint, by reference.

    NEW is the file of the second pipeline. Nothing is copied: both share the files of the
    checkpoint, and a savepoint of PIPELINE keeps them until the second one does not need them any
    more. PIPELINE may be running. If interrupted, run the same command again.
    """
    there = place_of(new, to_home, to_store)
    source = _open(place.store, writable=not dry_run)
    require_log(source)
    id = find_checkpoint(source, at).id
    if dry_run:
        plan, savepoint = plan_fork(source, id, _there_now(there.store)), None
    else:
        report = fork_checkpoint(source, id, _open(there.store, writable=True))
        plan, savepoint = report.plan, report.savepoint
    if screen.as_json:
        screen.json(_shape(plan, savepoint, place.store, there.store))
    else:
        _print(screen, plan, savepoint, there)


def _open(url: str, *, writable: bool) -> Checkpointer:
    return Checkpointer(open_at(url, {}, writable=writable), vnode_count=None)


def _there_now(store: str) -> Checkpointer | None:
    """A dry run makes no folder: nothing may be there yet."""
    try:
        return _open(store, writable=False)
    except NotFound:
        return None


def _print(screen: Screen, plan: ForkPlan, savepoint: str | None, there: PipelinePlace) -> None:
    verb = "would fork" if savepoint is None else "forked"
    screen.line(f"{verb} {plan.checkpoint.id}, epoch {plan.checkpoint.epoch}")
    screen.line(f"    to {there.store}")
    screen.line(f"shared, not copied: {counted(plan.files, 'file')}, {size(plan.bytes)}")
    if savepoint is not None:
        screen.line(f"the savepoint {savepoint!r} keeps them until the fork needs them no more")
        screen.line("give the sinks of the fork places of their own, then start it:")
        screen.line(f"    lamina run {there.file}")


def _shape(plan: ForkPlan, savepoint: str | None, source: str, target: str) -> shapes.Shape:
    return {
        "dry_run": savepoint is None,
        "id": str(plan.checkpoint.id),
        "epoch": plan.checkpoint.epoch,
        "from": source,
        "to": target,
        "savepoint": savepoint,
        "files": plan.files,
        "bytes": plan.bytes,
    }
