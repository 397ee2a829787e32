"""From rows to messages: keys, values, headers, partitions and times, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lamina.connectors.kafka.json_rows import json_objects, plain_texts
from lamina.connectors.keyed import WriteMode, Writing, one_of_each_key
from lamina.engine.ports import CHANGE, OLD
from lamina.errors import Refused

CHUNK_BYTES = 8 << 20
CHUNK_ROWS = 16_384
HEADER_SIZE = 10
_PARTITIONS = 1 << 31
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
    is_raw: bool = False  # the value is one column as it is, and not an object of all that are left


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages, in order; what a column is not for is None."""

    values: pa.Array
    keys: pa.Array | None = None
    headers: list[Headers] | None = None
    partitions: list[int | None] | None = None
    timestamps: list[int | None] | None = None

    def sizes(self) -> pa.Array:
        """Bytes of key, value and headers of each."""
        sizes = pc.binary_length(self.values).fill_null(0)
        if self.keys is not None:
            sizes = pc.add(sizes, pc.binary_length(self.keys).fill_null(0))
        if self.headers is not None:
            sizes = pc.add(sizes, pa.array(map(headers_size, self.headers), pa.int32()))
        return sizes

    @property
    def has_more(self) -> bool:
        """Whether there is more than keys, values and partitions."""
        return self.headers is not None or self.timestamps is not None

    def columns(self) -> tuple[list[bytes | None], Iterable[bytes | None], Iterable[int]]:
        """Values, keys and partitions, as `Producer.produce` takes them; -1: Kafka chooses."""
        keys = repeat(None) if self.keys is None else self.keys.to_pylist()
        partitions = (
            repeat(-1)
            if self.partitions is None
            else [-1 if number is None else number for number in self.partitions]
        )
        return self.values.to_pylist(), keys, partitions

    def more(self) -> list[dict[str, Any]]:
        """The headers and the time of each message, as `Producer.produce` takes them."""
        found: list[dict[str, Any]] = [{} for _ in range(len(self.values))]
        for name, column in (("timestamp", self.timestamps), ("headers", self.headers)):
            for message, value in zip(found, column or (), strict=False):
                if value is not None:
                    message[name] = value
        return found


def messages_of(batch: pa.RecordBatch, layout: Layout, encode: EncodeValues) -> Iterator[Messages]:
    """The messages of some rows, in pieces of a bounded size; rows taken back have no value."""
    layout = layout_for(batch.schema, layout)
    for piece in _pieces(batch):
        values = encode(piece.select(layout.values))
        if CHANGE in piece.schema.names:
            values = pc.if_else(pc.is_in(piece[CHANGE], pa.array(OLD)), None, values)
        keys = _keys(piece, layout.keys) if layout.keys else None
        yield Messages(
            values,
            keys,
            _headers(piece, layout.headers) if layout.headers else None,
            _partitions(piece, layout, keys),
            _millis(piece[layout.timestamp], layout.timestamp) if layout.timestamp else None,
        )


def batches_to_send(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    """The rows of an epoch; of changes one for each key, because they come in no order."""
    first = next(batches, None)
    if first is None:
        return
    if CHANGE not in first.schema.names:
        yield first
        yield from batches
        return
    rows = pa.Table.from_batches([first, *batches])
    writing = Writing(WriteMode.UPSERT, layout.keys, refuses_several=True)
    yield from one_of_each_key(rows, writing).to_batches()


def layout_for(schema: pa.Schema, layout: Layout) -> Layout:
    """*layout* for the rows of an epoch, which may be older than the stream: one that was decided
    before the SELECT was changed keeps all of its columns. Refused if it lacks one with a place."""
    names = [name for name in schema.names if name != CHANGE]
    apart = [*layout.headers, *filter(None, (layout.partition, layout.timestamp))]
    named = [*layout.keys, *apart, *(layout.values if layout.is_raw else ())]
    for name in named:
        if name not in names:
            raise Refused(
                f"an epoch from before a change of the stream has no column {name!r}, which the "
                "sink needs",
                advice="Start with the SELECT and the options of before until the epoch is "
                "published, or name no column in the sink's options that it does not have",
            )
    values = layout.values if layout.is_raw else tuple(n for n in names if n not in apart)
    return replace(layout, values=values)


def headers_size(headers: Headers) -> int:
    """In bytes; each has two lengths with it."""
    return sum(len(name.encode()) + len(value or b"") + HEADER_SIZE for name, value in headers)


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
        wrong = next((n for n in given if not _is_partition(n)), None)
        if wrong is not None:
            raise Refused(
                f"the column {layout.partition!r} has {wrong!r}, which is not the number of a "
                "partition",
                advice="They begin with 0; with null, Kafka chooses. The epoch is published when "
                "the sink is started without the option partition",
            )
        return given
    if not layout.replaces or keys is None or not keys.null_count:
        return None
    return [0 if is_null else None for is_null in keys.is_null().to_pylist()]


def _headers(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[Headers]:
    columns = [plain_bytes(batch[name]).to_pylist() for name in names]
    return [list(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_partition(number: Any) -> bool:
    return number is None or (isinstance(number, int) and 0 <= number < _PARTITIONS)


def _millis(times: pa.Array, name: str) -> list[int | None]:
    """Whole milliseconds. To Kafka's client 0 is the time of sending, and -1 is none at all."""
    if not pt.is_timestamp(times.type):
        raise _no_time(name, f"is {times.type}")
    micros: list[int | None] = (
        times.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
    )
    millis = [None if each is None else each // 1000 for each in micros]
    early = next((each for each in millis if each is not None and each < 1), None)
    if early is not None:
        raise _no_time(name, f"has a time of {early:,} ms since 1970-01-01 00:00 UTC")
    return millis


def _no_time(name: str, why: str) -> Refused:
    return Refused(
        f"the column {name!r} {why}: a message cannot have that time",
        advice="Times begin at 1970-01-01 00:00:00.001 UTC; with null, Kafka has its own. The "
        "epoch is published when the sink is started without the option timestamp",
    )
