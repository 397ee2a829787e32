"""The kinds of sources that are files of a folder: JSON, CSV and Parquet."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lamina.connectors.files import FilesSource
from lamina.connectors.kinds import (
    BAD_ROWS_PATH,
    DeclaredOption,
    OptionType,
    SourceContext,
    SourceKind,
)
from lamina.connectors.options import option_of
from lamina.connectors.reader_options import check_reader_options
from lamina.engine.model import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.connectors.file_frames import FileFrames

PATH = "path"
_KEEP = f"A row that cannot be read stops the epoch; with {BAD_ROWS_PATH} 'a/folder' it is kept"
_WHOLE = "Every file of the folder is read once, and whole; names that begin with _ are passed over"
_BY_NAME = "Columns in the names of folders, as in day=2024-01-01/, are found by their names"
_REFUSED = {
    "__globpaths__": _WHOLE,
    "basepath": _BY_NAME,
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
    "singlevariantcolumn": "Columns are always given; one of them may be a VARIANT",
}
_PATH = DeclaredOption(PATH, "Folder with the files", OptionType.INPUT, required=True)
_BAD_ROWS = DeclaredOption(
    BAD_ROWS_PATH, "Folder for rows that cannot be read, see Bad rows", OptionType.OUTPUT
)


class SparkFiles(FilesSource):
    """The files of a folder, and how Spark reads them."""

    def __init__(self, context: SourceContext) -> None:
        source, given = context.source, context.given
        path = option_of(source, PATH)
        assert path is not None, "it is required"
        super().__init__(source.name, given.folder(PATH), written=path.value)
        self._source = source
        self._further = given.further
        self._keeps_bad_rows = BAD_ROWS_PATH in given.declared

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The rows of a range; without those that cannot be read, if these are kept elsewhere."""
        return self._frames.rows(spark, planned.data)

    def bad_rows(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return self._frames.bad_rows(spark, planned.data)

    @cached_property
    def _frames(self) -> FileFrames:
        from lamina.connectors.file_frames import FileFrames  # noqa: PLC0415  an extra

        return FileFrames(self._source, self._further, keeps_bad_rows=self._keeps_bad_rows)


def _kind(name: str, doc: str, *options: DeclaredOption, **refused: str) -> SourceKind:
    return SourceKind(
        name,
        f"{doc} files in a folder; each file is read once, oldest first",
        open=SparkFiles,
        options=(_PATH, *options),
        refused={**_REFUSED, **refused},
        check=check_reader_options,
        further=f"Options of Spark's {doc} reader are passed on",
    )


JSON = _kind("json", "JSON", _BAD_ROWS)
CSV = _kind("csv", "CSV", _BAD_ROWS)
PARQUET = _kind(
    "parquet",
    "Parquet",
    bad_rows_path="A Parquet file can be read as a whole or not at all: leave it out",
)
