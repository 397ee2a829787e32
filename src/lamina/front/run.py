"""`lamina.run`: a pipeline from its file to its end. The command `lamina run` is this call."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from lamina.clock import Clock, SystemClock
from lamina.connectors.jars import PACKAGES, not_fetched, plan_jars
from lamina.connectors.opening import (
    can_skip_lost,
    changing_sources,
    check_connectors,
    jars_of,
    named_place,
    sinks_of,
)
from lamina.engine.checked_code import check_code
from lamina.errors import SparkLost, UsageError
from lamina.front.locate import PipelineLike, locate
from lamina.front.options import RunOptions, settings_of
from lamina.front.places import require_spark
from lamina.ids import fold
from lamina.pipeline.checks import check_pipeline
from lamina.pipeline.model import Pipeline
from lamina.running.control import Status
from lamina.running.loop import Watcher, stopping
from lamina.running.observing import Observers, observing
from lamina.running.presence import Presence, present
from lamina.running.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[*]"


@dataclass(frozen=True, slots=True)
class Launch:
    """The Spark to run on: a session that is there, or how to start one."""

    scratch: Path  # for what Spark writes
    session: SparkSession | None = None
    master: str = MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: str = ""  # a folder with the jars of Spark's connectors


def run(
    pipeline: PipelineLike,
    *,
    home: str | os.PathLike[str] | None = None,
    store: str | None = None,
    name: str = "",
    folder: str | os.PathLike[str] = "",
    spark: SparkSession | None = None,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    jars: str | os.PathLike[str] = "",
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
    **options: Unpack[RunOptions],
) -> Status:
    """Run a pipeline, epoch after epoch, until something ends it; how it ended.

    *pipeline* is a pipeline file or a `lamina.Pipeline()`; what it keeps (*home* and *store*) is in
    `.lamina` beside the file unless given. A pipeline made in Python can have a *name* and a
    *folder* that its relative paths are below. An existing SparkSession (*spark*) is used and left
    unchanged; otherwise one is started with *master*, *conf* and, for connectors of Spark that need
    them, the *jars* of a folder. SIGTERM, SIGINT, `lamina stop` and
    *stop* let the epoch end, then comes a checkpoint. The *options* are those of `lamina run`.
    """
    place, what = locate(pipeline, home=home, store=store, name=name, folder=folder)
    settings = settings_of(place, str(pipeline) if what is None else place.name, options)
    launch = _launch(place.scratch, spark, master, conf or {}, os.fspath(jars))
    model = place.read() if what is None else what
    _check(model, settings)
    settings = replace(settings, peek=_peek(model))
    return _run(model, settings, launch, watcher=watcher or Watcher(), stop=stop)


def _launch(
    scratch: Path, spark: SparkSession | None, master: str, conf: Mapping[str, str], jars: str
) -> Launch:
    if spark is not None and (master or conf or jars):
        raise UsageError("the session is there already: master, conf and jars cannot change it")
    if "spark.master" in conf:
        message = "spark.master as a setting would override the master"
        raise UsageError(message, advice="Give it as --master (in Python: master=...)")
    return Launch(scratch, spark, master or MASTER, conf, jars)


def _check(pipeline: Pipeline, settings: RunSettings) -> None:
    """What needs no Spark at all; options of sources come next, and then one is started."""
    changing = changing_sources(pipeline, file=settings.file)
    check_pipeline(pipeline, file=settings.file, changing=changing)
    check_connectors(pipeline, settings.folder, file=settings.file)
    check_code(pipeline, file=settings.file)
    sinks = {sink.name for sink in sinks_of(pipeline)}
    streams = {stream.name for stream in pipeline.streams.values() if not stream.block_of}
    check_named("--reuse-state", "stream", settings.engine.reuse_state, streams)
    check_named("--sink-from-now", "sink", settings.recovery.sinks_from_now, sinks)
    able = {s.name for s in pipeline.sources.values() if can_skip_lost(s, file=settings.file)}
    skipping = frozenset(named_place(each)[0] for each in settings.skip_lost)
    check_named("--skip-lost", "source that can lose rows", skipping, able)


def _peek(pipeline: Pipeline) -> str:
    """The sink whose rows a person sees on the screen; none if one shows them anyway."""
    if any(sink.format == "console" for sink in pipeline.sinks.values()):
        return ""
    return next((sink.name for sink in pipeline.sinks.values()), "")


def check_named(flag: str, what: str, named: frozenset[str], known: Collection[str]) -> None:
    """A name that nothing has would be ignored silently."""
    for name in sorted({fold(name) for name in named} - {fold(name) for name in known}):
        raise UsageError(
            f"{flag} {name}: the pipeline has no {what} of this name",
            advice=f"It has {', '.join(sorted(known)) or 'none'}",
        )


def _run(
    pipeline: Pipeline,
    settings: RunSettings,
    launch: Launch,
    *,
    watcher: Watcher,
    stop: threading.Event | None,
) -> Status:
    """Be seen in the home first: a run can be stopped while Spark is still starting."""
    clock, stop = SystemClock(), stop or threading.Event()
    require_spark("running a pipeline")
    from lamina.spark.running import check  # noqa: PLC0415  an extra

    check(pipeline, settings)
    with (
        observing(settings.watching, settings.name, watcher.note) as observers,
        stopping(stop),
        present(settings.home, settings.name, clock=clock, listener=watcher.status) as here,
    ):
        here.listen(observers.status)
        if settings.remote:
            _check_holder(settings, clock)
        try:
            return _run_on_spark(
                pipeline,
                settings,
                launch,
                here,
                watcher=watcher,
                observers=observers,
                clock=clock,
                stop=stop,
            )
        except SparkLost:
            if not stop.is_set():
                raise
            here.say("ended", why="Spark was ended before the pipeline")
            return here.status


def _check_holder(settings: RunSettings, clock: Clock) -> None:
    """Whether the store answers, and no other machine has the pipeline: before Spark is started."""
    from lamina.workspace.remote import remote_workspace  # noqa: PLC0415  slow to import

    take_over = settings.take_over
    remote_workspace(settings.remote, settings.home, clock, take_over=take_over).check_holder()


def _run_on_spark(
    pipeline: Pipeline,
    settings: RunSettings,
    launch: Launch,
    here: Presence,
    *,
    watcher: Watcher,
    observers: Observers,
    clock: Clock,
    stop: threading.Event,
) -> Status:
    from lamina.spark.running import run_here  # noqa: PLC0415  an extra

    artifacts = jars_of(pipeline, settings.folder, file=settings.file)
    with session_for(launch, settings.name, artifacts) as session:
        return run_here(
            pipeline,
            settings,
            here,
            spark=session,
            watcher=watcher,
            observers=observers,
            clock=clock,
            stop=stop,
        )


@contextmanager
def session_for(launch: Launch, name: str, artifacts: Sequence[str]) -> Iterator[SparkSession]:
    from lamina.spark.session import start_session, stop_session  # noqa: PLC0415  an extra

    if launch.session is not None:
        yield launch.session
        return
    logging.getLogger().addHandler(logging.NullHandler())  # Py4J logs what it also raises
    jars = plan_jars(artifacts, launch.jars, launch.conf).settings
    conf = {**launch.conf, **jars}
    try:
        session = start_session(name, launch.scratch, master=launch.master, settings=conf)
    except SparkLost as error:
        if PACKAGES not in jars:
            raise
        raise not_fetched(artifacts) from error
    try:
        yield session
    finally:
        stop_session(session)
