"""Which PostgreSQL types take the values of an Arrow type: each of them exactly, or not at all.

A column may be narrower than the stream if PostgreSQL refuses what does not fit. A type that
would round, cut or guess (numeric of a lower scale, real for a double, timestamp for an instant)
is not in the list.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lamina.connectors.postgres.errors import NEVER
from lamina.errors import Refused

_DATE = (-2_440_588, 2_145_042_905)  # 4714-11-24 BC to 5874897-12-31, in days since 1970
_TIMESTAMP = (-210_866_803_200_000_000, 2**63 - 1)  # from 4714-11-24 BC on, in microseconds
# PostgreSQL takes a few numbers outside of these for -infinity and infinity.

TEXTS = frozenset({"text", "varchar", "bpchar", "citext"})
_FROM_TEXT = frozenset({"uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8"})
ENUM = "an enum"


@dataclass(frozen=True, slots=True)
class ValueType:
    """How the values of an Arrow type go to PostgreSQL."""

    staged: str  # the type that the driver copies them as
    into: frozenset[str]  # types of a column that take them
    created: str = ""  # the type of a column that is made for them, if it is another
    scale: int = 0  # digits behind the point
    limits: tuple[int, int] | None = None  # of the numbers they are kept as
    copied: pa.DataType | None = None  # what the driver must be given, if it is another

    @property
    def column(self) -> str:
        return self.created or self.staged


@dataclass(frozen=True, slots=True)
class SentType:
    """A value, or a list of values."""

    value: ValueType
    is_list: bool = False

    @property
    def staged(self) -> str:
        return self.value.staged + ("[]" if self.is_list else "")

    @property
    def column(self) -> str:
        return self.value.column + ("[]" if self.is_list else "")


_PLAIN = {
    pa.bool_(): ValueType("boolean", frozenset({"bool"})),
    pa.int8(): ValueType(
        "smallint", frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"})
    ),
    pa.int16(): ValueType(
        "smallint", frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"})
    ),
    pa.int32(): ValueType("integer", frozenset({"int2", "int4", "int8", "numeric", "float8"})),
    pa.int64(): ValueType("bigint", frozenset({"int2", "int4", "int8", "numeric"})),
    pa.float32(): ValueType("real", frozenset({"float4", "float8"})),
    pa.float64(): ValueType("double precision", frozenset({"float8"})),
    pa.string(): ValueType("text", TEXTS | _FROM_TEXT | {ENUM}),
    pa.large_string(): ValueType("text", TEXTS | _FROM_TEXT | {ENUM}),
    pa.binary(): ValueType("bytea", frozenset({"bytea"})),
    pa.large_binary(): ValueType("bytea", frozenset({"bytea"})),
    pa.date32(): ValueType("date", frozenset({"date", "timestamp"}), limits=_DATE),
    pa.timestamp("us"): ValueType("timestamp", frozenset({"timestamp"}), limits=_TIMESTAMP),
    pa.duration("us"): ValueType("interval", frozenset({"interval"})),
    pa.time64("us"): ValueType("time", frozenset({"time"})),
    pa.time64("ns"): ValueType("time", frozenset({"time"}), copied=pa.time64("us")),
}


def sent_type(kind: pa.DataType) -> SentType | None:
    """None if PostgreSQL, or its driver, has nothing for it."""
    if pa.types.is_list(kind):
        value = _value_type(kind.value_type)
        return None if value is None or value.copied is not None else SentType(value, True)
    value = _value_type(kind)
    return None if value is None else SentType(value)


def _value_type(kind: pa.DataType) -> ValueType | None:
    if pa.types.is_decimal128(kind):
        into = {"numeric"} | ({"int2", "int4", "int8"} if kind.scale == 0 else set())
        created = f"numeric({kind.precision},{kind.scale})"
        return ValueType("numeric", frozenset(into), created, scale=kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return ValueType("timestamptz", frozenset({"timestamptz"}), limits=_TIMESTAMP)
    return _PLAIN.get(kind)


def advice_for(name: str, kind: pa.DataType) -> str:
    """What to write for a column whose type PostgreSQL does not have."""
    if pa.types.is_nested(kind):
        return f"Write to_json({name}) AS {name}: a text, or what a column of type jsonb takes"
    return f"CAST {name} to a type that PostgreSQL has, for example STRING"


def sendable(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """*batch* as the driver takes it. Refused if a value would become another one."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        sent = sent_type(field.type)
        assert sent is not None, field
        if sent.value.limits is not None:
            _check_limits(field.name, column.flatten() if sent.is_list else column, where)
        columns.append(column if sent.value.copied is None else _copied(field, column, where))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def sendable_schema(schema: pa.Schema) -> pa.Schema:
    fields = []
    for field in schema:
        sent = sent_type(field.type)
        assert sent is not None, field
        fields.append(pa.field(field.name, sent.value.copied or field.type))
    return pa.schema(fields)


def _check_limits(name: str, values: pa.Array, where: str) -> None:
    sent = sent_type(values.type)
    assert sent is not None, values.type
    assert sent.value.limits is not None, values.type
    numbers = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    found = pc.min_max(numbers).as_py()
    least, most = sent.value.limits
    if found["min"] is not None and not (least <= found["min"] and found["max"] <= most):
        raise Refused(
            f"the column {name!r} has a {sent.column} that PostgreSQL cannot hold",
            where=where,
            advice=f"Its time begins in 4714 BC. {NEVER}",
        )


def _copied(field: pa.Field, column: pa.Array, where: str) -> pa.Array:
    sent = sent_type(field.type)
    assert sent is not None, field
    try:
        return column.cast(sent.value.copied)
    except pa.ArrowInvalid as error:
        message = f"the column {field.name!r} has a value finer than microseconds"
        advice = f"Write CAST({field.name} AS TIME(6)). {NEVER}"
        raise Refused(message, where=where, advice=advice) from error
