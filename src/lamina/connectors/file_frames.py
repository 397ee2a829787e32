"""JSON, CSV and Parquet files as DataFrames: the schema is always given, the list of files short.

Spark parses only the columns that a query needs, and sees only in those that a row is malformed.
Whether a row counts must not depend on who asks: so all columns of a text format are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.files import FileRange
from lamina.connectors.json_text import JsonText
from lamina.connectors.partitions import by_chain
from lamina.pipeline.model import Column as Definition
from lamina.pipeline.model import DeclaredSource

CORRUPT = "_lamina_corrupt"
_PATTERN = re.compile(r"([\\{}\[\]*?])")


def local(path: str | Path) -> str:
    """A path of the file system for Spark, whatever its default one is.

    A name is a name: `[1]` and `*` in it are not patterns. (To switch patterns off altogether makes
    Spark 4.3 read all files once for each that looks like one.)
    """
    return "file://" + _PATTERN.sub(r"\\\1", str(path))


def ddl(columns: Iterable[Definition]) -> str:
    """Columns as Spark's DDL has them."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


@dataclass(frozen=True, slots=True)
class _Group:
    """Files with the same columns in their paths."""

    base: str
    in_paths: tuple[str, ...]  # in lower case
    paths: list[str]

    def load(self, reader: DataFrameReader) -> DataFrame:
        if self.in_paths:
            reader = reader.option("basePath", self.base)
        return reader.load(self.paths)


class FileFrames:
    """The rows of a source's files."""

    def __init__(
        self, source: DeclaredSource, options: Mapping[str, str], *, keeps_bad_rows: bool
    ) -> None:
        """*options* are those of Spark's reader, by their names in lower case."""
        self._source = source
        self._format = source.format
        self._keeps_bad_rows = keeps_bad_rows
        self._options = options
        self._json = JsonText(self._options, new_writer_id(SystemClock()), CORRUPT)
        self._names = [quoted(column.name) for column in source.columns]
        self._reader: DataFrameReader | None = None  # one session for all epochs: made once
        self._parses_all: Column | None = None  # made once, too

    def rows(self, spark: SparkSession, files: FileRange) -> DataFrame:
        """Of a range; without those that cannot be read, if these are kept elsewhere."""
        groups = self._groups(files)
        if self._format == "json" and self._keeps_bad_rows:
            return _union(
                self._json.rows(self._text(spark, group), self._ddl(group)).select(*self._names)
                for group in groups
            )
        rows = _union(self._typed(spark, group) for group in groups)
        if self._format == "json":
            paths = [local(path) for path in files.paths]
            return rows.unionAll(self._json.no_rest(spark, paths, rows.schema))
        if self._keeps_bad_rows:
            rows = rows.where(F.col(CORRUPT).isNull()).drop(CORRUPT)
        return rows

    def bad_rows(self, spark: SparkSession, files: FileRange) -> DataFrame:
        """The rows of a range that cannot be read: `file` and `text`."""
        if self._format == "json":
            return _union(
                self._json.bad_rows(self._text(spark, group), self._ddl(group))
                for group in self._groups(files)
            )
        file = F.col("_metadata.file_path").alias("file")
        bad = F.col(CORRUPT).isNotNull()
        return _union(
            group.load(self._open(spark))
            .where(self._all_parsed())
            .where(bad)
            .select(file, F.col(CORRUPT).alias("text"))
            for group in self._groups(files)
        )

    # steps

    def _groups(self, files: FileRange) -> list[_Group]:
        """Mostly one: a union of many would be a plan of many."""
        names = [column.name for column in self._source.columns]
        found = by_chain(files.folder, (file.path for file in files.files), names)
        return [
            _Group(
                f"file://{files.folder / chain.base}",
                chain.columns,
                [local(files.folder / path) for path in paths],
            )
            for chain, paths in found.items()
        ]

    def _typed(self, spark: SparkSession, group: _Group) -> DataFrame:
        """By the reader of the format, which knows types."""
        if group.in_paths:
            names = [*self._names, *([CORRUPT] if self._keeps_bad_rows else [])]
            rows = group.load(self._open(spark)).select(*names)
        else:
            self._reader = self._reader or self._open(spark)
            rows = group.load(self._reader)
        return rows if self._format == "parquet" else rows.where(self._all_parsed())

    def _text(self, spark: SparkSession, group: _Group) -> DataFrame:
        schema = "value STRING"
        if group.in_paths:
            schema += ", " + ddl(
                c for c in self._source.columns if c.name.lower() in group.in_paths
            )
        return group.load(self._json.reader(spark).schema(schema))

    def _ddl(self, group: _Group) -> str:
        """Of the columns that are in the files themselves."""
        return ddl(c for c in self._source.columns if c.name.lower() not in group.in_paths)

    def _open(self, spark: SparkSession) -> DataFrameReader:
        columns = ddl(self._source.columns)
        reader = spark.read.format(self._format)
        reader = reader.option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
        if self._keeps_bad_rows:
            columns = f"{columns}, {CORRUPT} STRING"
            reader = reader.option("mode", "PERMISSIVE")
            reader = reader.option("columnNameOfCorruptRecord", CORRUPT)
        elif self._format != "parquet":
            reader = reader.option("mode", "FAILFAST")
        if self._format == "csv":  # a header with other columns is an error, not a guess
            reader = reader.option("enforceSchema", "false")
        for name, value in self._options.items():
            reader = reader.option(name, value)
        return reader.schema(columns)

    def _all_parsed(self) -> Column:
        """True for every row, which Spark does not know: it has to parse every column."""
        if self._parses_all is None:
            nulls = [F.col(name).isNull().cast("int") for name in self._names]
            self._parses_all = reduce(add, nulls) >= 0
        return self._parses_all


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
