"""Running a pipeline on Spark: compile, recover, then epoch after epoch (`lamina.running`)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from pyspark.sql import SparkSession

from lamina.clock import Clock, SystemClock
from lamina.connectors.opening import open_sinks
from lamina.engine.engine import Engine
from lamina.engine.opening import open_engine
from lamina.engine.plans import EngineSettings, FailPoint
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.model import Pipeline
from lamina.recovery.manager import RecoveryConfig
from lamina.running.loop import Loop, Until, Watcher, stopping
from lamina.spark.failures import spark_errors
from lamina.spark.frames import own_session
from lamina.spark.internals import active
from lamina.spark.preflight import preflight
from lamina.spark.runner import RESULTS, SparkRunner, pinned
from lamina.spark.sources import open_source
from lamina.spark.streams import compile_pipeline
from lamina.store import open_store

__all__ = ["RunSettings", "Watcher", "open_pipeline", "run"]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a pipeline lives, and when a run of it ends."""

    home: Path
    store: str
    name: str = "pipeline"
    folder: Path = field(default_factory=Path)  # relative paths of sources and sinks are below it
    file: str = "pipeline"
    once: bool = False  # stop after one epoch, or when there is nothing for one
    available_now: bool = False  # stop when everything there is has been read
    until_epoch: int | None = None  # stop when this one is committed
    interval_s: float = 0.0  # at least this long from one epoch to the next
    engine: EngineSettings = field(default_factory=EngineSettings)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    out: TextIO | None = None  # where console sinks write; None: standard output


def run(
    pipeline: Pipeline,
    run_settings: RunSettings,
    *,
    spark: SparkSession,
    watcher: Watcher | None = None,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
    fail_point: FailPoint = lambda _: None,
) -> int:
    """Run a pipeline on a session that is left as it was; the last epoch that is committed.

    SIGTERM, SIGINT and *stop* let the epoch end, then comes a checkpoint.
    """
    wanted, clock, stop = run_settings, clock or SystemClock(), stop or threading.Event()
    check_pipeline(pipeline, file=wanted.file)
    with stopping(stop):
        with spark_errors():
            engine = open_pipeline(
                pipeline, wanted, spark=spark, clock=clock, fail_point=fail_point
            )
        try:
            Loop(
                engine,
                home=wanted.home,
                name=wanted.name,
                clock=clock,
                stop=stop,
                watcher=watcher,
                until=Until(wanted.once, wanted.available_now, wanted.until_epoch),
                interval_s=wanted.interval_s,
                saved_epoch=lambda: engine.saved_epoch,
            ).run()
        finally:
            engine.close()
        return engine.epoch


def open_pipeline(
    pipeline: Pipeline,
    wanted: RunSettings,
    *,
    spark: SparkSession,
    clock: Clock,
    fail_point: FailPoint = lambda _: None,
) -> Engine:
    """A pipeline that is compiled, claimed and recovered: each `step` is an epoch."""
    folder, file = wanted.folder, wanted.file
    sources = {s.name: open_source(s, folder, file=file) for s in pipeline.sources.values()}
    sinks = open_sinks(pipeline, folder, home=wanted.home, file=file, out=wanted.out)
    own = own_session(spark, pinned(wanted.engine.partitions))
    with active(own):
        plan, streams = compile_pipeline(
            own, pipeline, order(pipeline), name=wanted.name, file=wanted.file
        )
        plan = replace(plan, settings=RESULTS)
        preflight(own, wanted.home, partitions=wanted.engine.partitions, clock=clock)
    times = {s.name: s.watermark.column for s in pipeline.sources.values() if s.watermark}
    return open_engine(
        plan,
        home=wanted.home,
        store=open_store(wanted.store),
        runner=SparkRunner(own, streams, sources, times),
        sources=sources,
        sinks=sinks,
        settings=wanted.engine,
        recovery=wanted.recovery,
        clock=clock,
        fail_point=fail_point,
    )
