"""Running a pipeline: compile, recover, then epoch after epoch until there is a reason to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from lamina.clock import Clock, SystemClock
from lamina.connectors.parquet import ParquetSink
from lamina.engine.engine import Engine
from lamina.engine.opening import open_engine
from lamina.engine.plans import EngineSettings, EpochReport, FailPoint
from lamina.engine.ports import Sink as EngineSink
from lamina.errors import BadPipeline
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.model import Pipeline, Sink
from lamina.recovery.manager import RecoveryConfig
from lamina.recovery.state import RecoveryReport
from lamina.spark.frames import settings
from lamina.spark.runner import SparkRunner, pinned
from lamina.spark.sources import open_source
from lamina.spark.streams import compile_pipeline
from lamina.store import open_store

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where a pipeline lives, and when a run of it ends."""

    home: Path
    store: str
    name: str = "pipeline"
    folder: Path = field(default_factory=Path)  # relative paths of sources and sinks are below it
    file: str = "pipeline"
    available_now: bool = False  # stop when everything there is has been read
    until_epoch: int | None = None
    interval_s: float = 0.0  # at least this long from one epoch to the next
    engine: EngineSettings = field(default_factory=EngineSettings)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)


@dataclass(slots=True)
class Watcher:
    """Who wants to know how it goes."""

    recovered: Callable[[RecoveryReport], None] = lambda _: None
    epoch: Callable[[EpochReport], None] = lambda _: None


def run(
    pipeline: Pipeline,
    run_settings: RunSettings,
    *,
    spark: SparkSession,
    watcher: Watcher | None = None,
    clock: Clock | None = None,
    fail_point: FailPoint = lambda _: None,
) -> int:
    """Run a pipeline on a session that is left as it was; the last epoch that is committed.

    SIGTERM and SIGINT let the epoch end, then comes a checkpoint.
    """
    watcher, clock = watcher or Watcher(), clock or SystemClock()
    check_pipeline(pipeline, file=run_settings.file)
    with stopping() as stop:
        engine = _open(pipeline, run_settings, spark, clock, fail_point)
        try:
            watcher.recovered(engine.report)
            _loop(engine, run_settings, watcher, clock, stop)
            engine.drain()
            engine.checkpoint()
        finally:
            engine.close()
        return engine.epoch


def _open(
    pipeline: Pipeline,
    wanted: RunSettings,
    spark: SparkSession,
    clock: Clock,
    fail_point: FailPoint,
) -> Engine:
    partitions = wanted.engine.partitions
    with settings(spark, pinned(partitions)):
        plan, streams = compile_pipeline(
            spark, pipeline, order(pipeline), name=wanted.name, file=wanted.file
        )
    sources = {s.name: open_source(s, wanted.folder) for s in pipeline.sources.values()}
    times = {s.name: s.watermark.column for s in pipeline.sources.values() if s.watermark}
    return open_engine(
        plan,
        home=wanted.home,
        store=open_store(wanted.store),
        runner=SparkRunner(spark, streams, sources, times),
        sources=sources,
        sinks={s.name: open_sink(s, wanted.folder) for s in pipeline.sinks.values()},
        settings=wanted.engine,
        recovery=wanted.recovery,
        clock=clock,
        fail_point=fail_point,
    )


def open_sink(sink: Sink, folder: Path) -> EngineSink:
    """The sink of a pipeline; relative paths are below *folder*."""
    if sink.format == "parquet":
        path = sink.options.get("path")
        if path is None:
            raise BadPipeline(f"the sink {sink.name!r} has no path", where=str(sink.place))
        return ParquetSink(sink.name, folder / path.value)
    raise BadPipeline(
        f"the sink {sink.name!r} has the format {sink.format!r}, which is not known",
        where=str(sink.place),
        advice="There is parquet",
    )


def _loop(
    engine: Engine, wanted: RunSettings, watcher: Watcher, clock: Clock, stop: threading.Event
) -> None:
    while not stop.is_set():
        if wanted.until_epoch is not None and engine.epoch >= wanted.until_epoch:
            return
        started = clock.monotonic()
        report = engine.step()
        if report is not None:
            watcher.epoch(report)
        elif wanted.available_now and not engine.publisher.behind:
            return
        left = wanted.interval_s - (clock.monotonic() - started)
        stop.wait(max(left, 0.0 if report is not None else POLL_S))


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT, if this is the main thread; a second SIGINT interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
