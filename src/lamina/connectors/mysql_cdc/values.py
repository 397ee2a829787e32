"""Which columns of a table can be read as what, and their values from Python's to Arrow's.

Values come as Python objects, from the snapshot and from the log alike. What would be rounded, cut
or guessed is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lamina.errors import Refused

_INTEGERS = {
    "tinyint": (pa.int8(), pa.int16(), 3),
    "smallint": (pa.int16(), pa.int32(), 5),
    "mediumint": (pa.int32(), pa.int32(), 8),
    "int": (pa.int32(), pa.int64(), 10),
    "bigint": (pa.int64(), None, 20),
}
"""The type that holds a column of it; one that holds an unsigned one; how many digits it has."""
_SIZES = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_PLAIN = {
    "float": (pa.float32(), "FLOAT"),
    "double": (pa.float64(), "DOUBLE"),
    "date": (pa.date32(), "DATE"),
    "timestamp": (pa.timestamp("us", "UTC"), "TIMESTAMP"),
    "datetime": (pa.timestamp("us"), "TIMESTAMP_NTZ"),
}
STEPPED_OVER = {"decimal", "time", "year", "set", "bit", *_INTEGERS, *_TEXTS, *_BYTES, *_PLAIN}
"""Types that the log can be read past, whether they can be declared or not."""
CHARSETS = {"utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"}
_NAMES = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT"}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  as the log has it: what was zero


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table, as the catalog has it."""

    name: str
    type: str  # bigint
    shown: str  # bigint(20) unsigned
    charset: str | None
    octets: int | None  # of a text or of bytes
    precision: int | None
    scale: int | None
    generated: bool

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.shown


def misfit(declared: str, kind: pa.DataType, column: TableColumn) -> str:
    """Why a column of the table cannot be read as it is declared; empty if it can."""
    if column.type in _TEXTS and column.charset not in CHARSETS:
        return f"{column.name!r} has the character set {column.charset}: use utf8mb4"
    if _takes(kind, column):
        return ""
    suggested = _suggested(column)
    how = f"declare it {suggested}" if suggested else "it cannot be read: leave it out"
    return f"{column.name!r} is {column.shown}, which {declared} does not hold exactly: {how}"


def _takes(kind: pa.DataType, column: TableColumn) -> bool:
    if pa.types.is_decimal(kind):
        room = int(kind.precision - kind.scale)
        if column.type in _INTEGERS:
            return room >= _INTEGERS[column.type][2]
        whole = (column.precision or 0) - (column.scale or 0)
        return column.type == "decimal" and whole <= room and (column.scale or 0) <= kind.scale
    if column.type in _INTEGERS:
        least = _INTEGERS[column.type][1 if column.unsigned else 0]
        return least is not None and _SIZES.get(kind, 0) >= _SIZES[least]
    if column.type in _TEXTS:
        return bool(kind == pa.string())
    if column.type in _BYTES:
        return bool(kind == pa.binary())
    return column.type in _PLAIN and bool(_PLAIN[column.type][0] == kind)


def _suggested(column: TableColumn) -> str:
    if column.type == "decimal":
        precision = column.precision or 0
        return f"DECIMAL({precision}, {column.scale})" if precision <= 38 else ""
    if column.type in _INTEGERS:
        least = _INTEGERS[column.type][1 if column.unsigned else 0]
        return "DECIMAL(20, 0)" if least is None else _NAMES[least]
    if column.type in _TEXTS:
        return "STRING"
    if column.type in _BYTES:
        return "BINARY"
    return _PLAIN[column.type][1] if column.type in _PLAIN else ""


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column of the source."""

    name: str  # as it is declared
    type: pa.DataType
    column: TableColumn

    @property
    def select(self) -> str:
        """As a snapshot reads it: a FLOAT would be printed with six digits."""
        quoted = "`" + self.column.name.replace("`", "``") + "`"
        return f"CAST({quoted} AS DOUBLE)" if self.column.type == "float" else quoted

    def read(self, values: Sequence[Any], where: str) -> pa.Array:
        try:
            if pa.types.is_binary(self.type):
                values = [self._padded(value) for value in values]
            if self.column.type == "timestamp" and _EPOCH in values:
                raise ValueError("0000-00-00 00:00:00")  # noqa: TRY301  as other values are
            return pa.array(values, self.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise Refused(
                f"the column {self.name!r} has a value that {self.type} cannot hold: {error}",
                where=where,
                advice="Change the value (zero dates are not dates), or leave the column out; then "
                'read the table anew (docs/connectors.md, "MariaDB source")',
            ) from error

    def _padded(self, value: Any) -> bytes | None:
        """The log leaves out zeros at the end of BINARY(n)."""
        if value is None:
            return None
        data = value.encode() if isinstance(value, str) else bytes(value)
        is_fixed = self.column.type == "binary"
        return data.ljust(self.column.octets or 0, b"\0") if is_fixed else data
