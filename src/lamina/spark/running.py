"""Running a pipeline on Spark: compile, recover, then epoch after epoch (`lamina.running`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.clock import Clock, SystemClock
from lamina.connectors.opening import (
    bad_row_streams,
    changing_sources,
    check_connectors,
    close_sinks,
    jars_of,
    open_sinks,
    open_source,
)
from lamina.connectors.opening_tables import close_tables, open_tables
from lamina.connectors.options import option_of
from lamina.connectors.registry import source_kind
from lamina.connectors.spark_source import Probed, SparkSource
from lamina.disk.base import Lock
from lamina.engine.checked_code import check_code
from lamina.engine.engine import Engine
from lamina.engine.opening import open_engine
from lamina.engine.plans import EnginePlan, FailPoint
from lamina.engine.ports import Table
from lamina.errors import UsageError
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.model import DeclaredSource, Pipeline
from lamina.running.control import Status
from lamina.running.loop import Loop, Until, Watcher, stopping
from lamina.running.observing import Observers
from lamina.running.presence import Presence, present
from lamina.running.recorder import recorded
from lamina.running.settings import RunSettings
from lamina.spark.compiling import compile_pipeline
from lamina.spark.failures import spark_errors
from lamina.spark.frames import own_session
from lamina.spark.internals import ArrowStep, active, arrow_schema, empty_frame
from lamina.spark.jars import check_classes
from lamina.spark.preflight import preflight, runs_here
from lamina.spark.runner import RESULTS, SparkRunner, pinned
from lamina.spark.stamping import stamps_of
from lamina.spark.streams import SparkStream
from lamina.spark.tables import SparkTable, TableViews, declare_tables
from lamina.spark.task_files import LentFiles
from lamina.store import open_store
from lamina.workspace.base import Notes, Workspace
from lamina.workspace.local import LocalWorkspace
from lamina.workspace.remote import remote_workspace

__all__ = ["RunSettings", "Until", "Watcher", "check", "open_pipeline", "run", "run_here"]


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
    """Run a pipeline on a session that stays unchanged; the last epoch that is committed.

    SIGTERM, SIGINT and *stop* let the epoch end, then comes a checkpoint.
    """
    wanted, clock, stop = run_settings, clock or SystemClock(), stop or threading.Event()
    watcher = watcher or Watcher()
    check(pipeline, wanted)
    with (
        stopping(stop),
        present(wanted.home, wanted.name, clock=clock, listener=watcher.status) as here,
    ):
        return run_here(
            pipeline,
            wanted,
            here,
            spark=spark,
            watcher=watcher,
            clock=clock,
            stop=stop,
            fail_point=fail_point,
        ).epoch


def check(pipeline: Pipeline, wanted: RunSettings) -> None:
    """Whether the text, its options and its paths will do; nothing is made, in the home neither."""
    changing = changing_sources(pipeline, file=wanted.file)
    check_pipeline(pipeline, file=wanted.file, changing=changing)
    check_connectors(pipeline, wanted.folder, file=wanted.file)
    check_code(pipeline, file=wanted.file)
    with_parts = [s.name for s in pipeline.sources.values() if _holds_by_parts(s)]
    if wanted.engine.max_ahead_us is not None and with_parts:
        raise UsageError(
            f"--max-ahead and the idle_after of {with_parts[0]!r} cannot be used together",
            advice="Leave one of them out: parts of a source may be far apart",
        )


def _holds_by_parts(source: DeclaredSource) -> bool:
    kind = source_kind(source.format)
    return kind is not None and kind.has_parts and option_of(source, "idle_after") is not None


def run_here(
    pipeline: Pipeline,
    wanted: RunSettings,
    here: Presence,
    *,
    spark: SparkSession,
    watcher: Watcher,
    clock: Clock,
    stop: threading.Event,
    observers: Observers | None = None,
    fail_point: FailPoint = lambda _: None,
) -> Status:
    """Run a pipeline that is checked, in a home whose lock is held."""
    with spark_errors():
        space = _workspace(wanted, spark, clock)
        engine = open_pipeline(
            pipeline,
            wanted,
            spark=spark,
            clock=clock,
            lock=here.lock,
            space=space,
            fail_point=fail_point,
        )
    try:
        shared = space.notes if wanted.remote else None
        observers = observers or Observers()
        observers.opened(engine.measured, engine.report)
        with recorded(watcher, here, shared, clock, observers.keepers) as recording:
            return Loop(
                engine,
                here=here,
                clock=clock,
                stop=stop,
                watcher=recording,
                until=wanted.until,
                interval_s=wanted.interval_s,
                peek=wanted.peek,
                checkpoint_epochs=wanted.engine.checkpoint_epochs,
            ).run()
    finally:
        engine.close()


def plan_of(
    pipeline: Pipeline, *, spark: SparkSession, name: str, folder: Path, file: str
) -> EnginePlan:
    """What a start would compile of a pipeline; nothing is opened."""
    check_classes(spark, jars_of(pipeline, folder, file=file))
    own = own_session(spark, pinned(1))
    with spark_errors(), active(own):
        return _compiled(own, pipeline, name, file)[0]


def _compiled(
    own: SparkSession, pipeline: Pipeline, name: str, file: str
) -> tuple[EnginePlan, dict[str, SparkStream]]:
    plan, streams = compile_pipeline(
        own, pipeline, order(pipeline, file=file), name=name, file=file
    )
    kept = frozenset(bad_row_streams(pipeline))
    return replace(plan, settings=RESULTS, bad_rows=kept), streams


def open_pipeline(
    pipeline: Pipeline,
    wanted: RunSettings,
    *,
    spark: SparkSession,
    clock: Clock,
    lock: Lock | None = None,
    space: Workspace | None = None,
    fail_point: FailPoint = lambda _: None,
) -> Engine:
    """A pipeline that is compiled, claimed and recovered: each `step` is an epoch.

    *space* is where it lives, if that is not what the settings say.
    """
    space, folder, file = space or _workspace(wanted, spark, clock), wanted.folder, wanted.file
    files = LentFiles(space)
    sources = _open_sources(pipeline, wanted, space.notes, files)
    check_classes(spark, jars_of(pipeline, folder, file=file))
    own = own_session(spark, pinned(wanted.engine.partitions))
    with active(own):
        plan, streams = _compiled(own, pipeline, wanted.name, file)
        for source in sources.values():
            if isinstance(source, Probed):
                source.probe(own)
        declared = declare_tables(own, pipeline.tables.values())
        views = TableViews(own, declared, files)
        preflight(own, space, partitions=wanted.engine.partitions, clock=clock)
    sinks = open_sinks(
        pipeline, folder, notes=space.notes, file=file, out=wanted.out, outputs=plan.outputs
    )
    opened = _open_tables(pipeline, wanted, own, declared)
    times = {s.name: s.watermark.column for s in pipeline.sources.values() if s.watermark}
    try:
        return open_engine(
            plan,
            space=space,
            store=open_store(wanted.store),
            runner=SparkRunner(own, streams, sources, times, stamps_of(pipeline), tables=views),
            sources=sources,
            tables=opened,
            sinks=sinks,
            settings=wanted.engine,
            recovery=wanted.recovery,
            clock=clock,
            lock=lock,
            fail_point=fail_point,
        )
    except BaseException:
        close_sinks(sinks)
        close_tables(opened)
        raise


def _workspace(wanted: RunSettings, spark: SparkSession, clock: Clock) -> Workspace:
    if not wanted.remote:
        return LocalWorkspace(wanted.home, clock)
    open_store(wanted.remote)  # refuses a bucket that does not create only what is not there
    return remote_workspace(
        wanted.remote,
        wanted.home,
        clock,
        store=wanted.store,
        tasks_here=runs_here(spark),
        take_over=wanted.take_over,
    )


def _open_sources(
    pipeline: Pipeline, wanted: RunSettings, notes: Notes, files: LentFiles
) -> dict[str, SparkSource]:
    return {
        source.name: open_source(
            source,
            wanted.folder,
            file=wanted.file,
            pipeline=wanted.name,
            skip_lost=wanted.skip_lost,
            make_step=ArrowStep,
            notes=notes,
            scratch=wanted.home,
            files=files,
        )
        for source in pipeline.sources.values()
    }


def _open_tables(
    pipeline: Pipeline, wanted: RunSettings, own: SparkSession, declared: Mapping[str, StructType]
) -> dict[str, Table]:
    """The tables of a pipeline; *declared* are their columns."""
    columns = {name: arrow_schema(empty_frame(own, each)) for name, each in declared.items()}
    opened = open_tables(
        pipeline, wanted.folder, scratch=wanted.home, spark=own, columns=columns, file=wanted.file
    )
    return {name: SparkTable(each) for name, each in opened.items()}
