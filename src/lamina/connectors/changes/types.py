"""Which types a column of a source of changes may be declared as."""

from __future__ import annotations

import re

import pyarrow as pa

_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(declared: str) -> pa.DataType | None:
    """The Arrow type of a column's declaration; None of one that no column here can have."""
    text = re.sub(r"\s+not\s+null\s*$", "", declared.strip().lower())
    found = _DECIMAL.fullmatch(text)
    if found:
        precision, scale = int(found[1] or 10), int(found[2] or 0)
        return pa.decimal128(precision, scale) if 0 < precision <= 38 >= scale else None
    return _ARROW.get(text)
