"""What the limit runs in Spark's Python workers: staging, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from lamina.engine.model import StreamWork


@dataclass(frozen=True, slots=True)
class StageOnly:
    """For `mapInArrow`: rows into a synced Parquet file, as our own tasks do it."""

    work: StreamWork
    columns: tuple[str, ...]  # that hold the key, the sum and the count

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task = self.work.task(context.partitionId(), str(context.taskAttemptId()))
        rows = sum(each.rows for each in self.work.space.stage(task.writer, self._chosen(batches)))
        yield pa.record_batch({"rows": pa.array([rows], pa.int64())})

    def _chosen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(name) for name in self.columns]
            yield pa.RecordBatch.from_arrays(columns, names=["k", "total", "n"])
