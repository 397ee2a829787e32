"""The kind `kafka` of sinks: its options, and what can be checked without a broker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lamina.connectors.kafka.clients import check_known, client_settings
from lamina.connectors.kafka.security import PREFIX, SERVERS, check_registry_url
from lamina.connectors.kinds import (
    DeclaredOption,
    Extra,
    Given,
    OptionType,
    SinkContext,
    SinkKind,
)
from lamina.connectors.options import bad_option
from lamina.pipeline.model import DeclaredSink

if TYPE_CHECKING:
    from lamina.connectors.kafka.sink import KafkaSink

TOPIC, MARK_TOPIC = "topic", "mark_topic"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OPTIONS = (
    DeclaredOption(SERVERS, "Brokers to ask first: `host:port`, with commas", required=True),
    DeclaredOption(TOPIC, "Topic that gets the rows", required=True),
    DeclaredOption(
        "format",
        "Of values: `json`, `avro` or `raw`",
        default="json",
        choices=("json", "avro", "raw"),
    ),
    DeclaredOption(
        "keys",
        "Columns of the message key: one as plain text, several as a JSON object. By default, the "
        "keys of a stream that replaces rows; else there is no key",
        OptionType.COLUMNS,
    ),
    DeclaredOption(
        "headers", "Columns that are sent as headers, and not in the value", OptionType.COLUMNS
    ),
    DeclaredOption("partition", "Column with the number of the partition; not in the value"),
    DeclaredOption("timestamp", "Column with the time of the message; not in the value"),
    DeclaredOption(
        "create_partitions",
        "Create a missing topic, with so many partitions; without it, that is an error",
        OptionType.NUMBER,
    ),
    DeclaredOption(
        "replication",
        "Replicas of topics that are created; by default, what the brokers say",
        OptionType.NUMBER,
    ),
    DeclaredOption(
        MARK_TOPIC, "Topic for the mark, created if missing; by default TOPIC-lamina-mark"
    ),
    DeclaredOption("schema.registry.url", "Schema Registry for `avro`: values have its framing"),
    DeclaredOption(
        "schema.registry.basic.auth.user.info",
        "`name:password` for the Schema Registry",
        OptionType.SECRET,
    ),
    DeclaredOption("subject", "Name of the schema in the registry; by default TOPIC-value"),
    DeclaredOption(
        "timeout",
        "How long one call waits for the brokers; by default 30 seconds",
        OptionType.INTERVAL,
    ),
)


def check(sink: DeclaredSink, given: Given) -> None:
    """BadPipeline for what cannot work; no broker is asked."""
    _check_topic(sink, given, TOPIC, given.text(TOPIC))
    _check_topic(sink, given, MARK_TOPIC, mark_topic(given))
    if mark_topic(given) == given.text(TOPIC):
        message = "has one topic for rows and mark"
        raise bad_option(sink, message, given.file, "Leave out mark_topic, or name another")
    _check_registry(sink, given)
    settings = client_settings(sink, given)
    check_known(sink, settings, given)
    for name in ("transaction.timeout.ms", "message.max.bytes", "batch.size"):
        if not settings.get(name, "1").isdecimal():
            message = f"has the {PREFIX}{name} {settings[name]!r}"
            raise bad_option(sink, message, given.file, "It must be a whole number")


def mark_topic(given: Given) -> str:
    return given.text(MARK_TOPIC) or f"{given.text(TOPIC)}-lamina-mark"


def _check_topic(sink: DeclaredSink, given: Given, option: str, name: str) -> None:
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        message = f"has the {option} {name!r}"
        advice = "A topic's name has letters of English, digits, . _ and -, at most 249 of them"
        raise bad_option(sink, message, given.file, advice)


def _check_registry(sink: DeclaredSink, given: Given) -> None:
    of_registry = [name for name in given.declared if name.startswith("schema.registry.")]
    if given.text("format") != "avro" and (of_registry or given.text("subject")):
        message = f"has a Schema Registry, and the format {given.text('format')}"
        raise bad_option(sink, message, given.file, "Write format 'avro'")
    url = given.text("schema.registry.url")
    if (of_registry or given.text("subject")) and not url:
        message = "has settings of a Schema Registry without its url"
        raise bad_option(sink, message, given.file, "Write schema.registry.url 'http://host:8081'")
    check_registry_url(sink, given.file)


def _open(context: SinkContext) -> KafkaSink:
    from lamina.connectors.kafka.sink_opening import open_sink  # noqa: PLC0415  an extra

    return open_sink(context)


KAFKA = SinkKind(
    "kafka",
    "A Kafka topic; the rows of an epoch and the mark are one transaction",
    open=_open,
    delivery="exactly once, for readers with isolation.level=read_committed",
    options=_OPTIONS,
    check=check,
    further="Settings of Kafka's client, with `kafka.` before their names, are passed on",
    further_prefix=PREFIX,
    extra=Extra("kafka", ("confluent_kafka", "fastavro")),
)
