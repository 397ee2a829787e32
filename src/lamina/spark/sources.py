"""Reading a range of a source as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from lamina.connectors.file_frames import ddl
from lamina.engine.model import SourceRange
from lamina.engine.ports import Source as EngineSource
from lamina.pipeline.model import Source
from lamina.pipeline.tokens import bad_at
from lamina.spark.files import BAD_ROWS, FORMATS, SparkFiles
from lamina.spark.generators import Trades
from lamina.spark.nexmark import Nexmark

__all__ = ["BAD_ROWS", "SparkFiles", "SparkSource", "ddl", "open_source"]


class SparkSource(EngineSource, Protocol):
    """A source that Spark can read."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame: ...


def open_source(source: Source, folder: Path, *, file: str = "pipeline") -> SparkSource:
    """The source of a pipeline; relative paths are below *folder*."""
    if source.format in FORMATS:
        return SparkFiles(source, folder, file=file)
    if source.format == "trades":
        return Trades(source, file=file)
    if source.format == "nexmark":
        return Nexmark(source, file=file)
    raise bad_at(
        f"the source {source.name!r} has the format {source.format!r}, which is not known",
        file,
        source.place,
        f"There are {', '.join((*FORMATS, 'trades', 'nexmark'))}",
    )
