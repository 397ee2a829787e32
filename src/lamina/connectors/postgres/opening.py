"""From the options of a pipeline to a sink; nothing is connected yet."""

from __future__ import annotations

from lamina.connectors.keyed import writing_of
from lamina.connectors.kinds import Given, SinkContext
from lamina.connectors.options import bad_option
from lamina.connectors.postgres.fitting import check_schema
from lamina.connectors.postgres.session import (
    ANSWER_TIMEOUT_MS,
    CONNECT_TIMEOUT_S,
    LOCK_TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    Server,
)
from lamina.connectors.postgres.sink import Place, PostgresSink

_SSL = ("sslmode", "sslrootcert", "sslcert", "sslkey")


def open_sink(context: SinkContext) -> PostgresSink:
    """BadPipeline if PostgreSQL cannot hold what the stream has."""
    given, sink, output = context.given, context.sink, context.output
    place = Place(
        given.text("schema") or "public", given.text("table"), given.switch("create_table")
    )
    if output is None:
        return PostgresSink(sink.name, server_of(given), place)
    writing = writing_of(context, output)
    for problem in check_schema(output.schema, writing.keys):
        raise bad_option(sink, "cannot take its stream", given.file, problem)
    return PostgresSink(sink.name, server_of(given), place, output=output, writing=writing)


def server_of(given: Given) -> Server:
    timeout = given.microseconds
    return Server(
        host=given.text("host"),
        port=given.number("port"),
        database=given.text("database"),
        user=given.text("user"),
        password=given.text("password"),
        ssl={name: given.text(name) for name in _SSL if given.text(name)},
        connect_timeout_s=_at_least(timeout("connect_timeout"), 1_000_000, CONNECT_TIMEOUT_S),
        lock_timeout_ms=_at_least(timeout("lock_timeout"), 1_000, LOCK_TIMEOUT_MS),
        answer_timeout_ms=_at_least(timeout("answer_timeout"), 1_000, ANSWER_TIMEOUT_MS),
        write_timeout_ms=_at_least(timeout("write_timeout"), 1_000, WRITE_TIMEOUT_MS),
    )


def _at_least(given_us: int | None, unit_us: int, default: int) -> int:
    """In whole units, rounded up: PostgreSQL takes 0 for no limit."""
    return default if given_us is None else -(-given_us // unit_us)
