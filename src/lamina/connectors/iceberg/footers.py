"""Ids of columns for a Parquet file that has none: its footer is written again, its data is not.

Iceberg finds columns by the ids in the footer. Without ids a reader goes by names, if it can, or by
position, and then takes one column for another. Of the footer (Thrift, compact protocol) only the
schema changes, which is its second field; all that follows stays byte for byte, and so do all
offsets, because the footer comes last.

data | footer | its size, 4 bytes, little-endian | PAR1
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedIOBase

from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

END = struct.Struct("<I4s")
MAGIC = b"PAR1"
_NAME, _CHILDREN, _FIELD_ID = 4, 5, 9  # fields of a SchemaElement
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class UnknownFooter(Exception):
    """Not what was expected: the rows can still be read and written again."""


@dataclass(frozen=True, slots=True)
class Footer:
    """Where the footer of a file begins, and one with ids to stand there instead, to the end."""

    start: int
    tail: bytes


def with_ids(file: BufferedIOBase, size: int, columns: Iterable[NestedField]) -> Footer:
    """The new end of a Parquet file of *size* bytes. UnknownFooter if it cannot be told."""
    file.seek(max(0, size - END.size))
    end = file.read(END.size)
    length, magic = END.unpack(end) if len(end) == END.size else (0, b"")
    if magic != MAGIC or length + END.size > size:
        raise UnknownFooter("not the end of a Parquet file")
    start = size - END.size - length
    file.seek(start)
    try:
        footer = _renumbered(file.read(length), StructType(*columns))
    except (IndexError, UnicodeDecodeError) as error:
        raise UnknownFooter("not the schema of a Parquet file") from error
    return Footer(start, footer + END.pack(len(footer), MAGIC))


def _renumbered(footer: bytes, columns: StructType) -> bytes:
    reader = _Reader(footer)
    if reader.byte() != (1 << 4 | _I32):
        raise UnknownFooter("it does not begin with a version")
    reader.skip(_I32)
    if reader.byte() != (1 << 4 | _LIST):
        raise UnknownFooter("it does not go on with a schema")
    before = reader.at
    count, kind = reader.list_header()
    if kind != _STRUCT:
        raise UnknownFooter("its schema is not a list of structs")
    elements = [reader.element() for _ in range(count)]
    if _number_all(elements, 0, columns) != count:
        raise UnknownFooter("its schema is not one tree")
    header = (
        bytes([count << 4 | _STRUCT]) if count < 15 else bytes([0xF0 | _STRUCT]) + _varint(count)
    )
    schema = header + b"".join(element.encoded() for element in elements)
    return footer[:before] + schema + footer[reader.at :]


@dataclass(slots=True)
class _Element:
    """A node of the schema, as the fields that it has: number, type, bytes."""

    fields: dict[int, tuple[int, bytes]]

    @property
    def name(self) -> str:
        value = self.fields.get(_NAME, (0, b""))[1]
        return value[_Reader(value).skipped_varint() :].decode()

    @property
    def children(self) -> int:
        value = self.fields.get(_CHILDREN, (0, b"\0"))[1]
        return _Reader(value).varint() >> 1  # zigzag, and never negative

    def number(self, field_id: int) -> None:
        self.fields[_FIELD_ID] = (_I32, _varint(field_id << 1))

    def encoded(self) -> bytes:
        parts, last = [], 0
        for number, (kind, value) in sorted(self.fields.items()):
            parts.append(bytes([(number - last) << 4 | kind]) + value)
            last = number
        return b"".join(parts) + b"\0"


def _number_all(elements: list[_Element], at: int, kind: IcebergType) -> int:
    """Give ids to what is below the element at *at*, which is *kind*; the place after it."""
    children, following = elements[at].children, at + 1
    if isinstance(kind, StructType):
        known = {field.name: field for field in kind.fields}
        for _ in range(children):
            field = known.get(elements[following].name)
            if field is None:
                raise UnknownFooter(f"it has a column {elements[following].name!r}")
            following = _number(elements, following, field)
    elif isinstance(kind, ListType):
        following = _repeated(elements, at, (kind.element_field,))
    elif isinstance(kind, MapType):
        following = _repeated(elements, at, (kind.key_field, kind.value_field))
    elif not isinstance(kind, PrimitiveType) or children:
        raise UnknownFooter(f"{elements[at].name!r} is not {kind}")
    return following


def _number(elements: list[_Element], at: int, field: NestedField) -> int:
    elements[at].number(field.field_id)
    return _number_all(elements, at, field.field_type)


def _repeated(elements: list[_Element], at: int, fields: tuple[NestedField, ...]) -> int:
    """Lists and maps have a group between them and their parts, which has no id."""
    if elements[at].children != 1 or elements[at + 1].children != len(fields):
        raise UnknownFooter(f"{elements[at].name!r} has other levels than a list or map")
    following = at + 2
    for field in fields:
        following = _number(elements, following, field)
    return following


class _Reader:
    """Values of the compact protocol, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def byte(self) -> int:
        if self.at >= len(self._data):
            raise UnknownFooter("it ends too soon")
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def skipped_varint(self) -> int:
        """How many bytes a number takes."""
        self.varint()
        return self.at

    def list_header(self) -> tuple[int, int]:
        head = self.byte()
        return (self.varint() if head >> 4 == 15 else head >> 4), head & 15

    def element(self) -> _Element:
        fields, number = dict[int, tuple[int, bytes]](), 0
        while head := self.byte():
            if not head >> 4:
                raise UnknownFooter("a field far from the one before it")
            number, start = number + (head >> 4), self.at
            self.skip(head & 15)
            fields[number] = (head & 15, self._data[start : self.at])
        return _Element(fields)

    def skip(self, kind: int) -> None:
        if kind in (_TRUE, _FALSE):
            return  # the type is the value
        if kind in (_I16, _I32, _I64):
            self.varint()
        elif kind == _BINARY:
            size = self.varint()
            self.at += size
        elif kind == _STRUCT:
            self.element()
        elif kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        else:
            raise UnknownFooter(f"a value of type {kind} in a schema")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
