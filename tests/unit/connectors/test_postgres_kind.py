"""What a pipeline says about a PostgreSQL sink, before anybody is asked: no server is needed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.kinds import SinkContext
from lamina.connectors.opening import check_sink
from lamina.connectors.postgres.errors import typed_error
from lamina.connectors.postgres.opening import open_sink, server_of
from lamina.connectors.postgres.sink import PostgresSink
from lamina.engine.ports import Change, Output
from lamina.errors import (
    AccessDenied,
    BadPipeline,
    LaminaError,
    NotFound,
    Refused,
    StoreUnavailable,
)
from lamina.pipeline.model import DeclaredSink, Option
from lamina.workspace.notes import LocalNotes

LOGIN = {"database": "d", "user": "u", "table": "t"}
KV = pa.schema([("k", pa.string()), ("v", pa.int64())])


def declared(**options: str) -> DeclaredSink:
    written = {name: Option.plain(value) for name, value in {**LOGIN, **options}.items()}
    return DeclaredSink("o", "n", "postgres", written)


def opened(output: Output | None, **options: str) -> PostgresSink:
    sink, here = declared(**options), Path()
    given = check_sink(sink, here)
    return open_sink(SinkContext(sink, given, LocalNotes(here), StringIO(), output))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": ""}, "has no table"),
        ({"user": ""}, "has no user"),
        ({"database": ""}, "has no database"),
        ({"table": "sales.orders"}, "schema 'sales', table 'orders'"),
        ({"table": "lamina_sinks"}, "would write into lamina_sinks"),
        ({"table": "t" * 64}, "cannot be a name"),
        ({"schema": "é" * 32}, "cannot be a name"),
        ({"password": "in the file"}, "in plain text"),
        ({"port": "http"}, "port 'http'"),
        ({"sslmode": "maybe"}, "verify-full"),
        ({"mode": "merge"}, "append, upsert"),
        ({"lock_timeout": "soon"}, "lock_timeout 'soon'"),
        ({"create_table": "perhaps"}, "true or false"),
        ({"passwort": "x"}, "which is not known"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_with_what_to_write(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        check_sink(declared(**options), Path())
    assert said in str(raised.value)


def test_a_name_with_a_dot_is_one_name_if_the_schema_is_given() -> None:
    given = check_sink(declared(table="sales.orders", schema="public"), Path())
    assert given.text("table") == "sales.orders"


def test_options_become_what_libpq_takes_and_the_password_is_not_shown() -> None:
    sink = declared(host="h", port="1", sslmode="verify-full", sslrootcert="/a b/root.crt")
    sink.options["password"] = Option("${SECRET}", "it's \\ one")  # type: ignore[index]
    sink.options["lock_timeout"] = Option.plain("1500 milliseconds")  # type: ignore[index]
    sink.options["connect_timeout"] = Option.plain("INTERVAL 2 minutes")  # type: ignore[index]
    sink.options["answer_timeout"] = Option.plain("2 seconds")  # type: ignore[index]
    sink.options["write_timeout"] = Option.plain("1 hour")  # type: ignore[index]
    server = server_of(check_sink(sink, Path()))
    text = server.conninfo("lamina o")
    assert r"password='it\'s \\ one'" in text
    assert "sslrootcert='/a b/root.crt'" in text
    assert "sslmode='verify-full'" in text
    assert "connect_timeout='120'" in text
    assert (server.lock_timeout_ms, server.statement_timeout_ms) == (1500, 3500)
    assert server.write_timeout_ms == 3_600_000
    assert "secret" not in repr(server)
    assert "it's" not in repr(server)
    assert server.url == "postgresql://u@h:1/d"


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.struct([("a", pa.int64())]), "to_json(x) AS x"),
        (pa.map_(pa.string(), pa.int64()), "to_json(x) AS x"),
        (pa.list_(pa.list_(pa.int64())), "to_json(x) AS x"),
        (pa.null(), "CAST x to a type"),
        (pa.month_day_nano_interval(), "CAST x to a type"),
        (pa.uint64(), "CAST x to a type"),
        (pa.timestamp("ns", "UTC"), "CAST x to a type"),
    ],
)
def test_a_column_without_a_type_in_postgresql_is_refused_when_the_sink_is_opened(
    kind: pa.DataType, advice: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        opened(Output(pa.schema([("x", kind)])))
    assert advice in raised.value.advice


def test_a_list_is_not_a_key() -> None:
    lists = pa.schema([("x", pa.list_(pa.int64())), ("v", pa.int64())])
    opened(Output(lists))
    with pytest.raises(BadPipeline) as raised:
        opened(Output(lists, Change.UPSERT, ("x",)))
    assert "'x' is a key" in raised.value.advice
    assert "to_json(x) AS x" in raised.value.advice


def test_a_column_name_that_postgresql_would_cut_is_refused() -> None:
    with pytest.raises(BadPipeline, match="63 bytes"):
        opened(Output(pa.schema([("x" * 64, pa.int64())])))


def test_a_stream_that_deletes_cannot_be_appended_and_one_without_keys_not_replaced() -> None:
    with pytest.raises(BadPipeline, match="a stream that deletes some"):
        opened(Output(KV, Change.CHANGES, ("k",)), mode="append")
    with pytest.raises(BadPipeline, match="has no key columns"):
        opened(Output(KV, Change.UPSERT))
    assert opened(Output(KV, Change.CHANGES, ("k",))).takes == frozenset(Change)
    opened(Output(KV, Change.UPSERT), keys="K")
    opened(None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('Failed to connect: FATAL: password authentication failed for user "u"', AccessDenied),
        ("Failed to connect: fe_sendauth: no password supplied", AccessDenied),
        ('Failed to connect: FATAL: no pg_hba.conf entry for host "h"', AccessDenied),
        ("Failed to connect: SSL error: certificate verify failed", AccessDenied),
        ('Failed to connect: FATAL: database "d" does not exist', NotFound),
        ("Failed to connect: FATAL: the database system is starting up", StoreUnavailable),
        ("Failed to connect: Connection timed out", StoreUnavailable),
        ("server closed the connection unexpectedly\nQuery was: SELECT 1", StoreUnavailable),
    ],
)
def test_what_libpq_says_without_a_state_is_told_apart(text: str, kind: type[LaminaError]) -> None:
    error = typed_error(Said(text), "the table", call="look")
    assert type(error) is kind
    assert "Query was" not in error.message
    assert error.where == "the table"


class Said(Exception):
    """An error of the driver's, as far as we look at it."""

    sqlstate: str | None = None
    details: tuple[tuple[str, bytes], ...] = ()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("08006", StoreUnavailable), ("57P01", StoreUnavailable), ("99999", Refused)],
)
def test_a_state_decides_by_its_class(state: str, kind: type[LaminaError]) -> None:
    said = Said("long")
    said.sqlstate = state
    said.details = (("PG_DIAG_MESSAGE_PRIMARY", b"why"), ("PG_DIAG_MESSAGE_DETAIL", b"x" * 999))
    error = typed_error(said, "w", call="insert the rows")
    assert type(error) is kind
    assert error.message.startswith("PostgreSQL refused to insert the rows: why; xxx")
    assert len(error.message) < 400
