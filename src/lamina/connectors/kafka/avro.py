"""Avro values: plain, with one schema; or in Confluent's frame, with the id of theirs.

A frame is a zero byte, four bytes with the id, then the Avro bytes. Every known schema is a branch;
a task that meets another one stops the job, the driver fetches the schema, and the job runs again.

The fields of a schema are found by name. Each must be of the column's type, or of one that fits
into it; a column that a schema does not have is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from lamina.clock import Clock, SystemClock
from lamina.connectors.file_frames import ddl
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.values import UNKNOWN_SCHEMA, VALUE
from lamina.errors import LaminaError, NotFound, Refused
from lamina.pipeline.model import Column as Definition
from lamina.pipeline.model import DeclaredSource

_UNKNOWN = re.compile(rf"{UNKNOWN_SCHEMA} ([0-9A-F]{{8}})\b")
_WIDER = ((IntegerType, LongType), (FloatType, DoubleType), (IntegerType, DoubleType))
ASK_AGAIN_S = 5.0
_FRAME = 5
READ = "_lamina_read"
_ALL = (1 << 31) - 1


class AvroColumns:
    """The columns of a source, out of records of one schema or another."""

    def __init__(self, source: DeclaredSource, columns: Sequence[Definition]) -> None:
        self._source, self._definitions = source, columns
        self._spark: SparkSession | None = None

    def probe(self, spark: SparkSession) -> None:
        """Remember the session: only Spark can tell types."""
        self._spark = spark

    def shown(self) -> Column:
        return F.hex(F.substring(F.col(VALUE), 1, 50))

    def is_bad(self, row: Column) -> Column:
        return row.isNull()

    def struct(self, data: Column, schema: str, what: str) -> Column:
        """The columns of *data*, null if it cannot be read. *what* is the schema's name."""
        fields = self._fields(schema, what)

        def picked(record: Column) -> Column:
            return F.struct(
                *(
                    (record[fields[c.name]] if c.name in fields else F.lit(None))
                    .cast(self._types[c.name].dataType)
                    .alias(c.name)
                    for c in self._definitions
                )
            )

        # What cannot be read is a record of nulls to Spark: one of ours would not be.
        options = {"mode": "PERMISSIVE", "avroSchema": with_mark(schema)}
        record = from_avro(data, schema, options)
        return F.get(
            F.transform(F.array(record), lambda each: F.when(each[READ].isNotNull(), picked(each))),
            F.lit(0),
        )

    @property
    def _types(self) -> StructType:
        assert self._spark is not None, "it is probed first"
        return self._spark.createDataFrame([], ddl(self._definitions)).schema

    def _fields(self, schema: str, what: str) -> dict[str, str]:
        """The field of each column; Refused if its type does not fit."""
        assert self._spark is not None, "it is probed first"
        try:
            empty = self._spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema))
            found = empty.schema[0].dataType
        except PySparkException as error:
            raise self._refused(f"{what} cannot be read: {str(error).splitlines()[0]}") from error
        if not isinstance(found, StructType):
            raise self._refused(f"{what} is not a record")
        by_name = {field.name.lower(): field for field in found}
        fields: dict[str, str] = {}
        for column in self._types:
            field = by_name.get(column.name.lower())
            if field is None:
                continue
            if not fits(field.dataType, column.dataType):
                raise self._refused(
                    f"the column {column.name!r} is {column.dataType.simpleString()}, and in "
                    f"{what} it is {field.dataType.simpleString()}"
                )
            fields[column.name] = field.name
        return fields

    def _refused(self, message: str) -> Refused:
        advice = "Give the columns the types of the schema, and CAST in a stream"
        return Refused(f"the source {self._source.name!r}: {message}", advice=advice)


class PlainAvro(AvroColumns):
    """Values of one schema, which the pipeline names."""

    def __init__(self, source: DeclaredSource, columns: Sequence[Definition], schema: str) -> None:
        super().__init__(source, columns)
        self._schema = schema

    def probe(self, spark: SparkSession) -> None:
        super().probe(spark)
        self._fields(self._schema, "its avroSchema")

    def row(self) -> Column:
        return self.struct(F.col(VALUE), self._schema, "its avroSchema")

    def learn(self, error: LaminaError) -> bool:
        del error
        return False


class FramedAvro(AvroColumns):
    """Values that say which schema they have."""

    def __init__(
        self,
        source: DeclaredSource,
        columns: Sequence[Definition],
        registry: SchemaRegistry,
        *,
        keeps_bad_rows: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(source, columns)
        self._registry, self._keeps_bad_rows = registry, keeps_bad_rows
        self._clock = clock or SystemClock()
        self._schemas: dict[int, str] = {}
        self._unreadable: set[int] = set()  # schemas whose records are bad rows, until the next run

    def probe(self, spark: SparkSession) -> None:
        super().probe(spark)
        self._registry.check()

    def row(self) -> Column:
        value, frame = F.col(VALUE), F.substring(F.col(VALUE), 1, _FRAME)
        data = F.substring(value, _FRAME + 1, _ALL)
        said = F.concat_ws(" ", F.lit(UNKNOWN_SCHEMA), F.hex(F.substring(value, 2, 4)))
        nothing = F.lit(None).cast(self._types)
        is_framed = (F.octet_length(value) >= _FRAME) & (F.substring(value, 1, 1) == _bytes(b"\0"))
        row = F.when(value.isNull() | ~is_framed, nothing)
        for number in sorted(self._unreadable):
            row = row.when(frame == _bytes(_framed(number)), nothing)
        for number, schema in sorted(self._schemas.items()):
            known = _bytes(_framed(number))
            row = row.when(frame == known, self.struct(data, schema, f"the schema {number}"))
        return row.otherwise(F.raise_error(said).cast(self._types))

    def learn(self, error: LaminaError) -> bool:
        found = _UNKNOWN.search(error.message)
        number = int(found[1], 16) if found else None
        if number is None or number in self._schemas or number in self._unreadable:
            return False
        schema = self._schema(number)
        if isinstance(schema, str):
            self._schemas[number] = schema
        elif self._keeps_bad_rows:
            self._unreadable.add(number)
        else:
            raise schema
        return True

    def _schema(self, number: int) -> str | LaminaError:
        """One that can be read; or why none ever will. An outage is raised, and waited for."""
        found = self._registry.lookup(number)
        if isinstance(found, NotFound) and self._keeps_bad_rows:
            self._clock.wait(ASK_AGAIN_S)  # a registry of several servers may be a little late
            found = self._registry.lookup(number)
        if isinstance(found, LaminaError):
            return found
        try:
            self._fields(found, f"the schema {number}")
        except Refused as error:
            return error
        return found


def with_mark(schema: str) -> str:
    """The schema with a field more, which no record has: its default says that one was read."""
    record = json.loads(schema)
    mark = {"name": READ, "type": "int", "default": 1}
    return json.dumps({**record, "fields": [*record["fields"], mark]})


def fits(found: DataType, wanted: DataType) -> bool:
    """Whether all values of one type are values of the other."""
    narrow = any(isinstance(found, a) and isinstance(wanted, b) for a, b in _WIDER)
    return narrow or _nullable(found) == _nullable(wanted)


def _nullable(type_: DataType) -> DataType:
    """The same type, with nulls allowed everywhere: Avro is stricter than a column is."""
    match type_:
        case StructType():
            fields = [StructField(each.name, _nullable(each.dataType)) for each in type_]
            return StructType(fields)
        case ArrayType():
            return ArrayType(_nullable(type_.elementType))
        case MapType():
            return MapType(_nullable(type_.keyType), _nullable(type_.valueType))
        case _:
            return type_


def _framed(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def _bytes(value: bytes) -> Column:
    return F.lit(bytearray(value))
