"""What UNION ALL puts together: the columns of all its parts, as Spark has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.pipeline.model import Stream
from lamina.pipeline.tokens import bad_at
from lamina.spark.internals import empty_frame
from lamina.spark.known import Known


def together(spark: SparkSession, stream: Stream, inputs: Sequence[Known], file: str) -> StructType:
    """The columns of all inputs, as UNION ALL gives them."""
    if len(inputs) == 1:
        return inputs[0].schema
    frames = [empty_frame(spark, each.schema) for each in inputs]
    columns = {len(each.schema.names) for each in inputs}
    if len(columns) > 1:
        listed = ", ".join(str(len(each.schema.names)) for each in inputs)
        raise bad_at(
            f"the parts of UNION ALL have different numbers of columns: {listed}",
            file,
            stream.place,
            "Let each part list as many: NULL AS name for those that one does not have",
        )
    return reduce(DataFrame.union, frames).schema
