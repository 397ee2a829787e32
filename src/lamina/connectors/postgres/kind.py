"""What a pipeline may say about a PostgreSQL sink; the driver is imported when one is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.keyed_options import KEYS, MODE, ORDER_BY
from lamina.connectors.kinds import (
    DeclaredOption,
    Extra,
    Given,
    OptionType,
    SinkContext,
    SinkKind,
)
from lamina.connectors.options import Declared, bad_option
from lamina.pipeline.model import DeclaredSink

if TYPE_CHECKING:
    from lamina.engine.ports import Sink

DELIVERY = "exactly once; the rows of an epoch and its mark are one transaction"
MARKS = "lamina_sinks"
"""The table with the marks, in the schema of the target."""
NAME_BYTES_MAX = 63
"""PostgreSQL cuts what is longer, silently."""


def _open(context: SinkContext) -> Sink:
    from lamina.connectors.postgres.opening import open_sink  # noqa: PLC0415  an extra

    return open_sink(context)


def check_names(of: Declared, given: Given) -> None:
    """BadPipeline if a name cannot be what the user means."""
    for option in ("table", "schema"):
        name = given.text(option)
        if "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
            message = f"has a {option} that cannot be a name: {name!r}"
            raise bad_option(of, message, given.file, f"At most {NAME_BYTES_MAX} bytes, no NUL")
    table = given.text("table")
    if "." in table and not given.text("schema"):
        schema, _, rest = table.partition(".")
        message = f"has the table {table!r}: a schema and a table, or a name with a dot?"
        advice = f"Write schema '{schema}', table '{rest}'; or schema 'public', table '{table}'"
        raise bad_option(of, message, given.file, advice)


def _check(sink: DeclaredSink, given: Given) -> None:
    check_names(sink, given)
    if given.text("table") == MARKS:
        advice = "That table holds the marks of sinks: use another one"
        raise bad_option(sink, f"would write into {MARKS}", given.file, advice)


POSTGRES = SinkKind(
    "postgres",
    "Rows of a PostgreSQL table",
    open=_open,
    check=_check,
    delivery=DELIVERY,
    extra=Extra("postgres", ("adbc_driver_manager", "adbc_driver_postgresql")),
    options=(
        DeclaredOption(
            "host",
            "Name or address of the server; with several, separated by commas, the first that "
            "takes writes",
            default="localhost",
        ),
        DeclaredOption("port", "Its port", OptionType.NUMBER, 5432),
        DeclaredOption("database", "Database", required=True),
        DeclaredOption("user", "Role to log in as", required=True),
        DeclaredOption(
            "password",
            "Its password; without one, whatever the server and `~/.pgpass` allow",
            OptionType.SECRET,
        ),
        DeclaredOption("schema", "Schema of the table; by default `public`"),
        DeclaredOption("table", "Table for the rows; write its name without quotes", required=True),
        DeclaredOption(
            "create_table",
            "Whether to create a missing table, with the columns of the stream",
            OptionType.SWITCH,
            default=True,
        ),
        MODE,
        KEYS,
        ORDER_BY,
        DeclaredOption(
            "sslmode",
            "As in every PostgreSQL client",
            default="prefer",
            choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        ),
        DeclaredOption("sslrootcert", "File with the certificates of trusted authorities"),
        DeclaredOption("sslcert", "File with the certificate of the client"),
        DeclaredOption("sslkey", "File with its private key"),
        DeclaredOption(
            "connect_timeout",
            "How long to wait for a connection; by default 10 seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "lock_timeout",
            "How long to wait for a lock that another session holds; by default 30 seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "answer_timeout",
            "How long the server may take for a look-up or the next rows of a COPY, beside "
            "`lock_timeout`; by default 60 seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "write_timeout",
            "How long the server may take to write the rows of an epoch; by default 30 minutes",
            OptionType.INTERVAL,
        ),
    ),
)
