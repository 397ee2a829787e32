"""A stream that is a function of DataFrames, compiled: what it makes of empty frames."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.pipeline.model import Stream
from lamina.pipeline.select import read_select
from lamina.spark.frame_functions import FramePlan
from lamina.spark.frames import view
from lamina.spark.internals import arrow_schema, empty_frame
from lamina.spark.plan_checks import check_names, check_types
from lamina.spark.streams import Reading, SparkStream


def compile_frames(
    spark: SparkSession, stream: Stream, reading: Reading, inputs: Sequence[StructType]
) -> SparkStream:
    """The stream over inputs of these columns."""
    select = read_select(stream, f"stream {stream.name}")
    with ExitStack() as opened:
        views = [
            opened.enter_context(
                view(empty_frame(spark, schema), f"input {number} of {stream.name}")
            )
            for number, schema in enumerate(inputs)
        ]
        plan = FramePlan.of(stream)
        rows = plan.over(spark, views)
        check_names(rows.columns, select)
        check_types(rows.schema, select)
        columns = arrow_schema(rows).serialize().to_pybytes()
    plan = replace(plan, output=rows.schema)
    return SparkStream(stream.name, reading, plan, rows.schema, columns)
