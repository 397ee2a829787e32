"""JSON, CSV and Parquet files as sources."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from lamina.connectors.file_frames import FileFrames
from lamina.connectors.files import FilesSource
from lamina.connectors.opening import BAD_ROWS_PATH, keeps_bad_rows
from lamina.connectors.paths import bad_option, folder_of, option_of
from lamina.engine.model import SourceRange
from lamina.pipeline.model import Source

FORMATS = ("json", "csv", "parquet")
BAD_ROWS = StructType([StructField("file", StringType()), StructField("text", StringType())])
"""What is kept of a bad row: where it stood, and how it read."""

_KEEP = f"A row that cannot be read stops the epoch; with {BAD_ROWS_PATH} 'a/folder' it is kept"
_WHOLE = "Every file of the folder is read once, and whole; names that begin with _ are passed over"
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
        self._frames = FileFrames(source, keeps_bad_rows=self._keeps_bad_rows)
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
        return self._frames.rows(spark, planned.data)

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range that cannot be read, as `BAD_ROWS`."""
        return self._frames.bad_rows(spark, planned.data)
