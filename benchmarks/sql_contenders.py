"""A stream and a streaming query that do the same, file by file, each in its turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from engine_contenders import FILE_SYSTEM, QUERY_STOPS_S, ROCKSDB
from engine_input import hand_over
from engine_session import PARTITIONS, configured, say
from pyspark.sql import DataFrame, SparkSession

from lamina.clock import SystemClock
from lamina.engine.plans import EngineSettings
from lamina.pipeline import parse_pipeline
from lamina.spark.running import RunSettings, open_pipeline
from lamina.workspace.base import Workspace

Query = Callable[[DataFrame], DataFrame]
Seconds = dict[str, list[float]]


class Contender(Protocol):
    def epoch(self, file: Path) -> float:
        """Take a file; the seconds that it took."""
        ...


class Stream:
    """A stream of ours over the files of a source, which *source* declares up to USING.

    Its sink writes Parquet. *tables* are the statements of tables that it is joined with; *space*
    is its home and *store* the address of its checkpoints, if these are not folders.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        source: str,
        text: str,
        *,
        mark: str = "",
        tables: str = "",
        space: Workspace | None = None,
        store: str = "",
    ) -> None:
        self.out = folder / "out"
        self._in = folder / "in"
        self._in.mkdir(parents=True, exist_ok=True)
        pipeline = parse_pipeline(
            f"CREATE SOURCE {source} USING parquet OPTIONS (path 'in') {mark};\n"
            f"{tables}CREATE STREAM s AS {text};\n"
            "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');",
            file="benchmark",
        )
        wanted = RunSettings(
            home=folder / "home",
            store=store or str(folder / "store"),
            folder=folder,
            engine=EngineSettings(partitions=PARTITIONS),
        )
        clock = SystemClock()
        self.engine = open_pipeline(pipeline, wanted, spark=spark, clock=clock, space=space)

    def epoch(self, file: Path) -> float:
        hand_over(file, self._in)
        start = time.perf_counter()
        report = self.engine.step()
        seconds = time.perf_counter() - start
        assert report is not None, self.engine.held
        return seconds

    def rows(self) -> int:
        """That have come out."""
        return _rows(self.out, "epoch-*/*.parquet")

    def table(self) -> pa.Table:
        """What has come out."""
        return _table(self.out, "epoch-*/*.parquet")

    def close(self) -> None:
        self.engine.close()


class Native:
    """The same as a streaming query, with RocksDB and its changelog.

    Its output is written by Spark's own Parquet writer in foreachBatch, which syncs nothing.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, columns: str, query: Query, *, mode: str
    ) -> None:
        self._folder = folder
        self._in = _made(folder / "in")
        rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        with configured(spark, {**ROCKSDB, **FILE_SYSTEM}):
            writer = query(rows.parquet(str(self._in))).writeStream.outputMode(mode)
            writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
            self._query = writer.foreachBatch(self._write).start()

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

    def rows(self) -> int:
        return _rows(self._folder / "out", "batch-*/*.parquet")

    def table(self) -> pa.Table:
        return _table(self._folder / "out", "batch-*/*.parquet")

    def close(self) -> None:
        self._query.stop()
        self._query.awaitTermination(QUERY_STOPS_S)


def in_turns(
    contenders: Mapping[str, Contender],
    warm: Sequence[Path],
    timed: Sequence[Path],
) -> Seconds:
    """Every file to everyone, another of them first in every round; seconds of those that count."""
    seconds: Seconds = {name: [] for name in contenders}
    names = list(contenders)
    for turn, file in enumerate([*warm, *timed]):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            os.sync()
            spent = contenders[name].epoch(file)
            if turn >= len(warm):
                seconds[name].append(spent)
            say(f"{file.name} {name}: {spent * 1000:.0f} ms")
    return seconds


def told(seconds: Seconds) -> str:
    return ", ".join(f"{name} {median(each) * 1000:.0f}" for name, each in seconds.items()) + " ms"


def ratio(seconds: Seconds, over: str, under: str) -> float:
    return median(seconds[over]) / median(seconds[under])


def _rows(folder: Path, pattern: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob(pattern))


def _table(folder: Path, pattern: str) -> pa.Table:
    tables = [pq.ParquetFile(file).read() for file in sorted(folder.glob(pattern))]
    return pa.concat_tables(tables) if tables else pa.table({})


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
