"""Rows as Avro: the schema that Spark's to_avro makes, and the bytes of each row.

A column is a union of null and its type, null by default, so that columns can be added later.
timestamp is timestamp-micros, timestamp_ntz local-timestamp-micros, decimal bytes with its scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.types as pt

from lamina.errors import Refused

RECORD = "topLevelRecord"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema(columns: pa.Schema) -> dict[str, Any]:
    """Refused for a name that Avro cannot hold."""
    return _record(RECORD, list(columns))


def avro_encoder(schema: dict[str, Any], prefix: bytes) -> Callable[[pa.RecordBatch], pa.Array]:
    """Rows to bytes, each after *prefix*."""
    parsed = fastavro.parse_schema(schema)

    def encode(batch: pa.RecordBatch) -> pa.Array:
        values: list[bytes] = []
        out = BytesIO()
        for row in _countable(batch).to_pylist(maps_as_pydicts="strict"):
            out.seek(0)
            out.truncate()
            out.write(prefix)
            fastavro.schemaless_writer(out, parsed, row)
            values.append(out.getvalue())
        return pa.array(values, pa.binary())

    return encode


def _record(name: str, fields: list[pa.Field]) -> dict[str, Any]:
    found = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise Refused(
                f"the column {field.name!r} cannot be the name of a field in Avro",
                advice="Give it a name of letters, digits and _ with AS, or use format 'json'",
            )
        type_name = f"{name}.{field.name}" if name != RECORD else f"{RECORD}.{field.name}"
        found.append(
            {"name": field.name, "type": ["null", _type(field.type, type_name)], "default": None}
        )
    return {"type": "record", "name": name, "fields": found}


def _type(kind: pa.DataType, name: str) -> Any:
    """*name* is for a record in it: its path."""
    if pt.is_struct(kind):
        return _record(name, list(kind))
    if pt.is_list(kind) or pt.is_large_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, name)]}
    if pt.is_map(kind):
        if not pt.is_string(kind.key_type):
            advice = "Use keys of STRING, or format 'json'"
            raise Refused(f"{name} is a map with keys of {kind.key_type}", advice=advice)
        return {"type": "map", "values": ["null", _type(kind.item_type, name)]}
    if pt.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if pt.is_timestamp(kind):
        logical_type = "timestamp-micros" if kind.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": logical_type}
    return next(found for is_kind, found in _SIMPLE if is_kind(kind))


_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pt.is_boolean, "boolean"),
    (lambda kind: pt.is_int8(kind) or pt.is_int16(kind) or pt.is_int32(kind), "int"),
    (pt.is_integer, "long"),
    (pt.is_float32, "float"),
    (pt.is_floating, "double"),
    (pt.is_date, {"type": "int", "logicalType": "date"}),
    (lambda kind: pt.is_string(kind) or pt.is_large_string(kind), "string"),
    (lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind), "bytes"),
    (pt.is_null, "string"),
)


def _countable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as the numbers that Avro holds: no year is out of range, and no object is made."""
    return batch.cast(pa.schema([field.with_type(_counted(field.type)) for field in batch.schema]))


def _counted(kind: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(kind):
        return pa.int64()
    if pt.is_date(kind):
        return pa.int32()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_counted(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, _counted(kind.item_type))
    return pa.list_(_counted(kind.value_type)) if pt.is_list(kind) else kind
