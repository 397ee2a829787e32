"""Columns as Spark has them."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from lamina.connectors.file_frames import ddl
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSource, DeclaredTable


def columns_schema(spark: SparkSession, source: DeclaredSource | DeclaredTable) -> StructType:
    """The columns that a source or a table declares."""
    try:
        return spark.createDataFrame([], ddl(source.columns)).schema
    except PySparkException as error:
        raise BadPipeline(
            f"the columns of {source.name!r}: {first_line(error)}", where=str(source.place)
        ) from error


def nullable(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, True)


def first_line(error: PySparkException) -> str:
    """What Spark says, without the text that it says it of."""
    return str(error).strip().splitlines()[0]


def advice_on(error: PySparkException) -> str:
    """What can be done about what Spark refuses, where Spark does not say it."""
    if error.getCondition() == "UNSUPPORTED_SQL_UDF_USAGE":
        return (
            "Compute it in a subquery: SELECT count(DISTINCT y) ... FROM (SELECT f(x) AS y FROM t)"
        )
    return ""
