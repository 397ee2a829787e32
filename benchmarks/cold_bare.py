"""A SparkSession with Spark's own settings and one `mapInArrow` job: a cold start of anyone's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from lamina.spark.internals import map_in_arrow


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 in the PATH
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    frame = map_in_arrow(spark.range(0, 5000, 1, 2), same, "id bigint")
    print(len(frame.collect()), flush=True)
