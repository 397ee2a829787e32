"""A savepoint of a pipeline by its file, when nothing runs it: all that is committed, named.

If the newest checkpoint lacks committed epochs, one more is made, without Spark
(`engine/stopped.py`). What the store already has is only named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lamina.checkpoint import create_savepoint
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.savepoints import Savepoint
from lamina.clock import SystemClock
from lamina.connectors.opening import close_sinks, open_sinks
from lamina.disk.base import Disk
from lamina.engine.ports import Sink
from lamina.engine.stopped import save_stopped, unsaved
from lamina.errors import AlreadyExists, NotFound
from lamina.front.homes import SeenHome, seen
from lamina.front.places import PipelinePlace
from lamina.wal.home import Home, read_home
from lamina.workspace import LocalWorkspace
from lamina.workspace.base import Notes, Workspace
from lamina.workspace.remote import remote_workspace

TRIES = 10


@dataclass(frozen=True, slots=True)
class NamedPipeline:
    """What has been named, or would be: the epoch, and what had to be saved for it."""

    epoch: int
    saved_epochs: int  # that no checkpoint had before
    saved_bytes: int  # of the log
    savepoint: Savepoint | None  # None of a dry run


def name_stopped(
    place: PipelinePlace, checkpointer: Checkpointer, name: str, *, dry_run: bool = False
) -> NamedPipeline:
    """Name the state at the last committed epoch; nothing runs the pipeline.

    Killed on the way, the same call goes on: what is saved already is only named.
    """
    with seen(place) as home, _sinks(place, home.notes) as sinks:
        _check_gone(place, home)
        asked, clock = list(sinks.values()), SystemClock()
        found = unsaved(_home(home.disk), checkpointer, asked)
        if found.epoch == 0:
            raise NotFound("no epoch is committed yet, so there is nothing to name")
        check_free(checkpointer, name, found.epoch)
        saved = found.checkpoint
        if found.epochs and not dry_run:
            saved = save_stopped(_space(place, clock), checkpointer, found, asked, clock=clock)
    assert saved is not None, "an epoch is committed"
    # Not the newest of the store: that is another one after a rewind that was killed.
    named = None if dry_run else create_savepoint(checkpointer, name, saved.id)
    return NamedPipeline(found.epoch, found.epochs, found.bytes, named)


def name_newest(checkpointer: Checkpointer, name: str) -> Savepoint:
    """Name the newest checkpoint; if a running pipeline drops it meanwhile, a newer one."""
    for left in reversed(range(TRIES)):
        newest = checkpointer.history().newest
        try:
            return create_savepoint(checkpointer, name, newest.id if newest else None)
        except NotFound:
            now = checkpointer.history().newest
            if not left or now == newest:
                raise
    raise AssertionError("the last try returns or raises")


def check_free(checkpointer: Checkpointer, name: str, epoch: int) -> None:
    """AlreadyExists if the name belongs to a checkpoint from before *epoch*."""
    history = checkpointer.history()
    id = history.pins.get(name)
    pinned = history.find(id) if id is not None else None
    if pinned is not None and pinned.epoch < epoch:
        raise AlreadyExists(
            f"the savepoint {name!r} exists and is checkpoint {pinned.id}, epoch {pinned.epoch}; "
            f"the pipeline is at epoch {epoch}",
            advice="Choose another name, or drop that savepoint first",
        )


def _home(disk: Disk) -> Home:
    try:
        return read_home(disk)
    except NotFound as error:
        advice = "Has it ever run? `lamina run` creates its home; --home says where it is"
        raise NotFound(error.message, where=error.where, advice=advice) from error


def _check_gone(place: PipelinePlace, home: SeenHome) -> None:
    """Of a home in an object store: a process on another machine cannot be asked from here."""
    if home.had_by is not None and not home.had_by.has_ended:
        remote_workspace(place.remote, place.home).check_holder()


def _space(place: PipelinePlace, clock: SystemClock) -> Workspace:
    if not place.remote:
        return LocalWorkspace(place.home, clock)
    return remote_workspace(place.remote, place.home, clock, store=place.store)


@contextmanager
def _sinks(place: PipelinePlace, notes: Notes) -> Iterator[dict[str, Sink]]:
    opened = open_sinks(place.read(), place.folder, notes=notes, file=str(place.file))
    try:
        yield opened
    finally:
        close_sinks(opened)
