"""From the definitions of tables to what reads them; and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from lamina.connectors.installed import check_installed
from lamina.connectors.kinds import OptionType, Peeked, TableContext, TableKind
from lamina.connectors.options import read_options
from lamina.connectors.registry import table_kind, table_names
from lamina.format.home_names import journal_folder
from lamina.pipeline.model import DeclaredTable, Pipeline
from lamina.pipeline.tokens import bad_at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lamina.engine.ports import Table


def check_table(table: DeclaredTable, folder: Path, *, file: str = "pipeline") -> TableContext:
    """What a table is opened with; relative paths are below *folder*. Nothing is looked at."""
    kind = _kind(table, file)
    context = TableContext(table, read_options(table, kind, folder, file=file))
    kind.check(context)
    check_installed(table, kind, file)
    return context


def open_tables(
    pipeline: Pipeline,
    folder: Path,
    *,
    scratch: Path,
    spark: SparkSession,
    columns: Mapping[str, pa.Schema],
    file: str = "pipeline",
) -> dict[str, Table]:
    """All of them, by name; *scratch* takes the copies that tasks read, *columns* are by table."""
    return {
        table.name: _kind(table, file).open(
            replace(
                check_table(table, folder, file=file),
                scratch=scratch.absolute() / journal_folder(table.name),
                spark=spark,
                columns=columns[table.name],
            )
        )
        for table in pipeline.tables.values()
    }


def close_tables(tables: Mapping[str, Table]) -> None:
    for table in tables.values():
        table.close()


def peek(table: DeclaredTable, folder: Path, *, file: str = "pipeline") -> Peeked | None:
    """What can be told of it in a moment, for `lamina check`."""
    return _kind(table, file).peek(check_table(table, folder, file=file))


def folders_of(table: DeclaredTable, folder: Path, *, file: str = "pipeline") -> list[PurePath]:
    """The folders that it reads."""
    kind = _kind(table, file)
    given = read_options(table, kind, folder, file=file)
    names = [each.name for each in kind.options if each.type is OptionType.INPUT]
    places = [given.place(name) for name in names if name in given.declared]
    return [Path(os.path.normpath(p.absolute())) for p in places if isinstance(p, Path)]


def _kind(table: DeclaredTable, file: str) -> TableKind:
    kind = table_kind(table.format)
    if kind is None:
        message = f"the table {table.name!r} has the format {table.format!r}, which is not known"
        raise bad_at(message, file, table.place, f"Known formats: {', '.join(table_names())}")
    return kind
