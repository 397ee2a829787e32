"""`lamina stop`: end a running pipeline, from another process."""

from __future__ import annotations

from pathlib import Path

import click

from lamina.cli.pipeline.requests import Wait, still_runs, timeout_option
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import utc
from lamina.running.control import Ask, Status, ask, read_status


@click.command("stop")
@pipeline_argument
@timeout_option
@json_option
def stop_command(place: PipelinePlace, timeout: float, screen: Screen) -> None:
    """Stop a running pipeline after a final checkpoint.

    The pipeline finishes its epoch, makes a checkpoint and exits; this command waits for that.
    Exits with 0 once nothing is running, even if nothing was.
    """
    wait = Wait(place, timeout)
    run = wait.for_a_run()
    if run is not None:
        ask(place.home, Ask.STOP, run)
        wait.until(lambda: not still_runs(place.home, run), f"{place.name} is ending", run.process)
    if screen.as_json:
        screen.json({"home": str(place.home.absolute()), "stopped": _shape(run)})
    elif run is None:
        screen.line("nothing is running in this home" + _last_seen(place.home))
    else:
        screen.line(f"ended: pid {run.pid} on {run.host}, {_last_words(place.home)}")


def _last_seen(home: Path) -> str:
    """Of a run on another computer that did not say it was over: its lock is free."""
    said = read_status(home)
    if said is None or said.is_over or said.process.is_here:
        return ""
    return f"; last seen on {said.host} (pid {said.pid}) at {utc(said.updated_ms)}"


def _last_words(home: Path) -> str:
    said = read_status(home)
    if said is None:
        return "without a word"
    why = f": {said.why}" if said.why else ""
    return f"{said.phase} at epoch {said.epoch}, checkpoint of epoch {said.saved_epoch}{why}"


def _shape(run: Status | None) -> Shape | None:
    return None if run is None else {"pid": run.pid, "host": run.host}
