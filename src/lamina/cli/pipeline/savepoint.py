"""`lamina savepoint create PIPELINE`: the state of a pipeline as it is now, running or not."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.checkpoint import Checkpointer, Savepoint
from lamina.cli.pipeline.checkpoint import has_saved
from lamina.cli.pipeline.requests import Wait
from lamina.cli.support.places import PipelinePlace
from lamina.cli.support.target import open_at, require_log
from lamina.errors import NotFound, StoreUnavailable
from lamina.running.control import Status


@dataclass(frozen=True, slots=True)
class Made:
    """What was named, or would be."""

    checkpointer: Checkpointer
    savepoint: Savepoint | None  # None of a dry run
    epoch: int  # of a running pipeline: that one, or a later one
    running: Status | None = None
    saved_epochs: int = 0  # of a pipeline that does not run: what no checkpoint had before
    saved_bytes: int = 0


def checkpointer_of(place: PipelinePlace, *, writable: bool) -> Checkpointer:
    """The store of a pipeline that has run."""
    looking = Checkpointer(open_at(place.store, {}, writable=False), vnode_count=None)
    require_log(looking)
    if not writable:
        return looking
    return Checkpointer(open_at(place.store, {}, writable=True), vnode_count=None)


def savepoint_now(place: PipelinePlace, name: str, *, timeout_s: float, dry_run: bool) -> Made:
    """Have all that is committed now in a checkpoint, and name it.

    A process that runs the pipeline makes the checkpoint. If it ends before it has answered, or
    nothing runs, this process makes it.
    """
    wait = Wait(place, timeout_s)
    run = None if place.remote and not place.home.is_dir() else wait.for_a_run()
    if run is not None:
        made = _of_running(place, name, run, wait, dry_run=dry_run)
        if made is not None:
            return made
    return _of_stopped(place, name, dry_run=dry_run)


def _of_running(
    place: PipelinePlace, name: str, run: Status, wait: Wait, *, dry_run: bool
) -> Made | None:
    """None if it ended before it could answer."""
    from lamina.front.savepoints import check_free, name_newest  # noqa: PLC0415  slow to import

    checkpointer = checkpointer_of(place, writable=not dry_run)
    check_free(checkpointer, name, run.epoch)
    if dry_run:
        return Made(checkpointer, None, run.epoch, run)
    try:
        if not has_saved(place, wait, run):
            return None
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error.message}; {name!r} names nothing yet",
            where=error.where,
            advice="A request that was not answered still stands: the pipeline makes the "
            "checkpoint after its epoch. Run the same command again to name it",
        ) from error
    if checkpointer.history().newest is None:
        raise NotFound("no epoch is committed yet, so there is nothing to name")
    found = name_newest(checkpointer, name)
    return Made(checkpointer, found, found.checkpoint.epoch, run)


def _of_stopped(place: PipelinePlace, name: str, *, dry_run: bool) -> Made:
    from lamina.front.savepoints import name_stopped  # noqa: PLC0415  slow to import

    checkpointer = checkpointer_of(place, writable=not dry_run)
    told = name_stopped(place, checkpointer, name, dry_run=dry_run)
    return Made(
        checkpointer,
        told.savepoint,
        told.epoch,
        saved_epochs=told.saved_epochs,
        saved_bytes=told.saved_bytes,
    )
