"""What a pipeline may say about a table whose changes are read; nothing is connected yet."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from lamina.connectors.changes.checks import check_changes, check_types
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import (
    DeclaredOption,
    OptionType,
    SourceContext,
    SourceKind,
)
from lamina.connectors.options import bad_option
from lamina.connectors.postgres.kind import NAME_BYTES_MAX, POSTGRES, check_names

if TYPE_CHECKING:
    from lamina.connectors.spark_source import SparkSource

MAX_CHANGES = "max_changes"
REMEMBER_ROWS = "remember_rows"
_SHARED = (
    "port",
    "database",
    "user",
    "password",
    "schema",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "lock_timeout",
)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


def slot_of(context: SourceContext) -> str:
    """The option, or a name made of those of the pipeline and the source."""
    given = context.given.text("slot")
    if given:
        return given
    plain = f"lamina_{context.pipeline}_{context.source.name}"
    name = re.sub(r"[^a-z0-9_]", "_", plain.lower())
    if name == plain and len(name) <= NAME_BYTES_MAX:
        return name
    return f"{name[:54]}_{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def _open(context: SourceContext) -> SparkSource:
    from lamina.connectors.postgres_cdc.source import PostgresChanges  # noqa: PLC0415  an extra

    return PostgresChanges(context)


def _check(context: SourceContext) -> None:
    """BadPipeline if the columns, keys or names cannot be what the user means."""
    source, given = context.source, context.given
    check_names(source, given)
    slot = given.text("slot")
    if slot and not _SLOT.fullmatch(slot):
        advice = "At most 63 lower-case letters, digits and underscores"
        raise bad_option(source, f"has the slot {slot!r}", given.file, advice)
    check_changes(context)
    check_types(context, "PostgreSQL")


POSTGRES_CDC = SourceKind(
    "postgres_cdc",
    "The rows of a PostgreSQL table, and then every change to them",
    open=_open,
    check=_check,
    changes=True,
    extra=POSTGRES.extra,
    options=(
        DeclaredOption("host", "Name or address of the server", default="localhost"),
        *(each for each in POSTGRES.options if each.name in _SHARED[:5]),
        DeclaredOption("table", "Table to read; write its name without quotes", required=True),
        DeclaredOption("publication", "Publication that the table is in", required=True),
        DeclaredOption(
            KEYS.name,
            "Primary key of the table; it must be among the columns",
            OptionType.COLUMNS,
            required=True,
        ),
        DeclaredOption(
            "slot",
            "Replication slot; it is made when the pipeline starts for the first time. By default "
            "named after pipeline and source",
        ),
        DeclaredOption(
            MAX_CHANGES,
            "Changes after which an epoch ends, with the transaction that has the last of them",
            OptionType.NUMBER,
            1_000_000,
        ),
        DeclaredOption(
            REMEMBER_ROWS,
            "Keep a copy of the table in the state: then TRUNCATE, REPLICA IDENTITY DEFAULT, lost "
            "slots and failovers are no problem. From the first start on",
            OptionType.SWITCH,
            default=False,
        ),
        *(each for each in POSTGRES.options if each.name in _SHARED[5:]),
        DeclaredOption(
            "answer_timeout",
            "How long the server may take for a look-up, beside `lock_timeout`; by default 60 "
            "seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "read_timeout",
            "How long the server may take to give the snapshot, or the changes of an epoch; by "
            "default 30 minutes",
            OptionType.INTERVAL,
        ),
    ),
)
