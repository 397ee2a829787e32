"""`lamina run`: a pipeline on a Spark of its own, until somebody stops it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from lamina.cli.pipeline.run_screen import json_line, open_screen
from lamina.cli.support import shapes
from lamina.cli.support.places import PipelinePlace, pipeline_argument
from lamina.cli.support.session import Answered
from lamina.clock import SystemClock
from lamina.errors import LaminaError, UsageError
from lamina.front.defaults import PARTITIONS
from lamina.front.run import MASTER, run
from lamina.logs import ContextFilter, JsonFormatter
from lamina.running.loop import Watcher
from lamina.state.vnodes import VNODE_COUNT


def _power_of_two(_context: click.Context, _parameter: click.Parameter, given: int) -> int:
    """256 virtual partitions are dealt out evenly; asked here, and not when Spark is up."""
    if given & (given - 1):
        raise click.BadParameter(f"{given} is not a power of two")
    return given


def _conf(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for key, equals, _ in pairs:
        if not key.startswith("spark.") or not equals:
            raise click.BadParameter(f"{key!r} is not of the form spark.KEY=VALUE")
    return {key: value for key, _, value in pairs}


@click.command("run")
@pipeline_argument
@click.option(
    "--partitions",
    type=click.IntRange(1, VNODE_COUNT),
    default=PARTITIONS,
    show_default=True,
    callback=_power_of_two,
    help="Number of key partitions (a power of two); may change at any restart.",
)
@click.option("--once", is_flag=True, help="End after one epoch.")
@click.option("--available-now", is_flag=True, help="End when everything available has been read.")
@click.option(
    "--drain",
    is_flag=True,
    help="End when everything available has been read, and close every window: nothing more will "
    "come.",
)
@click.option("--until-epoch", type=click.IntRange(min=0), help="End when this epoch is committed.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Minimum time between epoch starts.  [default: 0; 10 if the home is in an object store]",
)
@click.option("--max-rows", type=click.IntRange(min=1), help="Maximum rows per source and epoch.")
@click.option("--max-files", type=click.IntRange(min=1), help="Maximum files per source and epoch.")
@click.option(
    "--max-ahead",
    "max_ahead_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Rows further ahead do not move the watermark, unless two epochs have no others.",
)
@click.option(
    "--checkpoint-epochs",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Checkpoint every N epochs; 0 turns this trigger off.",
)
@click.option(
    "--checkpoint-interval",
    "checkpoint_interval_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Checkpoint when the last one is this old and there is something new.",
)
@click.option(
    "--lose-after",
    metavar="EPOCH",
    type=click.IntRange(min=0),
    help="Give up every epoch after this one; this cannot be undone.",
)
@click.option(
    "--take-over-home", is_flag=True, help="Confirm that the home which owns the pipeline is lost."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Confirm that the machine which had this home, in an object store, is gone.",
)
@click.option("--start-fresh", is_flag=True, help="Give up all state and begin again from scratch.")
@click.option(
    "--same-pipeline",
    is_flag=True,
    help="Confirm that home, store and sinks belong to this pipeline, though its name has changed.",
)
@click.option(
    "--sink-from-now",
    "sinks_from_now",
    metavar="SINK",
    multiple=True,
    help="Start this sink at the current epoch; it never gets the epochs that it lacks.",
)
@click.option(
    "--skip-lost",
    metavar="SOURCE",
    multiple=True,
    help="Go on behind rows of this source that are gone before they were read.",
)
@click.option(
    "--reuse-state",
    metavar="STREAM",
    multiple=True,
    help="Keep the state of this stream: it means the same although its SELECT has changed.",
)
@click.option(
    "--drop-state",
    metavar="STREAM",
    multiple=True,
    help="Delete the state of this stream, which the pipeline no longer has.",
)
@click.option(
    "--master", default=MASTER, show_default=True, help="Where Spark runs: local[N] or a URL."
)
@click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_conf,
    help="A Spark setting, as for spark-submit; may be repeated.",
)
@click.option(
    "--jars",
    metavar="FOLDER",
    default="",
    help="Folder with the jars of Spark's connectors, if it cannot fetch them.  [env var: "
    "LAMINA_JARS]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics, /livez and /readyz on this port; 0 takes any that is free.",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    help="Address to serve metrics on.  [default: 127.0.0.1]",
)
@click.option(
    "--events",
    metavar="FILE|-",
    help="Append one JSON line per epoch to this file, or print it (-).",
)
@click.option(
    "--log-json", is_flag=True, help="Print log records on stderr, one JSON object per line."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def run_command(*, place: PipelinePlace, as_json: bool, log_json: bool, **options: Any) -> None:
    """Run a pipeline, epoch after epoch.

    SIGTERM, Ctrl-C and `lamina stop` let the current epoch finish; a checkpoint follows, and the
    exit code is 0. After any other kind of kill the next start continues after the last committed
    epoch.
    """
    try:
        with (
            _logged(place.name, as_json=log_json),
            open_screen(SystemClock(), as_json=as_json) as screen,
        ):
            watcher = Watcher(
                recovered=screen.recovered,
                note=screen.note,
                epoch=screen.epoch,
                status=screen.status,
                rows=screen.rows,
            )
            options["out"] = _output(as_json=as_json)
            if options["events"] == "-":
                options["events"] = _events_output(as_json=as_json)
            ended = run(
                place.file, home=place.given_home, store=place.store, watcher=watcher, **options
            )
            screen.ended(ended)
    except LaminaError as error:
        if not as_json:
            raise
        json_line({"event": "error", "error": shapes.error(error)})
        raise Answered(error) from error


@contextmanager
def _logged(pipeline: str, *, as_json: bool) -> Iterator[None]:
    """Every record of this process, of Lamina and of the user's own code, with what it is about."""
    if not as_json:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(ContextFilter({"pipeline": pipeline}))
    handler.setFormatter(JsonFormatter())
    ours, root = logging.getLogger("lamina"), logging.getLogger()
    before = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(before)
        root.removeHandler(handler)


def _events_output(*, as_json: bool) -> TextIO:
    """Two kinds of lines on one stream would be taken for each other."""
    if as_json:
        raise UsageError("--json and --events - both print JSON lines: give --events a file")
    return sys.stdout


def _output(*, as_json: bool) -> TextIO | None:
    """Where console sinks write: not into the JSON, and on a terminal above the live table.

    None is what standard output is when they are opened: the table has put itself before it then.
    """
    if as_json:
        return sys.stderr
    return None if sys.stdout.isatty() else sys.stdout
