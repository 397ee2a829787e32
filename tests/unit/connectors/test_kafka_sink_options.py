"""The options of a Kafka sink, and what a stream must be like: no broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.connectors.kafka.clients import client_settings
from lamina.connectors.kafka.layout import layout_of
from lamina.connectors.kafka.messages import Layout
from lamina.connectors.kinds import SinkContext
from lamina.connectors.opening import check_sink
from lamina.engine.ports import Change, Output
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink, Option
from tests.support.kafka import kafka_sink

SCHEMA = pa.schema([("Id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='p';"


def declared(options: dict[str, str], *, secret: bool = True) -> DeclaredSink:
    texts = {"kafka.bootstrap.servers": "h:1", "topic": "t", **options}
    written = {n: Option("${X}" if secret else v, v) for n, v in texts.items()}
    return DeclaredSink("out", "s", "kafka", written)


OVERWRITTEN = (
    "log_level",
    "auto.offset.reset",
    "fetch.wait.max.ms",
    "enable.partition.eof",
    "enable.auto.commit",
    "enable.auto.offset.store",
)
"""What the sink sets itself: it was taken, and ignored."""


def layout(output: Output, **options: str) -> Layout:
    sink = declared(options)
    unused: Any = None
    return layout_of(SinkContext(sink, check_sink(sink, Path()), unused, unused, output), output)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "a b"}, "topic 'a b'"),
        ({"topic": "t" * 240}, "mark_topic"),
        ({"topic": "."}, "topic '.'"),
        ({"mark_topic": "t"}, "one topic for rows and mark"),
        ({"format": "xml"}, "json, avro, raw"),
        ({"create_partitions": "0"}, "1 or more"),
        ({"timeout": "soon"}, "timeout"),
        ({"kafka.acks": "1"}, "its promise hangs on it"),
        ({"kafka.transactional.id": "x"}, "its promise hangs on it"),
        *(({f"kafka.{name}": "1"}, f"kafka.{name}") for name in OVERWRITTEN),
        ({"kafka.no.such.thing": "1"}, "No such configuration property"),
        ({"kafka.linger.ms": "soon"}, "Invalid value"),
        ({"kafka.transaction.timeout.ms": "1e4"}, "transaction.timeout.ms"),
        ({"kafka.value.serializer": "x"}, "class of Java's client"),
        ({"kafka.sasl.oauthbearer.config": "x"}, "not supported"),
        ({"kafka.security.protocol": "SASL_SSL"}, "does not say how"),
        ({"other": "1"}, "Known options"),
        ({"schema.registry.url": "http://r:1"}, "format 'avro'"),
        ({"format": "avro", "subject": "x"}, "without its url"),
        ({"format": "avro", "schema.registry.url": "r:8081"}, "schema.registry.url"),
        *(
            ({"format": "avro", "schema.registry.url": url}, "a name or a password")
            for url in ("http://u:pw@r:1", "http://:pw@r:1", "u:pw@r:1", "pw@r", "http:/u:pw@r")
        ),
    ],
)
def test_what_cannot_work_is_refused_with_advice(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadPipeline) as raised:
        check_sink(declared(options), Path())
    assert said in str(raised.value)
    assert "pw@" not in str(raised.value)


def test_an_address_out_of_a_variable_was_shown_with_its_password() -> None:
    for url, secret in (("u:pw@r:1", True), ("u:pw@r:1", False), ("reg pw", True)):
        options = {"format": "avro", "schema.registry.url": url}
        with pytest.raises(BadPipeline, match=r"schema\.registry\.url") as raised:
            check_sink(declared(options, secret=secret), Path())
        assert "pw" not in str(raised.value)


def test_a_password_in_plain_text_is_refused() -> None:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    with pytest.raises(BadPipeline, match="in plain text"):
        check_sink(declared({**login, "kafka.sasl.jaas.config": JAAS}, secret=False), Path())


def test_options_of_spark_and_of_librdkafka_are_translated_and_passed_on() -> None:
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.max.request.size": "2000000",
        "kafka.compression.type": "zstd",
    }
    sink = declared(options)
    assert client_settings(sink, check_sink(sink, Path())) == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "message.max.bytes": "2000000",
        "compression.type": "zstd",
    }


def test_keys_are_those_of_the_options_or_of_a_stream_that_replaces_rows() -> None:
    assert layout(Output(SCHEMA)).keys == ()
    assert layout(Output(SCHEMA), keys="ID, n").keys == ("Id", "n")
    assert layout(Output(SCHEMA, Change.UPSERT, ("Id",))).keys == ("Id",)
    assert layout(Output(SCHEMA, Change.CHANGES, ("Id", "n")), keys="name").keys == ("name",)


def test_columns_for_headers_partition_and_time_are_not_in_the_value() -> None:
    schema = SCHEMA.append(pa.field("ts", pa.timestamp("us", "UTC")))
    found = layout(Output(schema), headers="name", partition="N", timestamp="ts")
    assert found == Layout(("Id",), (), ("name",), "n", "ts")


@pytest.mark.parametrize(
    ("output", "options", "said"),
    [
        (Output(SCHEMA), {"keys": "nobody"}, "'nobody', which is not a column"),
        (Output(SCHEMA), {"headers": "x"}, "headers 'x'"),
        (Output(SCHEMA), {"partition": "name"}, "not a whole number"),
        (Output(SCHEMA), {"timestamp": "n"}, "not a timestamp"),
        (Output(SCHEMA), {"format": "raw"}, "one column `value`"),
        (Output(pa.schema([("value", pa.int64())])), {"format": "raw"}, "value int64"),
        (Output(SCHEMA, Change.UPSERT), {}, "no key columns"),
        (Output(SCHEMA, Change.CHANGES, ()), {}, "no key columns"),
        (Output(pa.schema([("d", pa.duration("us"))])), {}, "duration[us]"),
        (Output(pa.schema([("t", pa.list_(pa.time64("us")))])), {}, "time64[us]"),
        (Output(pa.schema([("m", pa.map_(pa.date32(), pa.int8()))])), {}, "MAP with keys of date"),
        (
            Output(pa.schema([pa.field("v", pa.struct([]), metadata={b"variant": b"true"})])),
            {},
            "VARIANT",
        ),
    ],
)
def test_a_stream_that_has_no_form_in_messages_is_refused_with_advice(
    output: Output, options: dict[str, str], said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        layout(output, **options)
    assert said in str(raised.value)
    assert raised.value.advice


def test_names_that_avro_does_not_know_are_refused_when_the_sink_is_opened() -> None:
    for schema in (
        pa.schema([("a-b", pa.int64())]),
        pa.schema([("s", pa.struct([("x y", pa.int64())]))]),
        pa.schema([("m", pa.map_(pa.int64(), pa.int64()))]),
    ):
        with pytest.raises(BadPipeline) as raised:
            kafka_sink("h:1", "t", Output(schema), format="avro")
        assert "json" in raised.value.advice


def test_raw_messages_take_their_key_from_the_column_key() -> None:
    schema = pa.schema([("key", pa.int64()), ("value", pa.binary()), ("h", pa.string())])
    found = layout(Output(schema), format="raw", headers="h")
    assert found == Layout(("value",), ("key",), ("h",), is_raw=True)
