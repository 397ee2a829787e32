"""Tables of PostgreSQL: all rows as one transaction sees them are a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.kinds import DeclaredOption, OptionType, TableContext, TableKind
from lamina.connectors.postgres.kind import POSTGRES as SINK
from lamina.connectors.postgres.kind import check_names
from lamina.connectors.tables.options import KEYS, check_keys

if TYPE_CHECKING:
    from lamina.engine.ports import Table

REFRESH_US = 60_000_000
_LOGIN = ("host", "port", "database", "user", "password", "schema")
_PATIENCE = ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "lock_timeout")
_TABLE = DeclaredOption("table", "The table or view; write its name without quotes", required=True)
_REFRESH = DeclaredOption(
    "refresh",
    "Minimum time between two looks for a new version; by default 1 minute. If anything in the "
    "database has changed since the last one, all rows are read again",
    OptionType.INTERVAL,
)


def _open(context: TableContext) -> Table:
    from lamina.connectors.tables.postgres import PostgresReader  # noqa: PLC0415  an extra
    from lamina.connectors.tables.spooled import SpooledTable  # noqa: PLC0415  slow to import

    return SpooledTable(context, PostgresReader(context), refresh_us=REFRESH_US)


def _check(context: TableContext) -> None:
    check_keys(context)
    check_names(context.table, context.given)


def _options() -> tuple[DeclaredOption, ...]:
    known = {option.name: option for option in SINK.options}
    login, patience = (tuple(known[name] for name in names) for names in (_LOGIN, _PATIENCE))
    return (*login, _TABLE, KEYS, _REFRESH, *patience, known["answer_timeout"])


POSTGRES = TableKind(
    "postgres",
    "A table or view of PostgreSQL, read in one transaction; its version is a digest of its rows",
    open=_open,
    options=_options(),
    check=_check,
    extra=SINK.extra,
)
