"""Parquet files of a pipeline as DataFrames, wherever its tasks run.

Where tasks see them as files, Spark reads them. Elsewhere a task asks the workspace for their
bytes, and Arrow reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.connectors.file_frames import local
from lamina.connectors.parquet_columns import fitted
from lamina.spark.internals import ArrowStep, arrow_schema, empty_frame
from lamina.workspace.base import TaskSpace, Workspace
from lamina.workspace.model import Staged


class TaskFiles:
    """Of one session; made once for all epochs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._steps: dict[StructType, tuple[ArrowStep, bytes]] = {}

    def frame(self, space: TaskSpace, columns: StructType, files: Sequence[Staged]) -> DataFrame:
        """All rows of all files."""
        paths = [path for path in map(space.staged_path, files) if path is not None]
        if len(paths) == len(files):
            reader = self._spark.read.schema(columns).format("parquet")
            return reader.load([local(path) for path in paths])
        if columns not in self._steps:
            schema = arrow_schema(empty_frame(self._spark, columns)).serialize().to_pybytes()
            self._steps[columns] = ArrowStep(self._spark, columns, ["id"]), schema
        step, schema = self._steps[columns]
        tasks = min(len(files), self._spark.sparkContext.defaultParallelism)
        groups = tuple(tuple(files[number::tasks]) for number in range(tasks))
        read = ReadFiles(space, groups, tuple(columns.names), schema)
        return step.over(self._spark.range(0, tasks, 1, tasks), read)


class LentFiles:
    """Files that the driver has written beside its log, for sources and tables."""

    def __init__(self, space: Workspace) -> None:
        self._space = space
        self._tasks: TaskSpace | None = None
        self._files: TaskFiles | None = None

    def frame(
        self, spark: SparkSession, columns: StructType, paths: Sequence[str], *, owner: str
    ) -> DataFrame:
        """Their rows. What *owner* has given before is not read any more."""
        if self._tasks is None or self._files is None:  # once the home is claimed
            self._tasks, self._files = self._space.for_tasks(), TaskFiles(spark)
        lent = self._space.lend(owner, [Path(path) for path in paths])
        return self._files.frame(self._tasks, columns, lent)


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """For `mapInArrow`: the rows of the groups of files whose numbers come."""

    space: TaskSpace
    groups: tuple[tuple[Staged, ...], ...]
    columns: tuple[str, ...]
    schema: bytes  # in Arrow's types

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.read_schema(pa.py_buffer(self.schema))
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for file in (file for number in numbers for file in self.groups[number]):
            opened = pq.ParquetFile(pa.BufferReader(self.space.open_staged(file)))
            for rows in opened.iter_batches():
                arrays = fitted(rows, wanted, file.path)
                yield pa.RecordBatch.from_arrays(arrays, names=list(self.columns))
