"""`lamina.spark.sink`: a query of Structured Streaming publishes exactly once, to Lamina's sinks.

    query.writeStream.foreachBatch(sink("postgres", {...}, name="orders", home="..."))

Each batch is an epoch of a small pipeline with one source (connectors/batches.py), one stream that
selects everything, and one sink. So its output is staged, decided by a COMMIT in a home of its own,
and then published, like any other; what a crash leaves between, the next start finishes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.utils import is_remote

from lamina.clock import SystemClock
from lamina.connectors.batches import BATCHES, KIND, Batch, BatchSource, Fingerprint
from lamina.engine.engine import Engine
from lamina.engine.plans import EngineSettings, EpochReport, FailPoint
from lamina.errors import StoreUnavailable, UsageError
from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.model import Pipeline
from lamina.recovery.config import RecoveryConfig
from lamina.running.presence import Presence, present
from lamina.running.settings import RunSettings
from lamina.spark.failures import spark_errors
from lamina.spark.running import check, open_pipeline

STREAM = "rows"
HELD_MAX_S, POLL_S = 60.0, 0.2
QUERY_ID = "sql.streaming.queryId"
Option = str | int | bool | Callable[..., object]


def sink(
    format: str,  # noqa: A002  the word of a pipeline file
    options: Mapping[str, Option] | None = None,
    *,
    name: str,
    home: str | os.PathLike[str],
    store: str = "",
    partitions: int = 2,
    query: str = "",
    same_pipeline: bool = False,
    fail_point: FailPoint = lambda _: None,
) -> BatchSink:
    """A function for `foreachBatch` that publishes each batch exactly once.

    *format* and *options* are those of a sink of a pipeline file. *home* is a folder of this sink
    alone, on a disk that all executors share with the driver; *store* is for its checkpoints, by
    default beside it. *query* is the id of a query that goes on where the one before has ended.
    """
    place = Path(home)
    if "://" in os.fspath(home):
        message = "the home of lamina.spark.sink is a folder, not an address"
        raise UsageError(message, where=os.fspath(home), advice="Give a folder on a shared disk")
    settings = RunSettings(
        home=place.absolute(),
        store=store or str(place.absolute().parent / f"{place.name}-store"),
        name=name,
        folder=Path.cwd(),
        file=f"lamina.spark.sink({name!r})",
        engine=EngineSettings(partitions=partitions),
        recovery=RecoveryConfig(same_pipeline=same_pipeline),
    )
    return BatchSink(format, options or {}, settings, query=query, fail_point=fail_point)


class BatchSink:
    """What `foreachBatch` calls. It holds the lock of its home from the first batch to `close`."""

    def __init__(
        self,
        format: str,  # noqa: A002
        options: Mapping[str, Option],
        settings: RunSettings,
        *,
        query: str,
        fail_point: FailPoint,
    ) -> None:
        self._format, self._options, self._settings = format, options, settings
        self._source = BatchSource(BATCHES, query=query)
        self._fail_point = fail_point
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._engine: Engine | None = None
        self._here: Presence | None = None
        self._columns = ""

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Publish a batch, unless it is published. Raises what Spark then stops the query with."""
        with self._lock, spark_errors():
            try:
                self._publish(frame, number)
            except BaseException:
                self._close()  # what is decided is found again by the next start
                raise

    def __enter__(self) -> BatchSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of home and sink; the next batch takes them again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._engine, held, self._held = None, self._held, ExitStack()
        held.close()

    def _publish(self, frame: DataFrame, number: int) -> None:
        if is_remote():
            message = "lamina.spark.sink does not work with Spark Connect"
            advice = "It runs in the process of the driver: use a session without a remote"
            raise UsageError(message, advice=advice)
        columns = frame.schema.json()
        if self._engine is not None and columns != self._columns:
            self._close()  # the query was changed
        engine = self._engine or self._opened(frame)
        self._engine, self._columns = engine, columns
        was_kept = frame.is_cached
        kept = frame.persist()  # so that it is computed once, and what is hashed is what is staged
        view = f"lamina_{id(self)}_{number}"
        try:
            kept.createOrReplaceGlobalTempView(view)
            query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
            batch = Batch(number, query, fingerprint(kept), f"global_temp.{view}")
            self._source.offer(batch)
            report = self._step(engine, number)
        finally:
            self._source.offer(None)
            frame.sparkSession.catalog.dropGlobalTempView(view)
            if not was_kept:
                kept.unpersist()
        engine.drain()
        self._say(engine, sum(report.rows.values()) if report else 0)

    def _say(self, engine: Engine, rows: int) -> None:
        """For `lamina status`."""
        assert self._here is not None, "the engine is open"
        self._here.say(
            "running",
            epoch=engine.epoch,
            saved_epoch=engine.saved_epoch,
            rows=self._here.status.rows + rows,
            sinks=engine.publisher.epochs(),
            why=engine.trouble,
        )

    def _step(self, engine: Engine, number: int) -> EpochReport | None:
        """The epoch of a batch; none if it was decided before. A checkpoint may hold it up."""
        until = self._clock.monotonic() + HELD_MAX_S
        while (report := engine.step()) is None and engine.held:
            if self._clock.monotonic() > until:
                raise StoreUnavailable(f"batch {number} cannot be taken now: {engine.held}")
            self._clock.wait(POLL_S)
        return report

    def _opened(self, frame: DataFrame) -> Engine:
        """Claimed and recovered; what was decided and not published is published."""
        pipeline = self._pipeline(frame)
        check(pipeline, self._settings)
        clock, settings = self._clock, self._settings
        with ExitStack() as held:
            here = held.enter_context(present(settings.home, settings.name, clock=clock))
            engine = open_pipeline(
                pipeline,
                settings,
                spark=frame.sparkSession,
                clock=clock,
                lock=here.lock,
                fail_point=self._fail_point,
            )
            held.callback(here.say, "ended", why="")
            held.callback(engine.close)
            engine.drain()
            self._held, self._here = held.pop_all(), here
        return engine

    def _pipeline(self, frame: DataFrame) -> Pipeline:
        columns = {field.name: field.dataType.simpleString() for field in frame.schema}
        made = PipelineBuilder()
        made.source(BATCHES, columns, KIND.name, {BATCHES: self._source.itself})
        made.stream(STREAM, f"SELECT * FROM {BATCHES}")  # noqa: S608  our own name
        made.sink(self._settings.name, STREAM, self._format, self._options)
        return made.build()


def fingerprint(frame: DataFrame) -> Fingerprint:
    """The number of rows, and the sum of their hashes: the same in any order."""
    columns = [_hashable(frame, field.name) for field in frame.schema]
    hashed = F.xxhash64(*columns).cast("decimal(38,0)")
    [found] = frame.agg(F.count(F.lit(1)), F.coalesce(F.sum(hashed), F.lit(0))).collect()
    return Fingerprint(int(found[0]), int(found[1]))


def _hashable(frame: DataFrame, name: str) -> Column:
    """Spark hashes no maps: they are hashed as text."""
    column = F.col("`" + name.replace("`", "``") + "`")
    written = frame.schema[name].dataType.simpleString()
    return F.to_json(F.struct(column)) if "map<" in written or "variant" in written else column
