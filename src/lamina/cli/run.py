"""`lamina run`: a pipeline on a Spark of its own, until somebody stops it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

from lamina.cli import shapes
from lamina.cli.run_places import PipelinePlace, pipeline_argument, require_spark
from lamina.cli.run_screen import RunScreen, json_line, open_screen
from lamina.cli.screen import Answered
from lamina.clock import SystemClock
from lamina.connectors.opening import open_sinks
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import Fenced, LaminaError, UsageError
from lamina.pipeline.checks import check_pipeline
from lamina.recovery import RecoveryConfig
from lamina.running.control import Status, read_status
from lamina.running.holder import find_holder
from lamina.running.loop import Until, Watcher, stopping
from lamina.state.vnodes import VNODE_COUNT


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for on the command line."""

    place: PipelinePlace
    master: str
    conf: Mapping[str, str]
    interval_s: float
    until: Until
    engine: EngineSettings
    recovery: RecoveryConfig
    out: TextIO | None  # for console sinks


def _power_of_two(_context: click.Context, _parameter: click.Parameter, given: int) -> int:
    """256 virtual partitions are dealt out evenly; asked here, and not when Spark is up."""
    if given & (given - 1):
        raise click.BadParameter(f"{given} is no power of two")
    return given


def _settings(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for key, equals, _ in pairs:
        if not key.startswith("spark.") or not equals:
            raise click.BadParameter(f"{key!r} is no spark.KEY=VALUE")
    return {key: value for key, _, value in pairs}


@click.command("run")
@pipeline_argument
@click.option(
    "--partitions",
    type=click.IntRange(1, VNODE_COUNT),
    default=2,
    show_default=True,
    callback=_power_of_two,
    help="Parts that the keys are split into, a power of two; may differ at every start.",
)
@click.option("--once", is_flag=True, help="End after one epoch.")
@click.option("--available-now", is_flag=True, help="End when all there is has been read.")
@click.option(
    "--drain",
    is_flag=True,
    help="End when all there is has been read, and close every window: nothing more is to come.",
)
@click.option("--until-epoch", type=click.IntRange(min=0), help="End when this epoch is committed.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="At least so long from one epoch to the next.",
)
@click.option("--max-rows", type=click.IntRange(min=1), help="Rows of a source in one epoch.")
@click.option("--max-files", type=click.IntRange(min=1), help="Files of a source in one epoch.")
@click.option(
    "--max-ahead",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="A row further ahead of the watermark does not move it.",
)
@click.option(
    "--checkpoint-epochs",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="A checkpoint after so many epochs; 0: not because of their number.",
)
@click.option(
    "--checkpoint-interval",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="A checkpoint when the last one is so old, and there is something new.",
)
@click.option(
    "--lose-after",
    metavar="EPOCH",
    type=click.IntRange(min=0),
    help="Give up every epoch after this one, for ever.",
)
@click.option("--take-over-home", is_flag=True, help="The home that owns the pipeline is lost.")
@click.option("--start-fresh", is_flag=True, help="Give up everything and begin anew.")
@click.option(
    "--sink-from-now",
    metavar="SINK",
    multiple=True,
    help="This sink is new, or may lack what was put out while it was away.",
)
@click.option(
    "--reuse-state",
    metavar="STREAM",
    multiple=True,
    help="The state of this stream still means the same, though its SELECT has changed.",
)
@click.option(
    "--drop-state",
    metavar="STREAM",
    multiple=True,
    help="Delete what is kept aside of this stream, which the pipeline no longer has.",
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N] or a URL."
)
@click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="A setting of Spark, as spark-submit has them.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object per line.")
def run_command(*, place: PipelinePlace, as_json: bool, master: str, **given: Any) -> None:
    """Run a pipeline, epoch after epoch.

    SIGTERM, Ctrl-C and `lamina stop` let the epoch end; then comes a checkpoint, and it ends with
    0. Killed in any other way, the next start goes on where the last committed epoch ended.
    """
    wanted = Wanted(
        place=place,
        master=master,
        conf=given["conf"],
        interval_s=given["interval"],
        until=_until(given),
        engine=EngineSettings(
            partitions=given["partitions"],
            limits=Limits(given["max_rows"], given["max_files"]),
            max_ahead_us=_microseconds(given["max_ahead"]),
            checkpoint_epochs=given["checkpoint_epochs"],
            checkpoint_s=given["checkpoint_interval"],
            drain=given["drain"],
            reuse_state=frozenset(given["reuse_state"]),
            drop_state=frozenset(given["drop_state"]),
        ),
        recovery=_recovery(given),
        out=_output(as_json=as_json),
    )
    try:
        with open_screen(SystemClock(), as_json=as_json) as screen:
            _run(wanted, screen)
    except LaminaError as error:
        if not as_json:
            raise
        json_line({"event": "error", "error": shapes.error(error)})
        raise Answered(error) from error


def _output(*, as_json: bool) -> TextIO | None:
    """Where console sinks write: not into the JSON, and on a terminal above the live table.

    None is what standard output is when they are opened: the table has put itself before it then.
    """
    if as_json:
        return sys.stderr
    return None if sys.stdout.isatty() else sys.stdout


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _until(given: dict[str, Any]) -> Until:
    if given["drain"] and (given["once"] or given["until_epoch"] is not None):
        raise click.UsageError("--drain reads all there is: --once and --until-epoch end before")
    return Until(given["once"], given["available_now"] or given["drain"], given["until_epoch"])


def _recovery(given: dict[str, Any]) -> RecoveryConfig:
    if given["start_fresh"] and given["lose_after"] is not None:
        raise click.UsageError("--start-fresh gives up everything: --lose-after says nothing then")
    return RecoveryConfig(
        lose_after=given["lose_after"],
        take_over_home=given["take_over_home"],
        start_fresh=given["start_fresh"],
        sinks_from_now=frozenset(given["sink_from_now"]),
    )


def _check_named(flag: str, what: str, named: frozenset[str], known: Collection[str]) -> None:
    """A name that nothing has would be passed over in silence."""
    for name in sorted(named - set(known)):
        raise UsageError(
            f"{flag} {name}: the pipeline has no {what} of this name",
            advice=f"It has {', '.join(sorted(known)) or 'none'}",
        )


def _run(wanted: Wanted, screen: RunScreen) -> None:
    """Everything that needs no Spark is checked before one is started."""
    pipeline, file = wanted.place.read(), str(wanted.place.file)
    check_pipeline(pipeline, file=file)
    sinks = open_sinks(pipeline, wanted.place.folder, home=wanted.place.home, file=file)
    _check_named("--reuse-state", "stream", wanted.engine.reuse_state, pipeline.streams)
    _check_named("--sink-from-now", "sink", wanted.recovery.sinks_from_now, sinks)
    _check_free(wanted.place.home)
    require_spark("`lamina run`")
    from lamina.spark.running import RunSettings, run  # noqa: PLC0415  an extra
    from lamina.spark.session import start_session, stop_session  # noqa: PLC0415

    clock, stop, last = SystemClock(), threading.Event(), list[Status]()

    def note(status: Status) -> None:
        last[:] = [status]
        screen.status(status)

    place = wanted.place
    settings = RunSettings(
        home=place.home,
        store=place.store,
        name=place.name,
        folder=place.folder,
        file=file,
        once=wanted.until.once,
        available_now=wanted.until.available_now,
        until_epoch=wanted.until.epoch,
        interval_s=wanted.interval_s,
        engine=wanted.engine,
        recovery=wanted.recovery,
        out=wanted.out,
    )
    with stopping(stop):
        screen.starting(f"starting Spark for {place.name} ({wanted.master})")
        logging.getLogger().addHandler(logging.NullHandler())  # Py4J logs what it also raises
        spark = start_session(place.name, place.scratch, master=wanted.master, settings=wanted.conf)
        started = clock.monotonic()
        try:
            watcher = Watcher(screen.recovered, screen.epoch, note)
            run(pipeline, settings, spark=spark, watcher=watcher, clock=clock, stop=stop)
        finally:
            stop_session(spark)
    screen.ended(last[0], clock.monotonic() - started)


def _check_free(home: Path) -> None:
    """Say early what the claim of the home would say when Spark is up."""
    holder = find_holder(home, read_status(home))
    if holder is not None:
        raise Fenced(
            f"pid {holder.pid} on {holder.host} runs a pipeline in this home",
            where=str(home),
            advice="Two processes must not run one pipeline; `lamina stop` ends the other one",
        )
