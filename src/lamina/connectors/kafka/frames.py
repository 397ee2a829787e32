"""The records of an epoch as a DataFrame, by Spark's batch reader over exact offsets.

A value is parsed once for each record, in a projection that Spark takes for not deterministic: it
would move the parsing into every filter above it otherwise, and might leave out columns that a
query does not need. Whether a record counts must not depend on who asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.file_frames import ddl
from lamina.connectors.kafka.avro import FramedAvro, PlainAvro
from lamina.connectors.kafka.planning import Part, Slice
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.security import PREFIX, REGISTRY, REGISTRY_LOGIN, SERVERS
from lamina.connectors.kafka.source_kind import (
    AVRO_SCHEMA,
    FORMAT,
    KAFKA,
    MIN_PARTITIONS,
    client_settings,
    reader_settings,
    value_columns,
)
from lamina.connectors.kafka.values import (
    UNREADABLE,
    VALUE,
    CsvValues,
    JsonValues,
    RawValues,
    Values,
    bare_type,
)
from lamina.connectors.kinds import BAD_ROWS_PATH, SourceContext
from lamina.connectors.spark_source import PART
from lamina.errors import LaminaError
from lamina.pipeline.model import Column as Definition

PARSED = "_lamina_row"
PLACES = ("topic", "partition", "offset")
FETCH_WAIT_MS = "10"


class KafkaFrames:
    """The records of a source's topics."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._keeps_bad_rows = BAD_ROWS_PATH in context.given.declared
        # Executors keep consumers by the name of a group; with Spark's own, new ones each epoch.
        # For one name they allow one set of settings, and print both if another one comes: a run
        # after a changed password must have a name of its own.
        run = new_writer_id(SystemClock())
        self._group = f"lamina-{context.pipeline}-{context.source.name}-{run}"
        self._parts: dict[int, Column] = {}
        self._reader: DataFrameReader | None = None  # one session for all epochs: made once

    def probe(self, spark: SparkSession) -> None:
        self._values.probe(spark)

    def learn(self, error: LaminaError) -> bool:
        if not self._values.learn(error):
            return False
        self.__dict__.pop("_parsed", None)  # an expression with what was learned
        return True

    def rows(
        self,
        spark: SparkSession,
        read: Sequence[Slice],
        numbers: Mapping[Part, int] | None = None,
    ) -> DataFrame:
        """Of a range; a record that cannot be read stops the job, unless such are kept.

        With *numbers* of partitions, each row has that of its own in the column PART.
        """
        if not read:
            part = "" if numbers is None else f", {PART} INT"
            return spark.createDataFrame([], ddl(self._context.source.columns) + part)
        records = self._records(spark, read).where(self._good)
        if numbers is None:
            return records.select(*self._columns)
        return records.select(*self._columns, self._part(numbers))

    def bad_rows(self, spark: SparkSession, read: Sequence[Slice]) -> DataFrame:
        """The records of a range that cannot be read, as they are."""
        if not read:
            return spark.createDataFrame([], KAFKA.bad_rows)
        records = self._records(spark, read)
        return records.where(self._is_bad).select(*PLACES, "key", F.col(VALUE).alias("bytes"))

    # reading

    def _records(self, spark: SparkSession, read: Sequence[Slice]) -> DataFrame:
        reader = self._reader = self._reader or self._open(spark)
        reader = reader.option("assign", json.dumps(_by_topic(read)))
        starts = {(each.topic, each.partition): each.start for each in read}
        ends = {(each.topic, each.partition): each.end for each in read}
        reader = reader.option("startingOffsets", _offsets(starts))
        reader = reader.option("endingOffsets", _offsets(ends))
        return reader.load().select(*self._needed, self._parsed)

    def _open(self, spark: SparkSession) -> DataFrameReader:
        given = self._context.given
        options = {
            # A consumer asks for more than an epoch reads, and can ask for the next one only when
            # the broker has answered that: with Kafka's own limit each epoch took 500 ms longer.
            f"{PREFIX}fetch.max.wait.ms": FETCH_WAIT_MS,
            **client_settings(given),
            SERVERS: given.text(SERVERS),
            f"{PREFIX}group.id": self._group,
            f"{PREFIX}isolation.level": "read_committed",
            "failOnDataLoss": "true",
        }
        if self._has("headers"):
            options["includeHeaders"] = "true"
        if MIN_PARTITIONS in given.declared:
            options[MIN_PARTITIONS] = str(given.number(MIN_PARTITIONS))
        return spark.read.format("kafka").options(**options)

    def _has(self, metadata: str) -> bool:
        named = (column.metadata.lower() for column in self._context.source.columns)
        return metadata.lower() in named

    # expressions, each made once

    def _part(self, numbers: Mapping[Part, int]) -> Column:
        """The number of a record's partition; made anew when there is a new one."""
        if len(numbers) not in self._parts:
            by_topic: dict[str, dict[int, int]] = {}
            for (topic, partition), number in numbers.items():
                by_topic.setdefault(topic, {})[partition] = number
            found = F.lit(None).cast("int")
            for topic, known in by_topic.items():
                listed = [F.lit(known.get(each)).cast("int") for each in range(max(known) + 1)]
                of_topic = F.get(F.array(*listed), F.col("partition"))
                found = F.when(F.col("topic") == topic, of_topic).otherwise(found)
            self._parts[len(numbers)] = found.alias(PART)
        return self._parts[len(numbers)]

    @cached_property
    def _values(self) -> Values:
        given, columns = self._context.given, value_columns(self._context)
        match given.text(FORMAT):
            case "json":
                mark = new_writer_id(SystemClock())
                return JsonValues(columns, reader_settings(given), mark)
            case "csv":
                return CsvValues(columns, reader_settings(given))
            case "avro" if given.text(AVRO_SCHEMA):
                return PlainAvro(self._context.source, columns, given.text(AVRO_SCHEMA))
            case "avro":
                registry = SchemaRegistry(given.text(REGISTRY), given.text(REGISTRY_LOGIN))
                return FramedAvro(
                    self._context.source, columns, registry, keeps_bad_rows=self._keeps_bad_rows
                )
            case _:
                return RawValues(columns)

    @cached_property
    def _needed(self) -> list[str]:
        asked = [name for name in ("timestamp", "timestampType", "headers") if self._has(name)]
        return [*PLACES, "key", VALUE, *asked]

    @cached_property
    def _parsed(self) -> Column:
        if not value_columns(self._context):
            return F.lit(None).alias(PARSED)
        return F.when(F.monotonically_increasing_id() >= 0, self._values.row()).alias(PARSED)

    @cached_property
    def _is_bad(self) -> Column:
        """A record without a value is none: its columns are null."""
        bad = F.lit(False)
        if value_columns(self._context):
            bad = F.col(VALUE).isNotNull() & F.coalesce(
                self._values.is_bad(F.col(PARSED)), F.lit(True)
            )
        if any(_is_text_key(column) for column in self._context.source.columns):
            bad |= F.col("key").isNotNull() & ~F.is_valid_utf8(F.col("key").cast("string"))
        return bad

    @cached_property
    def _good(self) -> Column:
        if self._keeps_bad_rows:
            return ~self._is_bad
        shown = F.regexp_replace(self._values.shown(), r"\p{Cntrl}", " ")
        said = F.concat_ws(" ", F.lit(UNREADABLE), *map(F.col, PLACES), shown)
        stop = F.raise_error(said).cast("boolean")
        return F.when(self._is_bad, stop).otherwise(F.lit(True))

    @cached_property
    def _columns(self) -> list[Column]:
        return [_column(each) for each in self._context.source.columns]


def _column(column: Definition) -> Column:
    if not column.metadata:
        return F.col(PARSED)[column.name].alias(column.name)
    return F.col(column.metadata.lower()).cast(bare_type(column)).alias(column.name)


def _is_text_key(column: Definition) -> bool:
    return column.metadata.lower() == "key" and column.type.upper().startswith("STRING")


def _by_topic(read: Iterable[Slice]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for each in read:
        topics.setdefault(each.topic, []).append(each.partition)
    return topics


def _offsets(places: Mapping[tuple[str, int], int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), at in places.items():
        topics.setdefault(topic, {})[str(number)] = at
    return json.dumps(topics)
