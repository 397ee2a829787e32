"""Tables of Delta Lake: a version of the table's log is a version here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.kinds import DeclaredOption, Extra, OptionType, TableContext, TableKind
from lamina.connectors.store_options import STORE_OPTIONS, check_store_options
from lamina.connectors.tables.options import KEYS, REFRESH, check_keys

if TYPE_CHECKING:
    from lamina.engine.ports import Table


def _open(context: TableContext) -> Table:
    from lamina.connectors.tables.delta import DeltaReader  # noqa: PLC0415  an extra
    from lamina.connectors.tables.spooled import SpooledTable  # noqa: PLC0415  slow to import

    return SpooledTable(context, DeltaReader(context))


def _check(context: TableContext) -> None:
    check_keys(context)
    check_store_options(context.table, context.given, "path")


DELTA = TableKind(
    "delta",
    "A Delta Lake table; its newest version, with deletes and partitions as Delta has them",
    open=_open,
    options=(
        DeclaredOption(
            "path",
            "Folder of the table, or its address: `s3://bucket/table`",
            OptionType.INPUT,
            required=True,
            remote=True,
        ),
        KEYS,
        REFRESH,
        *STORE_OPTIONS,
    ),
    check=_check,
    extra=Extra("delta", ("deltalake",)),
)
