"""The kinds of sources that are files of a folder: JSON, CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lamina.connectors.kinds import (
    BAD_ROWS_PATH,
    DeclaredOption,
    OptionType,
    SourceContext,
    SourceKind,
)
from lamina.connectors.reader_options import check_place, check_reader_options
from lamina.connectors.silent import IDLE_AFTER_OPTION, check_idle_after
from lamina.connectors.store_options import STORE_OPTIONS, check_store_options

if TYPE_CHECKING:
    from lamina.connectors.spark_source import SparkSource

PATH = "path"
LIST_EVERY = "list_every"
_KEEP = f"A row that cannot be read stops the epoch; with {BAD_ROWS_PATH} 'a/folder' it is kept"
_WHOLE = "Every file of the folder is read once, completely; names that begin with _ are ignored"
_BY_NAME = "Columns in the names of folders, as in day=2024-01-01/, are found by their names"
REFUSED = {
    "__globpaths__": _WHOLE,
    "basepath": _BY_NAME,
    "mode": _KEEP,
    "columnnameofcorruptrecord": _KEEP,
    "badrecordspath": _KEEP,
    "ignorecorruptfiles": "A file that cannot be read stops the epoch: nothing is lost silently",
    "ignoremissingfiles": "A missing file stops the epoch: nothing is lost silently",
    "pathglobfilter": _WHOLE,
    "recursivefilelookup": _WHOLE,
    "modifiedbefore": _WHOLE,
    "modifiedafter": _WHOLE,
    "inferschema": "Columns are always given: nothing is inferred from data",
    "singlevariantcolumn": "Columns are always given; one of them may be a VARIANT",
}
_PATH = DeclaredOption(
    PATH,
    "Folder with the files, or an address of an object store",
    OptionType.INPUT,
    required=True,
    remote=True,
)
_LIST_EVERY = DeclaredOption(
    LIST_EVERY,
    "Of an address: time between full listings; in between only later names are found",
    OptionType.INTERVAL,
)
_BAD_ROWS = DeclaredOption(
    BAD_ROWS_PATH,
    "Folder for rows that cannot be read, or an address, see Bad rows",
    OptionType.OUTPUT,
    remote=True,
)


def _open(context: SourceContext) -> SparkSource:
    place = context.given.place(PATH)
    if isinstance(place, Path):
        from lamina.connectors.spark_files import SparkFiles  # noqa: PLC0415  slow to import

        return SparkFiles(context)
    from lamina.connectors.spark_objects import SparkObjects  # noqa: PLC0415  slow to import

    source = SparkObjects(context, place)
    source.reach()
    return source


def _check(context: SourceContext) -> None:
    check_reader_options(context)
    check_store_options(context.source, context.given, PATH)
    check_place(context, PATH, LIST_EVERY)
    check_idle_after(context)


def _kind(name: str, doc: str, *options: DeclaredOption, **refused: str) -> SourceKind:
    return SourceKind(
        name,
        f"{doc} files in a folder; each file is read once, oldest first",
        open=_open,
        options=(_PATH, *options, _LIST_EVERY, IDLE_AFTER_OPTION, *STORE_OPTIONS),
        refused={**REFUSED, **refused},
        check=_check,
        further=f"Options of Spark's {doc} reader are passed on",
    )


JSON = _kind("json", "JSON", _BAD_ROWS)
CSV = _kind("csv", "CSV", _BAD_ROWS)
PARQUET = _kind(
    "parquet",
    "Parquet",
    bad_rows_path="A Parquet file can be read as a whole or not at all: leave it out",
)
