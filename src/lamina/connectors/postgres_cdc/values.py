"""Which types a column may be declared as, and its values: from PostgreSQL's texts to Arrow.

A text is what the output function of a type prints, with the session's settings pinned: ISO dates,
UTC, shortest exact floats, bytes in hex. What would be rounded, cut or guessed is refused, as in
the sink (lamina.connectors.postgres.types). STRING takes everything, as PostgreSQL prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.connectors.postgres.target import TargetColumn
from lamina.errors import Refused

_TAKES = {
    pa.bool_(): {"bool"},
    pa.int16(): {"int2"},
    pa.int32(): {"int2", "int4"},
    pa.int64(): {"int2", "int4", "int8", "oid"},
    pa.float32(): {"float4"},
    pa.float64(): {"float8"},
    pa.binary(): {"bytea"},
    pa.date32(): {"date"},
    pa.timestamp("us", "UTC"): {"timestamptz"},
    pa.timestamp("us"): {"timestamp"},
}
_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_SUGGESTED = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bytea": "BINARY",
    "date": "DATE",
    "timestamptz": "TIMESTAMP",
    "timestamp": "TIMESTAMP_NTZ",
}
_NIBBLES = np.zeros(256, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def misfit(declared: str, kind: pa.DataType, column: TargetColumn) -> str:
    """Why a column of the table cannot be read as it is declared; empty if it can."""
    if _takes(kind, column):
        return ""
    suggested = "STRING" if column.is_list else _SUGGESTED.get(column.type, "STRING")
    if column.type == "numeric" and not column.is_list:
        suggested = f"DECIMAL(38, {column.scale})" if column.scale is not None else "STRING"
    return (
        f"{column.name!r} is of type {column.shown}, which {declared} does not hold exactly: "
        f"declare it {suggested}"
    )


def _takes(kind: pa.DataType, column: TargetColumn) -> bool:
    if kind == pa.string():
        return True
    if not pa.types.is_decimal(kind):
        return not column.is_list and column.type in _TAKES.get(kind, set())
    room = int(kind.precision - kind.scale)
    if column.type != "numeric" or column.is_list:
        return not column.is_list and room >= _DIGITS.get(column.type, room + 1)
    if column.scale is None:
        return True  # any value may come: one that does not fit is refused then
    precision = (column.modifier - 4) >> 16
    return bool(column.scale <= kind.scale and precision - column.scale <= room)


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column of the source."""

    name: str  # as it is declared
    type: pa.DataType

    def read(self, texts: pa.Array, where: str) -> pa.Array:
        """Values of PostgreSQL's *texts*, which are bytes. Refused if one is not of the type."""
        try:
            return _read(texts, self.type)
        except pa.ArrowInvalid as error:
            raise Refused(
                f"the column {self.name!r} has a value that {self.type} cannot hold: {error}",
                where=where,
                advice="Declare the column STRING, or cast it in a view of the pipeline's own "
                'table; then read the table anew (docs/connectors.md, "Reading anew")',
            ) from error


def _read(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.binary():
        return _unhexed(texts)
    strings = texts.cast(pa.large_string())  # checks that they are UTF-8
    if kind == pa.bool_():
        return pc.equal(strings, "t")
    return strings.cast(kind)


def _unhexed(texts: pa.Array) -> pa.Array:
    r"""Bytes of `\x0aff`: two digits become one byte, of all values together."""
    texts = texts.cast(pa.large_binary())
    valid, places, data = texts.buffers()
    count, first = len(texts), texts.offset
    ends = np.frombuffer(places, np.int64, count + 1, first * 8)
    held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    sizes = np.maximum(np.diff(ends) - 2, 0)
    digits_end = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=digits_end[1:])
    at = np.repeat(ends[:-1] + 2 - digits_end[:-1], sizes) + np.arange(digits_end[-1])
    pairs = _NIBBLES[held[at]].reshape(-1, 2)
    data = pa.py_buffer(np.ascontiguousarray(pairs[:, 0] << 4 | pairs[:, 1]))
    valid = pa.array(texts.is_valid()).buffers()[1] if texts.null_count else None
    halves = pa.py_buffer((digits_end // 2).astype(np.int64))
    return pa.Array.from_buffers(pa.large_binary(), count, [valid, halves, data]).cast(pa.binary())
