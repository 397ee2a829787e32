"""What the runner asks of a job beside its results, and what it leaves in Spark's workers."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.engine.model import StreamWork
from lamina.spark.internals import Measures, json_column, map_in_arrow
from lamina.spark.runner import bounded_measures
from lamina.spark.tasks import task_of
from lamina.workspace import LocalTaskSpace

ALL = {"rows": 4, "without_time": 1}


@pytest.mark.parametrize(
    ("limit", "seen"),
    [
        (None, {"latest_us": 30, "earliest_us": -10, "ahead": 0}),
        (30, {"latest_us": 30, "earliest_us": None, "ahead": 0}),
        (29, {"latest_us": 20, "earliest_us": 30, "ahead": 1}),
        (-11, {"latest_us": None, "earliest_us": -10, "ahead": 3}),
    ],
)
def test_event_times_beyond_the_limit_are_told_from_those_that_count(
    spark: Any, limit: int | None, seen: dict[str, int | None]
) -> None:
    times = spark.createDataFrame([(20,), (None,), (30,), (-10,)], "us BIGINT")
    rows = times.select(F.timestamp_micros("us").alias("ts"))
    measured = Measures(spark, "s", bounded_measures(F.col("ts"), limit)).of(rows)
    measured = measured.select(F.lit(1).alias("one"))
    json_column(measured)
    assert Measures.seen(measured, ["s"]) == {"s": {**ALL, **seen}}


def test_a_worker_does_not_look_for_garbage_among_its_modules(spark: Any, tmp_path: Path) -> None:
    """Spark's workers collect garbage after every task: that took longer than a small task."""
    space = LocalTaskSpace(str(tmp_path), b"", str(tmp_path))
    work = StreamWork("s", 1, 1, "run", space, 2, ())

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        task_of(work)
        said = json.dumps([gc.get_freeze_count(), len(gc.get_objects())])
        yield pa.record_batch({"answer": pa.array([said])})

    job = map_in_arrow(spark.range(0, 2, 1, 2), answer, "answer string")
    for frozen, looked_through in json_column(job):
        assert frozen > looked_through
