"""Tables of Iceberg: a snapshot of the table is a version here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.iceberg.kind import ICEBERG as SINK
from lamina.connectors.iceberg.kind import PREFIX, check_catalog
from lamina.connectors.kinds import DeclaredOption, TableContext, TableKind
from lamina.connectors.tables.options import KEYS, REFRESH, check_keys

if TYPE_CHECKING:
    from lamina.engine.ports import Table


def _open(context: TableContext) -> Table:
    from lamina.connectors.tables.iceberg import IcebergReader  # noqa: PLC0415  an extra
    from lamina.connectors.tables.spooled import SpooledTable  # noqa: PLC0415  slow to import

    return SpooledTable(context, IcebergReader(context))


def _check(context: TableContext) -> None:
    check_keys(context)
    check_catalog(context.table, context.given)


ICEBERG = TableKind(
    "iceberg",
    "An Iceberg table, in an SQL or REST catalog; its current snapshot, without deleted rows",
    open=_open,
    options=(
        DeclaredOption("table", "The table, `namespace.name`", required=True),
        *(each for each in SINK.options if each.name in ("catalog", "catalog_name")),
        KEYS,
        REFRESH,
    ),
    check=_check,
    refused=SINK.refused,
    further=SINK.further,
    further_prefix=PREFIX,
    extra=SINK.extra,
)
