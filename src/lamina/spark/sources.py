"""Reading a range of a source as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.connectors.files import FilesSource
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, Memory
from lamina.engine.ports import Source as EngineSource
from lamina.errors import BadPipeline
from lamina.pipeline.model import Source

ROW = "row"
FILE_FORMATS = ("json", "csv", "parquet")


class SparkSource(EngineSource, Protocol):
    """A source that Spark can read."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame: ...


def open_source(source: Source, folder: Path) -> SparkSource:
    """The source of a pipeline; relative paths are below *folder*."""
    if source.format in FILE_FORMATS:
        return SparkFiles(source, folder)
    if source.format == "trades":
        return Trades(source)
    raise BadPipeline(
        f"the source {source.name!r} has the format {source.format!r}, which is not known",
        where=str(source.place),
        advice=f"There are {', '.join((*FILE_FORMATS, 'trades'))}",
    )


def ddl(source: Source) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in source.columns)


class SparkFiles(FilesSource):
    """JSON, CSV or Parquet files: the schema is always given, the list of files short."""

    def __init__(self, source: Source, folder: Path) -> None:
        path = source.options.get("path")
        if path is None:
            raise BadPipeline(f"the source {source.name!r} has no path", where=str(source.place))
        super().__init__(source.name, folder / path.value)
        self._source = source

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        reader = spark.read.schema(ddl(self._source)).format(self._source.format)
        if self._source.format != "parquet":
            reader = reader.option("mode", "FAILFAST")
        for name, option in self._source.options.items():
            if name.lower() != "path":
                reader = reader.option(name, option.value)
        return reader.load([file.path for file in planned.files])


class Trades:
    """Market trades, made up, the same every time: row n depends on n alone."""

    def __init__(self, source: Source) -> None:
        options = source.options
        self.name = source.name
        self._source = source
        self._rows = _number(source, "rows", 10_000)
        self._symbols = _number(source, "symbols", 20)
        self._every_us = _number(source, "every_us", 50_000)
        for name in options:
            if name not in ("rows", "symbols", "every_us"):
                raise BadPipeline(f"{source.name!r}: the option {name!r} is not known")

    def initial(self) -> Offset:
        return {ROW: "0"}

    def plan(self, start: Offset, limits: Limits, memory: Memory) -> SourceRange:
        del memory  # a number says it all
        at = int(start[ROW])
        end = self._rows if limits.rows is None else min(self._rows, at + limits.rows)
        return SourceRange(self.name, start, {ROW: str(end)})

    def confirm(self, planned: SourceRange) -> None:
        """Nothing can have changed."""

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        ids = spark.range(int(planned.start[ROW]), int(planned.end[ROW]), 1, 2)
        mixed = F.expr("xxhash64(id)")
        frame = ids.select(
            F.concat(F.lit("S"), F.pmod(mixed, F.lit(self._symbols)).cast("string")).alias(
                "symbol"
            ),
            F.expr("CAST(10 + pmod(xxhash64(id, 1), 9000) / 100 AS DECIMAL(12, 2))").alias("price"),
            F.expr("CAST(1 + pmod(xxhash64(id, 2), 500) AS BIGINT)").alias("volume"),
            F.expr(f"timestamp_micros(1700000000000000 + id * {self._every_us})").alias("ts"),
        )
        return frame.select(*(F.col(column.name) for column in self._source.columns))


def _number(source: Source, name: str, default: int) -> int:
    option = source.options.get(name)
    if option is None:
        return default
    if not option.value.isdigit():
        raise BadPipeline(f"{source.name!r}: {name} is a whole number, not {option.written!r}")
    return int(option.value)
