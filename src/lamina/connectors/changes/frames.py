"""The journal of a range as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.connectors.changes.journal import Journal
from lamina.connectors.file_frames import ddl, local
from lamina.connectors.spark_source import DriverFiles
from lamina.engine.ports import CHANGE
from lamina.pipeline.model import DeclaredSource


def changes_frame(
    spark: SparkSession,
    source: DeclaredSource,
    journal: Journal,
    files: DriverFiles | None = None,
) -> DataFrame:
    """Without *files* tasks see it on the driver's disk."""
    columns = f"{ddl(source.columns)}, {CHANGE} STRING"
    if files is None:
        return spark.read.schema(columns).format("parquet").load([local(Path(journal.path))])
    schema = cast(StructType, StructType.fromDDL(columns))
    return files.frame(spark, schema, [journal.path], owner=f"source {source.name}")
