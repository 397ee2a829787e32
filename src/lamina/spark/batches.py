"""How many rows Spark hands to Python at a time, and whether it weighs them.

Before each row Spark asks all columns of a batch how large they are by now, and ends the batch at
64 MiB. Of short rows that takes as long as writing them, and no batch of them comes near the limit.
So a stream whose rows have been short goes without; one whose rows were long once, or that has not
had any yet, does not: a batch that is too large for Arrow ends Spark's JVM. Nor does one with other
Python in its plan, whose rows our tasks do not see.

A batch has few rows: the buffers of many would not stay in the processor's cache, and are copied
again and again while they grow.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from lamina.engine.model import TaskResult
from lamina.spark.internals import has_other_python

ROWS_MAX = 2048
ROWS_OF_BATCH = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_MAX)}
BYTES_OF_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
UNWEIGHED = str((1 << 31) - 1)
"""The one number with which Spark does not look (it is not a limit then)."""
SHORT_BYTES = 1024  # rows would have to become 250 times as long before a batch has 512 MiB


class Batches:
    """What is known about the rows of each stream, and the setting that follows from it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._weighed = str(spark.conf.get(BYTES_OF_BATCH))
        self._now = self._weighed
        self._short: dict[str, bool] = {}

    def choose(self, stream: str) -> None:
        """Before a job of *stream*."""
        wanted = UNWEIGHED if self._short.get(stream) else self._weighed
        if wanted != self._now:
            self._spark.conf.set(BYTES_OF_BATCH, wanted)
            self._now = wanted

    def note(self, stream: str, results: Iterable[TaskResult], job: DataFrame) -> None:
        """Rows that were long once may be so again."""
        longest = max((each.row_bytes for each in results), default=0)
        if longest > SHORT_BYTES:
            self._short[stream] = False
        elif longest and stream not in self._short:
            self._short[stream] = not has_other_python(job)
