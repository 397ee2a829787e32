"""Debezium's envelopes in Avro, in Confluent's frame: a schema says what each value is.

connect.name of a field                     declared
io.debezium.time.Date                       DATE
io.debezium.time.Timestamp, MicroTimestamp  TIMESTAMP_NTZ
io.debezium.time.ZonedTimestamp             TIMESTAMP
any other, or none                          the type of the Avro schema; decimals are precise
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lamina.connectors.file_frames import ddl
from lamina.connectors.kafka.avro import READ, FramedAvro, fits, with_mark
from lamina.connectors.kafka.debezium_values import Envelope
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.errors import Refused
from lamina.pipeline.model import Column as Definition
from lamina.pipeline.model import DeclaredSource

SIDES = ("before", "after")
_TIMES: Mapping[tuple[str, type[DataType]], Callable[[Column], Column]] = {
    ("io.debezium.time.Date", DateType): F.date_from_unix_date,
    ("io.debezium.time.Timestamp", TimestampNTZType): lambda ms: F.timestamp_millis(ms).cast(
        "timestamp_ntz"
    ),
    ("io.debezium.time.MicroTimestamp", TimestampNTZType): lambda us: F.timestamp_micros(us).cast(
        "timestamp_ntz"
    ),
    ("io.debezium.time.ZonedTimestamp", TimestampType): lambda text: text.cast("timestamp"),
}


class DebeziumAvro(FramedAvro):
    """One envelope each; both sides are records of the same columns."""

    def __init__(
        self, source: DeclaredSource, columns: Sequence[Definition], registry: SchemaRegistry
    ) -> None:
        super().__init__(source, columns, registry)

    def envelope(self, row: Column) -> Envelope:
        said = F.concat(F.lit("it is not Avro of its schema: "), self.shown())
        return Envelope(row["op"], row["before"], row["after"], ((row.isNull(), said),))

    def struct(self, data: Column, schema: str, what: str) -> Column:
        found = self._readers(schema, what)

        def side(record: Column, name: str) -> Column:
            values = [
                read(record[name][field]).alias(column) for column, (field, read) in found.items()
            ]
            return F.when(record[name].isNotNull(), F.struct(*values)).alias(name)

        options = {"mode": "PERMISSIVE", "avroSchema": with_mark(schema)}
        record = from_avro(data, schema, options)
        return F.get(
            F.transform(
                F.array(record),
                lambda each: F.when(
                    each[READ].isNotNull(),
                    F.struct(each["op"].alias("op"), *(side(each, name) for name in SIDES)),
                ),
            ),
            F.lit(0),
        )

    @property
    def _types(self) -> StructType:
        row = self._row
        return StructType(
            [StructField("op", StringType()), *(StructField(name, row) for name in SIDES)]
        )

    @property
    def _row(self) -> StructType:
        assert self._spark is not None, "it is probed first"
        made = self._spark.createDataFrame([], ddl(self._definitions)).schema
        return StructType([StructField(each.name, each.dataType) for each in made])

    def _fields(self, schema: str, what: str) -> dict[str, str]:
        return {column: field for column, (field, _) in self._readers(schema, what).items()}

    def _readers(self, schema: str, what: str) -> dict[str, tuple[str, Callable[[Column], Column]]]:
        """Of each column its field in both sides, and how that becomes the declared type."""
        found = self._found(schema, what)
        names = {each["name"]: _connect_name(each["type"]) for each in _fields_of(schema)}
        by_name = {field.name.lower(): field for field in found}
        readers: dict[str, tuple[str, Callable[[Column], Column]]] = {}
        for column in self._row:
            field = by_name.get(column.name.lower())
            if field is None:
                raise self._refused(f"{what} has no column {column.name!r}")
            convert = _TIMES.get((names.get(field.name, ""), type(column.dataType)))
            if convert is None and not fits(field.dataType, column.dataType):
                encoded = names.get(field.name) or field.dataType.simpleString()
                raise self._refused(
                    f"the column {column.name!r} is {column.dataType.simpleString()}, and in "
                    f"{what} it is {encoded}"
                )
            readers[column.name] = field.name, _cast(convert, column.dataType)
        return readers

    def _found(self, schema: str, what: str) -> StructType:
        assert self._spark is not None, "it is probed first"
        try:
            empty = self._spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema))
            found = empty.schema[0].dataType
        except PySparkException as error:
            raise self._refused(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
        names = found.names if isinstance(found, StructType) else []
        if not {"op", *SIDES} <= set(names):
            raise self._refused(f"{what} is not of envelopes: it has no op, before and after")
        assert isinstance(found, StructType)
        sides = [found[name].dataType for name in SIDES]
        if sides[0] != sides[1] or not isinstance(sides[1], StructType):
            raise self._refused(f"{what}: before and after are not records of the same columns")
        return sides[1]

    def _refused(self, message: str) -> Refused:
        advice = "Give the columns the types of the schema (docs/connectors.md has a table)"
        return Refused(f"the source {self._source.name!r}: {message}", advice=advice)


def _cast(convert: Callable[[Column], Column] | None, kind: DataType) -> Callable[[Column], Column]:
    return lambda value: (value if convert is None else convert(value)).cast(kind)


def _fields_of(schema: str) -> list[dict[str, Any]]:
    """Those of `after`; a type that was described before is only named, so all are looked up."""
    record = json.loads(schema)
    named = {each["name"]: each for each in _records(record)}
    for field in record["fields"]:
        if field["name"] == "after":
            for choice in field["type"] if isinstance(field["type"], list) else [field["type"]]:
                kind = choice if isinstance(choice, dict) else named.get(str(choice).split(".")[-1])
                if isinstance(kind, dict) and "fields" in kind:
                    fields: list[dict[str, Any]] = kind["fields"]
                    return fields
    return []


def _records(type_: Any) -> Iterator[dict[str, Any]]:
    for each in type_ if isinstance(type_, list) else [type_]:
        if isinstance(each, dict) and each.get("type") == "record":
            yield each
            for field in each["fields"]:
                yield from _records(field["type"])


def _connect_name(type_: Any) -> str:
    """What Kafka Connect calls the type of a field; empty if nothing special."""
    for each in type_ if isinstance(type_, list) else [type_]:
        if isinstance(each, dict) and "connect.name" in each:
            return str(each["connect.name"])
    return ""
