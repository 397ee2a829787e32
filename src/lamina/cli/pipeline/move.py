"""`lamina move`: the home of a pipeline to another place, a folder or an object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lamina.cli.pipeline.move_stores import StorePlan, plan_stores, store_move
from lamina.cli.support.homes import HomeTarget
from lamina.cli.support.places import place_of
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import open_at
from lamina.cli.support.words import counted, size
from lamina.clock import SystemClock
from lamina.errors import NotFound, UsageError
from lamina.recovery.destinations import Destination, Folder, Objects
from lamina.recovery.moving import MoveReport, move_home
from lamina.store import Store
from lamina.store.address import home_address
from lamina.workspace import LocalWorkspace
from lamina.workspace.base import Workspace
from lamina.workspace.remote import RemoteWorkspace
from lamina.workspace.remote.places import Held


@click.command("move")
@click.argument("pipeline", metavar="[PIPELINE]", required=False)
@click.option(
    "--home",
    metavar="PATH|URL",
    envvar="LAMINA_HOME",
    show_envvar=True,
    help="The home to move; default: .lamina/NAME/home next to PIPELINE.",
)
@click.option("--to-home", metavar="PATH|URL", required=True, help="Where to: an empty place.")
@click.option(
    "--store",
    metavar="URL",
    envvar="LAMINA_STORE",
    show_envvar=True,
    help="Where its checkpoints are; default: the default store of PIPELINE or of the home.",
)
@click.option(
    "--to-store",
    metavar="URL",
    help="Where its checkpoints go; default: from the default store to that of the new home.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="The process that has this home in an object store is gone; if not, it stops.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@json_option
def move_command(
    *,
    pipeline: str | None,
    home: str | None,
    to_home: str,
    store: str | None,
    to_store: str | None,
    take_over: bool,
    dry_run: bool,
    screen: Screen,
) -> None:
    """Move the home of a pipeline to another folder or object store.

    The pipeline must not be running. The copy is read back and verified before the old place says
    that the home has moved. If interrupted, run the same command again. Checkpoints in the default
    store of the old home go along; others stay, unless --to-store says where to.
    """
    if not (pipeline or home):
        raise UsageError("which home? Give PIPELINE or --home")
    given = home or place_of(pipeline or "").given_home
    plan = plan_stores(pipeline, given, to_home, store=store, to_store=to_store)
    with (
        _source(given, take_over=take_over) as source,
        _target(to_home, is_read_only=dry_run) as target,
        screen.progress("moving") as report,
    ):
        told = move_home(
            source,
            target,
            clock=SystemClock(),
            report=report,
            dry_run=dry_run,
            stores=store_move(plan, is_read_only=dry_run, report=report),
        )
    told = replace(told, store=told.store or plan.stays)
    if screen.as_json:
        pipeline_shape = {"id": told.pipeline.id, "name": told.pipeline.name}
        screen.json(asdict(told) | {"pipeline": pipeline_shape, "dry_run": dry_run})
        return
    _print(screen, told, plan)


def _print(screen: Screen, told: MoveReport, plan: StorePlan) -> None:
    whose = f" of {told.pipeline.name}" if told.pipeline.name else ""
    verb = "moved" if told.moved else "would move"
    screen.line(f"{verb} the home{whose} from {told.source}")
    screen.line(f"    to {told.target}")
    if told.files:
        screen.line(f"{counted(told.files, 'file')}, {size(told.bytes)}, up to epoch {told.epoch}")
    if plan.moves and told.store:
        what = f": {counted(told.objects, 'object')}, {size(told.store_bytes)}"
        screen.line(f"{verb} its checkpoints to {told.store}{what if told.objects else ''}")
    if told.moved:
        screen.line("verified: everything was read back and compared")
        known = f" --store {told.store}" if told.store else ", and --store as before"
        screen.line(f"start it with --home {told.target}{known}")
        if plan.is_below_home(told.store):
            screen.line(f"keep {told.store}: its checkpoints stay there, below the old place")
        if told.forks:
            screen.line(f"keep {plan.now}: forks read files of it, of {', '.join(told.forks)}")


@contextmanager
def _source(given: str, *, take_over: bool) -> Iterator[Workspace]:
    clock = SystemClock()
    address = home_address(given)
    if not address:
        yield LocalWorkspace(Path(HomeTarget(given).disk().root), clock)
        return
    with TemporaryDirectory(prefix="lamina-move-") as scratch:
        place = Held(open_at(address, {}, writable=True))
        yield RemoteWorkspace(place, Path(scratch), clock, take_over=take_over)


@contextmanager
def _target(given: str, *, is_read_only: bool) -> Iterator[Destination]:
    address = home_address(given)
    if not address:
        yield Folder(Path(HomeTarget(given).disk().root))
        return
    store = _opened(address, is_read_only=is_read_only)
    with TemporaryDirectory(prefix="lamina-move-") as scratch:
        if store is None:
            nothing = Folder(Path(scratch))
            nothing.where = address
            yield nothing
        else:
            yield Objects(store, Path(scratch), SystemClock())


def _opened(address: str, *, is_read_only: bool) -> Store | None:
    """None if there is no such store yet, and none is to be made."""
    try:
        return open_at(address, {}, writable=not is_read_only)
    except NotFound:
        if is_read_only:
            return None
        raise
