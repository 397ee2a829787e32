"""JSON, CSV and Parquet files as DataFrames: the schema is always given, the list of files short.

Spark parses only the columns that a query needs, and sees only in those that a row is malformed.
Whether a row counts must not depend on who asks: so all columns of a text format are parsed.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import add
from pathlib import Path

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import StringType, StructField, StructType

from lamina.connectors.files import FilesSource
from lamina.connectors.opening import BAD_ROWS_PATH, keeps_bad_rows
from lamina.connectors.paths import bad_option, folder_of, option_of
from lamina.engine.model import SourceRange
from lamina.pipeline.model import Source

FORMATS = ("json", "csv", "parquet")
BAD_ROWS = StructType([StructField("file", StringType()), StructField("text", StringType())])
"""What is kept of a bad row: where it stood, and how it read."""

_CORRUPT = "_lamina_corrupt"
_KEEP = f"A row that cannot be read stops the epoch; with {BAD_ROWS_PATH} 'a/folder' it is kept"
_WHOLE = "Every file of the folder is read once, and whole; names that begin with _ are passed over"
_PATTERN = re.compile(r"([\\{}\[\]*?])")
_REFUSED = {
    "__globpaths__": _WHOLE,
    "mode": _KEEP,
    "columnnameofcorruptrecord": _KEEP,
    "badrecordspath": _KEEP,
    "ignorecorruptfiles": "A file that cannot be read stops the epoch: nothing is lost in silence",
    "ignoremissingfiles": "A file that has gone stops the epoch: nothing is lost in silence",
    "pathglobfilter": _WHOLE,
    "recursivefilelookup": _WHOLE,
    "modifiedbefore": _WHOLE,
    "modifiedafter": _WHOLE,
    "inferschema": "Columns are always given: nothing is inferred from data",
}


def local(path: str | Path) -> str:
    """A path of the file system for Spark, whatever its default one is.

    A name is a name: `[1]` and `*` in it are no patterns. (To switch patterns off altogether makes
    Spark 4.3 read all files once for each that looks like one.)
    """
    return "file://" + _PATTERN.sub(r"\\\1", str(path))


def ddl(source: Source) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in source.columns)


class SparkFiles(FilesSource):
    """The files of a folder."""

    def __init__(self, source: Source, folder: Path, *, file: str = "pipeline") -> None:
        path = option_of(source, "path")
        super().__init__(
            source.name,
            folder_of(source, "path", folder, file=file),
            written=path.value if path else "",
        )
        self._source = source
        self._keeps_bad_rows = keeps_bad_rows(source)
        self._reader: DataFrameReader | None = None
        for name in source.options:
            if name.lower() in _REFUSED:
                message = f"has the option {name!r}"
                raise bad_option(source, message, file, _REFUSED[name.lower()])
        if self._keeps_bad_rows and source.format == "parquet":
            message = f"has the option {BAD_ROWS_PATH!r}"
            advice = "A Parquet file can be read as a whole or not at all: leave it out"
            raise bad_option(source, message, file, advice)

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range; without those that cannot be read, if these are kept elsewhere."""
        rows = self._read(spark, planned)
        if self._source.format == "parquet":
            return rows
        rows = rows.where(self._all_parsed())
        if self._keeps_bad_rows:
            rows = rows.where(F.col(_CORRUPT).isNull()).drop(_CORRUPT)
        return rows

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range that cannot be read, as `BAD_ROWS`."""
        rows = self._read(spark, planned)
        rows = rows.where(self._all_parsed()).where(F.col(_CORRUPT).isNotNull())
        return rows.select(
            F.col("_metadata.file_path").alias("file"), F.col(_CORRUPT).alias("text")
        )

    def _read(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        if self._reader is None:  # one session for all epochs: made once
            self._reader = self._open_reader(spark)
        return self._reader.load([local(path) for path in planned.data.paths])

    def _open_reader(self, spark: SparkSession) -> DataFrameReader:
        columns = ddl(self._source)
        reader = spark.read.format(self._source.format)
        reader = reader.option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
        if self._keeps_bad_rows:
            columns = f"{columns}, {_CORRUPT} STRING"
            reader = reader.option("mode", "PERMISSIVE")
            reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
        elif self._source.format != "parquet":
            reader = reader.option("mode", "FAILFAST")
        if self._source.format == "csv":  # a header with other columns is an error, not a guess
            reader = reader.option("enforceSchema", "false")
        for name, option in self._source.options.items():
            if name.lower() not in ("path", BAD_ROWS_PATH):
                reader = reader.option(name, option.value)
        return reader.schema(columns)

    def _all_parsed(self) -> Column:
        """True for every row, which Spark does not know: it has to parse every column."""
        names = (column.name.replace("`", "``") for column in self._source.columns)
        nulls = [F.col(f"`{name}`").isNull().cast("int") for name in names]
        return reduce(add, nulls) >= 0
