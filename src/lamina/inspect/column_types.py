"""Arrow types from their texts in a manifest: columns are known before a run is read."""

from __future__ import annotations

import re

import pyarrow as pa

_DECIMAL = re.compile(r"decimal(128|256)\((\d+), (-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_PLAIN = {
    str(kind): kind
    for kind in (
        *(pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.null()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.duration("us"), pa.time64("us")),
    )
}


def parse_type(text: str) -> pa.DataType | None:
    """The type that Arrow writes as *text*; None for nested and rare ones."""
    if (kind := _PLAIN.get(text)) is not None:
        return kind
    if match := _DECIMAL.fullmatch(text):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        return make(int(match[2]), int(match[3]))
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    if match := _FIXED.fullmatch(text):
        return pa.binary(int(match[1]))
    return None
