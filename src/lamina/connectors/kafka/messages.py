"""From rows to messages: keys, values, headers, partitions and times, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lamina.connectors.kafka.json_rows import json_objects, plain_texts
from lamina.engine.ports import CHANGE

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 8_192
Headers = list[tuple[str, str | bytes | None]]
EncodeValues = Callable[[pa.RecordBatch], pa.Array]
"""Bytes for each row, or null."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a stream go where."""

    values: tuple[str, ...]
    keys: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    partition: str | None = None
    timestamp: str | None = None
    replaces: bool = False  # a row replaces the one with the same key: their order counts


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages, in order; what a column is not for is None."""

    values: pa.Array
    keys: pa.Array | None = None
    headers: list[Headers] | None = None
    partitions: list[int | None] | None = None
    timestamps: list[int | None] | None = None

    def sizes(self) -> pa.Array:
        """Bytes of key and value of each; those of headers are not many."""
        sizes = pc.binary_length(self.values).fill_null(0)
        if self.keys is None:
            return sizes
        return pc.add(sizes, pc.binary_length(self.keys).fill_null(0))

    @property
    def is_plain(self) -> bool:
        """Whether `Producer.produce_batch` will do: it ignores all but keys and values."""
        return self.headers is None and self.partitions is None and self.timestamps is None

    def dicts(self) -> list[dict[str, Any]]:
        """As `Producer.produce` takes them."""
        values = self.values.to_pylist()
        if self.keys is None:
            found: list[dict[str, Any]] = [{"value": value} for value in values]
        else:
            keys = self.keys.to_pylist()
            found = [{"value": v, "key": k} for v, k in zip(values, keys, strict=True)]
        more = {
            "partition": self.partitions,
            "timestamp": self.timestamps,
            "headers": self.headers,
        }
        for name, column in more.items():
            for message, value in zip(found, column or (), strict=False):
                if value is not None:
                    message[name] = value
        return found


def messages_of(batch: pa.RecordBatch, layout: Layout, encode: EncodeValues) -> Iterator[Messages]:
    """The messages of some rows, in pieces of a bounded size; -U has none, and -D no value."""
    if CHANGE in batch.schema.names:
        batch = batch.filter(pc.not_equal(batch[CHANGE], "-U"))
    for piece in _pieces(batch):
        values = encode(piece.select(layout.values))
        if CHANGE in piece.schema.names:
            values = pc.if_else(pc.equal(piece[CHANGE], "-D"), None, values)
        keys = _keys(piece, layout.keys) if layout.keys else None
        yield Messages(
            values,
            keys,
            _headers(piece, layout.headers) if layout.headers else None,
            _partitions(piece, layout, keys),
            _millis(piece[layout.timestamp]) if layout.timestamp else None,
        )


def json_values(batch: pa.RecordBatch) -> pa.Array:
    return json_objects(batch.schema.names, batch.columns, batch.num_rows).cast(pa.binary())


def raw_values(batch: pa.RecordBatch) -> pa.Array:
    return plain_bytes(batch.column(0))


def plain_bytes(values: pa.Array) -> pa.Array:
    """Text in UTF-8, bytes as they are, all else as text."""
    if pt.is_binary(values.type) or pt.is_large_binary(values.type):
        return values.cast(pa.binary())
    return plain_texts(values).cast(pa.binary())


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _keys(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    if len(names) == 1:
        return plain_bytes(batch[names[0]])
    return json_values(batch.select(names))


def _partitions(
    batch: pa.RecordBatch, layout: Layout, keys: pa.Array | None
) -> list[int | None] | None:
    """None: Kafka chooses. It spreads null keys, and versions of a row would lose their order."""
    if layout.partition is not None:
        given: list[int | None] = batch[layout.partition].to_pylist()
        return given
    if not layout.replaces or keys is None or not keys.null_count:
        return None
    return [0 if is_null else None for is_null in keys.is_null().to_pylist()]


def _headers(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[Headers]:
    columns = [plain_bytes(batch[name]).to_pylist() for name in names]
    return [list(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _millis(times: pa.Array) -> list[int | None]:
    found: list[int | None] = (
        times.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist()
    )
    return found
