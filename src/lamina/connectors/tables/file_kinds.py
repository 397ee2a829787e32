"""The kinds of tables that are files of a folder: Parquet, CSV and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.clock import SystemClock
from lamina.connectors.file_kinds import REFUSED
from lamina.connectors.kinds import DeclaredOption, OptionType, Peeked, TableContext, TableKind
from lamina.connectors.reader_options import check_reader_options
from lamina.connectors.tables.options import KEYS, REFRESH, check_keys
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.engine.ports import Table

_PATH = DeclaredOption(
    "path",
    "Folder with the files of the table, or one file",
    OptionType.INPUT,
    required=True,
)


def _open(context: TableContext) -> Table:
    from lamina.connectors.tables.files import FileReader  # noqa: PLC0415  slow to import
    from lamina.connectors.tables.spooled import SpooledTable  # noqa: PLC0415

    return SpooledTable(context, FileReader(context))


def _check(context: TableContext) -> None:
    check_keys(context)
    check_reader_options(context)


def _peek(context: TableContext) -> Peeked | None:
    from lamina.connectors.tables.files import find_files  # noqa: PLC0415  slow to import

    try:
        found = find_files(context.table.name, context.given.folder("path"), SystemClock())
    except LaminaError:
        return None  # a run says why
    return Peeked(f"{len(found.files)} files", found.size)


def _kind(name: str, doc: str) -> TableKind:
    return TableKind(
        name,
        f"{doc} files in a folder: together they are the table, and its version is their contents",
        open=_open,
        options=(_PATH, KEYS, REFRESH),
        check=_check,
        refused=REFUSED,
        further=f"Options of Spark's {doc} reader are passed on",
        peek=_peek,
    )


PARQUET = _kind("parquet", "Parquet")
CSV = _kind("csv", "CSV")
JSON = _kind("json", "JSON")
