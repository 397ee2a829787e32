"""What runs in Spark's Python workers: staging and nothing else, for the limit; our step, timed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from lamina.engine.model import StreamWork
from lamina.spark.tasks import UpdateAndStage
from lamina.workspace.local import LocalTaskSpace

STEPS = ("state", "log", "stage")


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


@dataclass(frozen=True, slots=True)
class TimedUpdateAndStage(UpdateAndStage):
    """Our step with clocks around what it waits for, the log and the staged file."""

    folder: str = ""  # where each task leaves its seconds

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clocks = _Clocks()
        begin = time.perf_counter()
        log = clocks.around(LocalTaskSpace, "put_run", "log")
        with log, clocks.around(LocalTaskSpace, "stage", "stage"):
            # super() without arguments does not work in a class that dataclass has made anew.
            answers = list(UpdateAndStage.__call__(self, clocks.waiting(batches)))
        seconds = clocks.seconds
        seconds["state"] = time.perf_counter() - begin - sum(seconds.values())
        context = TaskContext.get()
        assert context is not None
        Path(self.folder, f"{context.taskAttemptId()}.json").write_text(json.dumps(seconds))
        yield from answers


class _Clocks:
    def __init__(self) -> None:
        self.seconds = {"input": 0.0, "log": 0.0, "stage": 0.0}

    def waiting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.seconds["input"] += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    @contextmanager
    def around(self, module: Any, name: str, part: str) -> Iterator[None]:
        original: Callable[..., Any] = getattr(module, name)

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments)
            finally:
                self.seconds[part] += time.perf_counter() - start

        setattr(module, name, timed)
        try:
            yield
        finally:
            setattr(module, name, original)
