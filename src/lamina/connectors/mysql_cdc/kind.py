"""What a pipeline may say about a table of MariaDB; nothing is connected yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.changes.checks import check_changes, check_types
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import (
    DeclaredOption,
    Extra,
    OptionType,
    SourceContext,
    SourceKind,
)
from lamina.connectors.options import bad_option

if TYPE_CHECKING:
    from lamina.connectors.spark_source import SparkSource

MAX_CHANGES, SERVER_ID = "max_changes", "server_id"
VERIFYING = ("verify_ca", "verify_identity")


def _open(context: SourceContext) -> SparkSource:
    from lamina.connectors.mysql_cdc.source import MySqlChanges  # noqa: PLC0415  an extra

    return MySqlChanges(context)


def _check(context: SourceContext) -> None:
    """BadPipeline if the columns or keys cannot be what the user means."""
    given = context.given
    if SERVER_ID in given.declared and given.number(SERVER_ID) >= 1 << 32:
        advice = "A number below 4294967296 that no other replica has"
        raise bad_option(context.source, "has a server_id that is too large", given.file, advice)
    _check_tls(context)
    check_changes(context)
    check_types(context, "MariaDB")


def _check_tls(context: SourceContext) -> None:
    given = context.given
    if given.text("ssl_key") and not given.text("ssl_cert"):
        advice = "Write ssl_cert, too: the certificate that the key is of"
        raise bad_option(context.source, "has ssl_key without ssl_cert", given.file, advice)
    mode = given.text("ssl_mode")
    if given.text("ssl_ca") and mode and mode not in VERIFYING:
        message = f"has ssl_ca, which ssl_mode '{mode}' does not look at"
        advice = f"Write ssl_mode '{VERIFYING[-1]}', or leave ssl_mode or ssl_ca out"
        raise bad_option(context.source, message, given.file, advice)


MYSQL_CDC = SourceKind(
    "mysql_cdc",
    "The rows of a MariaDB table, and then every change to them",
    open=_open,
    check=_check,
    changes=True,
    extra=Extra("mysql", ("pymysql", "pymysqlreplication")),
    options=(
        DeclaredOption("host", "Name or address of the server", default="localhost"),
        DeclaredOption("port", "Its port", OptionType.NUMBER, 3306),
        DeclaredOption("database", "Database of the table", required=True),
        DeclaredOption("table", "Table to read; write its name without quotes", required=True),
        DeclaredOption("user", "User to log in as", required=True),
        DeclaredOption("password", "Its password", OptionType.SECRET),
        DeclaredOption(
            "ssl_mode",
            "As in every client of MySQL; by default `verify_identity` with `ssl_ca`, and "
            "otherwise `preferred`, which checks nothing",
            choices=("disabled", "preferred", "required", *VERIFYING),
        ),
        DeclaredOption("ssl_ca", "File with the certificates of trusted authorities"),
        DeclaredOption("ssl_cert", "File with the certificate of the client"),
        DeclaredOption("ssl_key", "File with its private key"),
        DeclaredOption(
            KEYS.name,
            "Primary key of the table; it must be among the columns",
            OptionType.COLUMNS,
            required=True,
        ),
        DeclaredOption(
            SERVER_ID,
            "What the pipeline is called among the replicas of the server; by default a number "
            "made of the names of pipeline and source",
            OptionType.NUMBER,
        ),
        DeclaredOption(
            MAX_CHANGES,
            "Changes after which an epoch ends, with the transaction that has the last of them",
            OptionType.NUMBER,
            1_000_000,
        ),
        DeclaredOption(
            "connect_timeout",
            "How long to wait for a connection; by default 10 seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "answer_timeout",
            "How long the log may be silent while it is read; by default 60 seconds",
            OptionType.INTERVAL,
        ),
        DeclaredOption(
            "read_timeout",
            "How long the server may take for a look-up, or for the first rows of the snapshot; by "
            "default 30 minutes",
            OptionType.INTERVAL,
        ),
    ),
)
