"""Who does the same work epoch by epoch: we, Spark's Structured Streaming, and the limit."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from engine_input import COLUMNS, check_sums, check_totals, hand_over
from engine_session import PARTITIONS, configured
from engine_task import StageOnly
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import LongType, StructField, StructType

from lamina.clock import SystemClock
from lamina.engine.model import SourceRange, StreamWork
from lamina.engine.plans import EngineSettings
from lamina.format.home_names import STAGED
from lamina.pipeline import parse_pipeline
from lamina.spark.frames import named
from lamina.spark.internals import ArrowStep, json_column, query
from lamina.spark.runner import SparkRunner
from lamina.spark.running import RunSettings, open_pipeline
from lamina.spark.streams import SparkStream
from lamina.workspace import LocalTaskSpace

PIPELINE = f"""
CREATE SOURCE src ({COLUMNS}) USING parquet OPTIONS (path 'in');
CREATE STREAM totals AS
  SELECT k, sum(v) AS total, count(*) AS n FROM src GROUP BY k EMIT ON UPDATE;
CREATE SINK written FROM totals USING parquet OPTIONS (path 'out');
"""
QUERY_STOPS_S = 60
STAGED_ROWS = StructType([StructField("rows", LongType())])


class Contender(Protocol):
    """Anyone who reads a file as one epoch."""

    def epoch(self, file: Path) -> float:
        """Seconds for the epoch that reads this file."""
        ...

    def check(self) -> None:
        """Raise if what it has written is wrong."""
        ...

    def close(self) -> None: ...


class Ours:
    """The product's own path: compiled pipeline, engine, Spark runner, Parquet sink."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.name = f"lamina ({folder.name})"
        self.folder = folder
        self._in = _made(folder / "in")
        pipeline = parse_pipeline(PIPELINE, file="benchmark")
        wanted = RunSettings(
            home=folder / "home",
            store=str(_made(folder / "store")),
            folder=folder,
            engine=EngineSettings(partitions=PARTITIONS),
        )
        self.engine = open_pipeline(pipeline, wanted, spark=spark, clock=SystemClock())
        self.runner: SparkRunner = vars(self.engine)["_runner"]

    @property
    def session(self) -> SparkSession:
        """The one its jobs run in."""
        found: SparkSession = vars(self.runner)["_spark"]
        return found

    @property
    def stream(self) -> SparkStream:
        found: SparkStream = vars(self.runner)["_streams"]["totals"]
        return found

    def epoch(self, file: Path) -> float:
        hand_over(file, self._in)
        start = time.perf_counter()
        report = self.engine.step()
        seconds = time.perf_counter() - start
        assert report is not None, self.engine.held
        assert report.sinks_behind == 0
        return seconds

    def checkpoint(self) -> None:
        self.engine.checkpoint()

    def check(self) -> None:
        check_totals(self.name, self._in, f"{self.folder}/out/epoch-*/*.parquet", "epoch-([0-9]+)/")

    def close(self) -> None:
        self.engine.close()


ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
FILE_SYSTEM = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}
NATIVE: dict[str, dict[str, str]] = {
    "rocksdb_filecontext": ROCKSDB,
    "rocksdb_filesystem": {**ROCKSDB, **FILE_SYSTEM},
    "default_filecontext": {},
    "default_filesystem": FILE_SYSTEM,
}
"""Structured Streaming by state store and checkpoint file manager; FileContext is its default."""


class Native:
    """The same query as a streaming query in update mode; it stays alive between its turns.

    Its output is written by Spark's own Parquet writer in foreachBatch, which syncs nothing; with
    *noop* it is computed and thrown away.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, conf: dict[str, str], *, noop: bool = False
    ) -> None:
        self.name = f"native ({folder.name})"
        self._folder = folder
        self._in = _made(folder / "in")
        self._noop = noop
        rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        totals = (
            rows.parquet(str(self._in))
            .groupBy("k")
            .agg(F.sum("v").alias("total"), F.count(F.lit(1)).alias("n"))
        )
        writer = totals.writeStream.outputMode("update")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer = writer.format("noop") if noop else writer.foreachBatch(self._write)
        with configured(spark, conf):
            self._query = writer.start()

    def _write(self, frame: DataFrame, batch: int) -> None:
        frame.write.parquet(f"{self._folder}/out/batch-{batch:08d}")

    def epoch(self, file: Path) -> float:
        """By its own report or by the clock, whichever is less."""
        start = time.perf_counter()
        hand_over(file, self._in)
        self._query.processAllAvailable()
        seconds = time.perf_counter() - start
        done = [each for each in self._query.recentProgress if each["numInputRows"]]
        return min(seconds, done[-1]["durationMs"]["triggerExecution"] / 1000)

    def check(self) -> None:
        if not self._noop:
            check_totals(
                self.name, self._in, f"{self._folder}/out/batch-*/*.parquet", "batch-([0-9]+)/"
            )

    def close(self) -> None:
        self._query.stop()
        self._query.awaitTermination(QUERY_STOPS_S)


class Limit:
    """The same job of Spark's, and a task that only stages what it gets; nothing is kept.

    *of_rows* is the one of the two plans in which Spark groups nothing.
    """

    def __init__(self, ours: Ours, folder: Path, *, of_rows: bool) -> None:
        self._of_rows = of_rows
        self._spark = ours.session
        self._stream = ours.stream
        self._folder = folder
        self._step = ArrowStep(self._spark, STAGED_ROWS, self._stream.partial_columns)
        self._read: list[Path] = []
        self._epoch = 0
        _made(folder / STAGED)

    def epoch(self, file: Path) -> float:
        self._epoch += 1
        self._read.append(file)
        start = time.perf_counter()
        rows = self._spark.read.schema(COLUMNS).parquet(str(file))
        name = named(rows, "rows of the limit")
        views = {self._stream.inputs[0]: name}
        text = self._stream.placed(views, PARTITIONS, of_rows=self._of_rows, taken_back={})
        task = StageOnly(_work(self._folder, self._epoch), tuple(self._stream.partial_columns[:3]))
        staged = json_column(self._step.over(query(self._spark, text), task))
        seconds = time.perf_counter() - start
        assert len(staged) == PARTITIONS
        return seconds

    def check(self) -> None:
        check_sums("the limit", self._read, f"{self._folder}/{STAGED}/*/*.parquet")

    def close(self) -> None:
        """Nothing is open."""


def _work(home: Path, epoch: int) -> StreamWork:
    space = LocalTaskSpace(str(home), b"", str(home))
    return replace(_NO_WORK, space=space, epoch=epoch)


_NO_WORK = StreamWork(
    stream="totals",
    epoch=0,
    generation=1,
    run_id="limit",
    space=LocalTaskSpace("", b"", ""),
    partitions=PARTITIONS,
    inputs=(SourceRange("src", {}, {}),),
)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def close_all(contenders: Iterable[Contender]) -> None:
    for each in contenders:
        each.close()
