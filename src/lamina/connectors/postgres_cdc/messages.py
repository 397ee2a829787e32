"""Messages of pgoutput (protocol version 1) as columns; pure, and vectorised over messages.

Begin     B  final_lsn 8  time 8  xid 4
Commit    C  flags 1  commit_lsn 8  end_lsn 8  time 8
Relation  R  oid 4  schema\\0  name\\0  identity 1  count 2  (flags 1  name\\0  type 4  modifier 4)*
Insert    I  oid 4  N tuple
Update    U  oid 4  [K tuple | O tuple]  N tuple
Delete    D  oid 4  K tuple | O tuple
Truncate  T  count 4  options 1  oid 4 *
tuple     count 2  (n | u | t  size 4  bytes)*         null; not changed; the value as a text

All messages of a kind are read at the same time, column by column: where a value begins is known
when the one before it is. Integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamina.errors import Corrupt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

NULL, UNCHANGED, TEXT = ord("n"), ord("u"), ord("t")
NEW, OLD, KEY = ord("N"), ord("O"), ord("K")


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: int  # the OID of its type
    modifier: int
    is_key: bool = True  # old rows have it, if they do not have all columns


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as it was when the changes after it were made."""

    oid: int
    schema: str
    name: str
    identity: str  # f: all old values are in the log; d: those of the primary key
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages, in their order: the bytes of all of them, and where each begins and ends."""

    data: Bytes
    starts: Places
    ends: Places

    @classmethod
    def of(cls, column: pa.BinaryArray) -> Messages:
        _, places, data = column.buffers()
        count, first = len(column), column.offset
        ends = np.frombuffer(places, np.int32, count + 1, first * 4).astype(np.int64)
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(held, ends[:-1], ends[1:])

    @property
    def kinds(self) -> Bytes:
        return self.data[self.starts]

    def numbers(self, at: Places, size: int) -> Places:
        """Big-endian integers of *size* bytes that begin at these places."""
        found = np.zeros(len(at), np.int64)
        for step in range(size):
            found = found << 8 | self.data[at + step]
        return found

    def message(self, number: int) -> bytes:
        return self.data[self.starts[number] : self.ends[number]].tobytes()


@dataclass(frozen=True, slots=True)
class Values:
    """Where the values of one column are, row by row."""

    kinds: Bytes
    starts: Places
    sizes: Places

    def only(self, rows: npt.NDArray[np.bool_]) -> Values:
        return Values(self.kinds[rows], self.starts[rows], self.sizes[rows])

    def or_unchanged(self, old: Values) -> Values:
        """With those of *old*, row by row, where the message does not repeat them."""
        same = self.kinds == UNCHANGED
        return Values(
            np.where(same, old.kinds, self.kinds),
            np.where(same, old.starts, self.starts),
            np.where(same, old.sizes, self.sizes),
        )


def tuples(messages: Messages, at: Places, columns: int) -> tuple[list[Values], Places]:
    """The values of tuples that begin *at* these places, and where they end."""
    counts = messages.numbers(at, 2)
    if (counts != columns).any():
        raise Corrupt(f"a row has {counts[counts != columns][0]} columns, and the table {columns}")
    found, at = [], at + 2
    for _ in range(columns):
        kinds = messages.data[at]
        has_text = kinds == TEXT
        if not (has_text | (kinds == NULL) | (kinds == UNCHANGED)).all():
            raise Corrupt("a value of a row is of a kind that is not known")
        starts = at + 1 + 4 * has_text
        sizes = np.zeros(len(at), np.int64)
        sizes[has_text] = messages.numbers(at[has_text] + 1, 4)
        found.append(Values(kinds, starts, sizes))
        at = starts + sizes
    return found, at


def texts(messages: Messages, values: Sequence[Values]) -> pa.BinaryArray:
    """Values as one column of bytes: those of the first, then those of the next."""
    kinds = np.concatenate([each.kinds for each in values])
    starts = np.concatenate([each.starts for each in values])
    sizes = np.concatenate([each.sizes for each in values])
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    places = np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])
    data = pa.py_buffer(messages.data[places])
    valid = pa.array(kinds == TEXT).buffers()[1]
    # pgoutput has at most 1 GB in a value, and the driver some 16 MB in a batch of small ones.
    kind = pa.large_binary()
    return pa.Array.from_buffers(kind, len(sizes), [valid, pa.py_buffer(ends), data])


def read_relation(message: bytes) -> Relation:
    oid = int.from_bytes(message[1:5], "big")
    schema, at = _name(message, 5)
    name, at = _name(message, at)
    identity = chr(message[at])
    count = int.from_bytes(message[at + 1 : at + 3], "big")
    columns, at = [], at + 3
    for _ in range(count):
        is_key = bool(message[at] & 1)
        column, at = _name(message, at + 1)
        kind = int.from_bytes(message[at : at + 4], "big")
        modifier = int.from_bytes(message[at + 4 : at + 8], "big", signed=True)
        columns.append(RelationColumn(column, kind, modifier, is_key))
        at += 8
    # An empty schema is how pgoutput writes pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def truncated(message: bytes) -> list[int]:
    """The tables of a TRUNCATE."""
    return [int(oid) for oid in np.frombuffer(message, ">u4", offset=6)]


def _name(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
