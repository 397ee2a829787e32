"""`lamina checkpoint`: make a running pipeline save its state now."""

from __future__ import annotations

from pathlib import Path

import click

from lamina.checkpoint import Checkpointer
from lamina.cli.pipeline.requests import Wait, still_runs, timeout_option
from lamina.cli.support import shapes
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import open_at
from lamina.errors import NotFound, StoreUnavailable
from lamina.protocol.history import History
from lamina.running.control import Ask, Status, ask, is_asked, read_status


@click.command("checkpoint")
@pipeline_argument
@timeout_option
@json_option
def checkpoint_command(place: PipelinePlace, timeout: float, screen: Screen) -> None:
    """Make a running pipeline take a checkpoint now.

    The pipeline finishes its epoch first; this command waits until the checkpoint is made. Exits
    with 3 if the pipeline is not running: one that ended by itself or was stopped has made a
    checkpoint already.
    """
    wait = Wait(place, timeout)
    run = wait.for_a_run()
    if run is None:
        raise NotFound(
            "the pipeline is not running, so it cannot make a checkpoint",
            where=str(place.home),
            advice="`lamina status` shows the last one",
        )
    if not has_saved(place, wait, run):
        message = "the process ended before it could answer"
        raise NotFound(message, where=str(place.home), advice="`lamina status` shows how")
    history = Checkpointer(open_at(place.store, {}, writable=False), vnode_count=None).history()
    _answer(screen, place, history)


def _answer(screen: Screen, place: PipelinePlace, history: History) -> None:
    newest = history.newest
    if screen.as_json:
        made = shapes.checkpoint(newest, history) if newest else None
        screen.json({"home": str(place.home.absolute()), "checkpoint": made})
    elif newest is None:
        screen.line("no epoch is committed yet, so there is nothing to save")
    else:
        screen.line(f"{newest.id}, epoch {newest.epoch}")


def has_saved(place: PipelinePlace, wait: Wait, run: Status) -> bool:
    """Ask *run* for a checkpoint, and wait; False if it ended before it could answer.

    StoreUnavailable if it could not make one, or has not answered in time.
    """
    ask(place.home, Ask.CHECKPOINT, run)
    wait.until(lambda: _is_over(place.home, run), f"{place.name} is saving", run.process)
    if is_asked(place.home, Ask.CHECKPOINT) and not still_runs(place.home, run):
        return False
    said = read_status(place.home)
    if said is not None and said.refused:
        raise StoreUnavailable(f"no checkpoint was made: {said.refused}", where=place.store)
    return True


def _is_over(home: Path, run: Status) -> bool:
    """The request is gone; or it never will be, because the process is."""
    return not is_asked(home, Ask.CHECKPOINT) or not still_runs(home, run)
