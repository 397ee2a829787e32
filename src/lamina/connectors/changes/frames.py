"""The journal of a range as a DataFrame."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lamina.connectors.changes.journal import Journal
from lamina.connectors.file_frames import ddl, local
from lamina.engine.ports import CHANGE
from lamina.pipeline.model import DeclaredSource


def changes_frame(spark: SparkSession, source: DeclaredSource, journal: Journal) -> DataFrame:
    columns = f"{ddl(source.columns)}, {CHANGE} STRING"
    return spark.read.schema(columns).format("parquet").load([local(Path(journal.path))])
