"""The kind of source that is Kafka: its options, which carry Spark's names, and their checks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lamina.connectors.kafka.debezium_kind import (
    DEBEZIUM,
    DEBEZIUM_AVRO,
    check_debezium,
    is_debezium,
)
from lamina.connectors.kafka.planning import EARLIEST, GIVEN, LATEST, Part, Starting
from lamina.connectors.kafka.security import (
    NAMES,
    PREFIX,
    REGISTRY,
    REGISTRY_LOGIN,
    SERVERS,
    check_registry_url,
    check_security,
    unknown_setting,
)
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import (
    BAD_ROWS_PATH,
    DeclaredOption,
    Extra,
    Given,
    OptionType,
    SourceContext,
    SourceKind,
)
from lamina.connectors.options import bad_option, option_of
from lamina.connectors.reader_options import READER_OPTIONS, check_value
from lamina.errors import BadPipeline
from lamina.pipeline.model import Column
from lamina.pipeline.tokens import did_you_mean

if TYPE_CHECKING:
    from lamina.connectors.spark_source import SparkSource

SUBSCRIBE, ASSIGN, PATTERN = "subscribe", "assign", "subscribePattern"
STARTING = "startingOffsets"
MIN_PARTITIONS, MAX_OFFSETS = "minPartitions", "maxOffsetsPerTrigger"
FORMAT, AVRO_SCHEMA = "format", "avroSchema"
IDLE_AFTER, COMPACTED, FAIL_ON_LOSS = "idle_after", "compacted", "failOnDataLoss"
FORMATS = ("json", "csv", "avro", "raw", *DEBEZIUM)
METADATA: Mapping[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "offset": ("bigint",),
    "timestamp": ("timestamp", "timestamp_ltz"),
    "timestampType": ("int",),
}
TUNING = tuple(
    f"{PREFIX}{name}"
    for name in (
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "max.poll.records",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
    )
)
"""Settings of the consumers in Spark's executors, which no result depends on."""
_NOT_OF_MESSAGES = {
    *("multiline", "linesep", "encoding", "charset", "compression", "header", "enforceschema"),
    *("inputbuffersize", "maxcolumns"),
}
_ENDS = "An epoch ends where the topic ends, or at maxOffsetsPerTrigger: leave it out"
_BEGINS = "Write startingOffsets 'earliest', 'latest' or JSON with offsets"
_OURS = "Lamina sets it: leave it out"
_REFUSED = {
    "endingoffsets": _ENDS,
    "endingtimestamp": _ENDS,
    "endingoffsetsbytimestamp": _ENDS,
    "startingtimestamp": _BEGINS,
    "startingoffsetsbytimestamp": _BEGINS,
    "startingoffsetsbytimestampstrategy": _BEGINS,
    "includeheaders": "Name a column: h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM "
    "'headers'",
    "groupidprefix": _OURS,
    "kafka.group.id": _OURS,
    "kafka.isolation.level": "Only committed rows are read: leave it out",
    "kafka.auto.offset.reset": "An offset that is gone stops the pipeline: leave it out",
    "kafka.enable.auto.commit": "Offsets are in the log of the pipeline: leave it out",
    "kafka.key.deserializer": _OURS,
    "kafka.value.deserializer": _OURS,
    "kafka.interceptor.classes": _OURS,
    "maxtriggerdelay": "`lamina run --interval` is the least time between epochs",
    "minoffsetspertrigger": "`lamina run --interval` is the least time between epochs",
    "maxrecordsperpartition": "Write minPartitions: more tasks with fewer rows each",
}


def check(context: SourceContext) -> None:
    """BadPipeline at the first thing that would not work; nothing is looked at."""
    given = context.given
    _check_topics(context)
    starting_of(context)
    if not given.switch(FAIL_ON_LOSS):
        raise _bad(
            context,
            "has failOnDataLoss 'false'",
            "Lost rows always stop the pipeline; `lamina run --skip-lost` then goes on once",
        )
    _check_further(context)
    _check_format(context)
    if IDLE_AFTER in given.declared and context.source.watermark is None:
        raise _bad(
            context,
            f"has {IDLE_AFTER}, and no watermark that a partition could hold",
            "Give it a WATERMARK column DELAY OF INTERVAL n unit, or leave the option out",
        )


def _check_topics(context: SourceContext) -> None:
    given = context.given
    ways = [name for name in (SUBSCRIBE, ASSIGN, PATTERN) if given.text(name).strip()]
    if len(ways) != 1:
        found = " and ".join(ways) or "no topic"
        advice = f"Write one of {SUBSCRIBE} 'a,b', {PATTERN} 'a.*' and {ASSIGN} '{{\"a\":[0,1]}}'"
        raise _bad(context, f"names {found}", advice)
    if ways == [PATTERN]:
        try:
            re.compile(given.text(PATTERN))
        except re.error as error:
            written = _written(context, PATTERN)
            raise _bad(context, f"has the {PATTERN} {written!r}: {error}", "Repair it") from error
    if ways == [ASSIGN]:
        assigned_of(context)


def subscribed(given: Given) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(str.strip, given.text(SUBSCRIBE).split(",")))))


def assigned_of(context: SourceContext) -> frozenset[Part]:
    """The partitions of `assign`; none if it is not there."""
    text = context.given.text(ASSIGN)
    if not text.strip():
        return frozenset()
    found = _json(text)
    well = isinstance(found, dict) and all(
        isinstance(numbers, list) and numbers and all(_is_number(each) for each in numbers)
        for numbers in found.values()
    )
    if not well or not found:
        advice = f"Write {ASSIGN} '{{\"topic\":[0,1]}}'"
        raise _bad(context, f"has the {ASSIGN} {_written(context, ASSIGN)!r}", advice)
    assert isinstance(found, dict)
    return frozenset((topic, number) for topic, numbers in found.items() for number in numbers)


def starting_of(context: SourceContext) -> Starting:
    """`startingOffsets`: a word, or JSON as Spark has it."""
    text = context.given.text(STARTING).strip()
    if text.lower() in (EARLIEST, LATEST):
        return Starting(text.lower())
    found = _json(text)
    well = isinstance(found, dict) and all(
        isinstance(offsets, dict)
        and all(number.isdecimal() and _is_number(at, -2) for number, at in offsets.items())
        for offsets in found.values()
    )
    if not well:
        advice = f"Write '{EARLIEST}', '{LATEST}' or '{{\"topic\":{{\"0\":23,\"1\":-2}}}}'"
        raise _bad(context, f"has the {STARTING} {_written(context, STARTING)!r}", advice)
    assert isinstance(found, dict)
    places = {(t, int(number)): at for t, each in found.items() for number, at in each.items()}
    return Starting(GIVEN, places)


def _is_number(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def client_settings(given: Given) -> dict[str, str]:
    """The settings of Kafka's client, with their prefix."""
    return {name: value for name, value in given.further.items() if name.startswith(PREFIX)}


def reader_settings(given: Given) -> dict[str, str]:
    """The options of Spark's JSON or CSV reader, by their names in lower case."""
    return {name: value for name, value in given.further.items() if not name.startswith(PREFIX)}


def _check_further(context: SourceContext) -> None:
    given, source = context.given, context.source
    for name in client_settings(given):
        if name not in (*NAMES, *TUNING):
            raise unknown_setting(source, name, (SERVERS, *NAMES, *TUNING), given.file)
    check_security(source, _security(given), given.file)
    format_ = given.text(FORMAT)
    known = {
        name.lower(): (name, values)
        for name, values in READER_OPTIONS.get(format_, {}).items()
        if name.lower() not in _NOT_OF_MESSAGES
    }
    for name, value in reader_settings(given).items():
        if name not in known:
            names = [*(option.name for option in OPTIONS), *(each for each, _ in known.values())]
            message = f"has the option {name!r}, which is not known for the format {format_}"
            advice = did_you_mean(name, names) or f"Known options: {', '.join(names)}, {PREFIX}*"
            raise _bad(context, message, advice)
        check_value(context, *known[name], value)


def _security(given: Given) -> dict[str, str]:
    return {name: value for name, value in client_settings(given).items() if name in NAMES}


def value_columns(context: SourceContext) -> tuple[Column, ...]:
    """Those that come from the value of a record."""
    return tuple(column for column in context.source.columns if not column.metadata)


def _check_format(context: SourceContext) -> None:
    given, columns = context.given, value_columns(context)
    format_ = given.text(FORMAT)
    if format_ == "raw":
        types = [column.type.upper().removesuffix("NOT NULL").strip() for column in columns]
        if len(columns) > 1 or any(each not in ("BINARY", "STRING") for each in types):
            message = "has the format raw, and other columns than one of type BINARY or STRING"
            advice = "Name one column for the value; others are METADATA FROM 'key' and the like"
            raise _bad(context, message, advice)
    ways = [name for name in (AVRO_SCHEMA, REGISTRY) if given.text(name)]
    if format_ == "avro" and len(ways) != 1:
        message = f"has the format avro, and {' and '.join(ways) or 'no schema'}"
        advice = f"Write {AVRO_SCHEMA} '...' for plain Avro, or {REGISTRY} for framed Avro"
        raise _bad(context, message, advice)
    if format_ == DEBEZIUM_AVRO and ways != [REGISTRY]:
        message = f"has the format {format_}, and {' and '.join(ways) or 'no registry'}"
        raise _bad(context, message, f"Write {REGISTRY} '...'")
    if format_ not in ("avro", DEBEZIUM_AVRO) and (ways or given.text(REGISTRY_LOGIN)):
        message = f"has {(ways or [REGISTRY_LOGIN])[0]}, and the format {format_}"
        raise _bad(context, message, f"Write {FORMAT} 'avro', or leave it out")
    if given.text(AVRO_SCHEMA) and not isinstance(_json(given.text(AVRO_SCHEMA)), dict):
        raise _bad(context, f"has an {AVRO_SCHEMA} that is not a record in JSON", "Repair it")
    check_registry_url(context.source, given.file)
    check_debezium(context)


def _bad(context: SourceContext, message: str, advice: str) -> BadPipeline:
    return bad_option(context.source, message, context.given.file, advice)


def _written(context: SourceContext, name: str) -> str:
    option = option_of(context.source, name)
    return option.written if option else ""


def _jars(given: Given) -> tuple[str, ...]:
    avro = ("spark-avro",) if given.text(FORMAT) in ("avro", DEBEZIUM_AVRO) else ()
    return ("spark-sql-kafka-0-10", *avro)


def _open(context: SourceContext) -> SparkSource:
    from lamina.connectors.kafka.source import KafkaSource  # noqa: PLC0415  an extra

    return KafkaSource(context)


OPTIONS = (
    DeclaredOption(SERVERS, "Brokers to begin with, `host:port,host:port`", required=True),
    DeclaredOption(SUBSCRIBE, "Topics to read, `a,b`"),
    DeclaredOption(PATTERN, "Topics to read, as a regular expression; new ones are found"),
    DeclaredOption(ASSIGN, 'Partitions to read, `{"a":[0,1]}`'),
    DeclaredOption(
        STARTING, "Where a new pipeline begins: `earliest`, `latest` or JSON", default=EARLIEST
    ),
    DeclaredOption(MIN_PARTITIONS, "Least number of Spark tasks that read", OptionType.NUMBER),
    DeclaredOption(
        MAX_OFFSETS, "Most offsets that one epoch reads, of all partitions", OptionType.NUMBER
    ),
    DeclaredOption(
        FORMAT,
        "`json`, `csv`, `avro` or `raw`; `debezium-json` or `debezium-avro`: changes of a table",
        default="json",
        choices=FORMATS,
    ),
    DeclaredOption(
        KEYS.name,
        "Primary key of the table, with the formats of Debezium",
        OptionType.COLUMNS,
    ),
    DeclaredOption(AVRO_SCHEMA, "Schema of plain Avro values, in JSON"),
    DeclaredOption(REGISTRY, "Schema Registry of framed Avro values"),
    DeclaredOption(REGISTRY_LOGIN, "Its login, `user:password`", OptionType.SECRET),
    DeclaredOption(
        BAD_ROWS_PATH, "Folder for records that cannot be read, see Bad rows", OptionType.OUTPUT
    ),
    DeclaredOption(
        IDLE_AFTER,
        "The slowest partition holds the watermark, unless it was silent this long",
        OptionType.INTERVAL,
    ),
    DeclaredOption(
        COMPACTED, "Read compacted topics, which cannot be read again alike", OptionType.SWITCH
    ),
    DeclaredOption(
        FAIL_ON_LOSS, "Lost rows stop the pipeline, always", OptionType.SWITCH, default=True
    ),
)
KAFKA = SourceKind(
    "kafka",
    "Topics of Apache Kafka; committed records only",
    open=_open,
    options=OPTIONS,
    check=check,
    refused=_REFUSED,
    further="Security and consumer settings (`kafka.*`), and options of Spark's JSON and CSV "
    "readers, see [connectors.md](connectors.md#kafka-source)",
    extra=Extra("kafka", ("confluent_kafka",)),
    metadata=METADATA,
    bad_rows="topic STRING, partition INT, offset BIGINT, key BINARY, bytes BINARY",
    has_parts=True,
    skips_lost=True,
    by_key=is_debezium,
    jars=_jars,
)
