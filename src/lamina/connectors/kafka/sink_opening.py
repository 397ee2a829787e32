"""From the options of a sink to the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lamina.connectors.kafka.clients import client_settings
from lamina.connectors.kafka.failures import Call, no_call
from lamina.connectors.kafka.layout import layout_of
from lamina.connectors.kafka.messages import Layout, json_values, raw_values
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.security import SERVERS
from lamina.connectors.kafka.sink import NO_LAYOUT, KafkaSink, Values
from lamina.connectors.kafka.sink_kind import KAFKA, TOPIC, mark_topic
from lamina.connectors.kafka.sink_values import AvroValues, PlainValues
from lamina.connectors.kafka.topics import Place
from lamina.connectors.options import bad_option
from lamina.engine.ports import Output
from lamina.errors import Refused

if TYPE_CHECKING:
    from lamina.connectors.kinds import Given, SinkContext

TIMEOUT_US = 30_000_000


def open_sink(context: SinkContext, *, call: Call = no_call) -> KafkaSink:
    """Nothing is asked yet; *call* is told of every call that reaches a broker."""
    given, output = context.given, context.output
    layout = NO_LAYOUT if output is None else layout_of(context, output)
    return KafkaSink(
        context.sink.name,
        _place(given),
        client_settings(context.sink, given),
        layout=layout,
        values=_values(context, output, layout),
        delivery=KAFKA.delivery,
        call=call,
    )


def _place(given: Given) -> Place:
    return Place(
        servers=given.text(SERVERS),
        topic=given.text(TOPIC),
        mark_topic=mark_topic(given),
        timeout_s=_timeout_s(given),
        create_partitions=given.number("create_partitions")
        if "create_partitions" in given.declared
        else 0,
        replication=given.number("replication") if "replication" in given.declared else -1,
    )


def _values(context: SinkContext, output: Output | None, layout: Layout) -> Values:
    given = context.given
    if output is None or given.text("format") != "avro":
        return PlainValues(raw_values if given.text("format") == "raw" else json_values)
    url = given.text("schema.registry.url")
    user = given.text("schema.registry.basic.auth.user.info")
    registry = SchemaRegistry(url, user, _timeout_s(given)) if url else None
    subject = given.text("subject") or f"{given.text(TOPIC)}-value"
    columns = _schema_of(output, layout)
    try:
        return AvroValues(columns, subject, registry)
    except Refused as error:
        raise bad_option(context.sink, error.message, given.file, error.advice) from error


def _schema_of(output: Output, layout: Layout) -> pa.Schema:
    return pa.schema([output.schema.field(name) for name in layout.values])


def _timeout_s(given: Given) -> float:
    return (given.microseconds("timeout") or TIMEOUT_US) / 1_000_000
