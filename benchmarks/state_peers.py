"""Sum and count by key in Lamina, rocksdict and DuckDB: one upsert, durable when it returns.

Each is given the form in which it is fastest here. Keys are 8 bytes, values two integers of 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)
from timing import Work

import lamina
from lamina.embedded import EmbeddedStore, Table
from lamina.state.merge import Merge

Longs = NDArray[np.int64]
KEY = pa.schema([pa.field("key", pa.int64(), nullable=False)])
VALUE = pa.schema([pa.field("total", pa.int64()), pa.field("n", pa.int64())])
MERGES = (Merge("sum", ("total",)), Merge("count", ("n",)))
BUILD_ROWS = 1_000_000
CACHE_BYTES = 1 << 30  # all of the state fits
THREADS = 2


class Peer(Protocol):
    """A store of sums and counts; `upsert` and `get` prepare, what they return does the work."""

    def upsert(self, batch: pa.RecordBatch) -> Work: ...

    def get(self, keys: Longs) -> Work: ...

    def close(self) -> None: ...


def all_keys(count: int) -> Longs:
    """The keys of a state, in the order in which it is built: spread over 64 bits, in no order."""
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return numbers.view(np.int64)


def batch_of(keys: Longs) -> pa.RecordBatch:
    amounts = keys >> np.int64(44)  # some 20 bits, of either sign
    columns = [pa.array(keys), pa.array(amounts), pa.array(np.ones(len(keys), np.int64))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*KEY, *VALUE]))


def parts(count: int) -> Iterator[pa.RecordBatch]:
    keys = all_keys(count)
    for start in range(0, count, BUILD_ROWS):
        yield batch_of(keys[start : start + BUILD_ROWS])


class Ours:
    """The embedded store; an epoch's runs are merged when they are due, in its commit."""

    def __init__(self, path: Path, *, partitions: int | None = None) -> None:
        self.path = path
        self.store: EmbeddedStore = lamina.open(path, partitions=partitions)
        self.table: Table = self.store.table("sums", KEY, VALUE, merges=MERGES)

    @classmethod
    def build(cls, path: Path, count: int) -> Ours:
        made = cls(path, partitions=1)
        made.upsert(batch_of(all_keys(count)))()  # at once: then it is one run, as if compacted
        made.store.checkpoint()
        return made

    def upsert(self, batch: pa.RecordBatch) -> Work:
        def work() -> None:
            self.table.write(batch)
            self.store.commit()

        return work

    def get(self, keys: Longs) -> Work:
        asked = pa.record_batch([pa.array(keys)], schema=KEY)

        def work() -> None:
            assert self.table.get(asked).found.all()

        return work

    def close(self) -> None:
        self.store.close()


class Rocks:
    """Raw bytes, keys sorted, one multi-get, one write batch, one sync of its log."""

    def __init__(self, path: Path) -> None:
        options = Options(raw_mode=True)
        options.increase_parallelism(THREADS)
        options.set_compression_type(DBCompressionType.none())
        blocks = BlockBasedOptions()
        blocks.set_bloom_filter(10, False)
        blocks.set_block_cache(Cache(CACHE_BYTES))
        options.set_block_based_table_factory(blocks)
        self.database = Rdict(str(path), options)
        self.synced = WriteOptions()
        self.synced.sync = True

    @classmethod
    def build(cls, path: Path, count: int) -> Rocks:
        made = cls(path)
        unlogged = WriteOptions()
        unlogged.disable_wal = True
        for batch in parts(count):
            order = np.argsort(batch.column("key").to_numpy())
            made.database.write(_as_puts(batch.take(pa.array(order))), unlogged)
        made.database.flush()
        made.database.compact_range(None, None)
        return made

    def upsert(self, batch: pa.RecordBatch) -> Work:
        ordered = batch.take(pa.array(np.argsort(_sortable(batch.column("key").to_numpy()))))
        keys = _key_bytes(ordered.column("key").to_numpy())
        changes = _pairs(ordered)

        def work() -> None:
            old = self.database.get(keys)
            if None in old:
                old = [value or bytes(16) for value in old]
            new = (np.frombuffer(b"".join(old), np.int64).reshape(-1, 2) + changes).tobytes()
            puts = WriteBatch(raw_mode=True)
            put = puts.put
            for at, key in enumerate(keys):
                put(key, new[16 * at : 16 * at + 16])
            self.database.write(puts, self.synced)

        return work

    def get(self, keys: Longs) -> Work:
        asked = _key_bytes(keys[np.argsort(_sortable(keys))])

        def work() -> None:
            assert None not in self.database.get(asked)

        return work

    def close(self) -> None:
        self.database.close()


class Duck:
    """A table with a primary key in a database file; a statement commits, and syncs its log."""

    UPSERT = """
        INSERT INTO sums SELECT * FROM batch ON CONFLICT DO UPDATE
        SET total = total + excluded.total, n = n + excluded.n
    """

    def __init__(self, path: Path) -> None:
        self.database = duckdb.connect(str(path))
        self.database.execute(f"SET threads = {THREADS}")

    @classmethod
    def build(cls, path: Path, count: int) -> Duck:
        made = cls(path)
        made.database.execute("CREATE TABLE sums (key BIGINT PRIMARY KEY, total BIGINT, n BIGINT)")
        for batch in parts(count):
            made.database.register("batch", pa.Table.from_batches([batch]))
            made.database.execute("INSERT INTO sums SELECT * FROM batch")
        made.database.execute("CHECKPOINT")
        return made

    def upsert(self, batch: pa.RecordBatch) -> Work:
        self.database.register("batch", pa.Table.from_batches([batch]))
        return lambda: self.database.execute(self.UPSERT)

    def get(self, keys: Longs) -> Work:
        self.database.register("asked", pa.table({"key": keys}))
        query = "SELECT key, total, n FROM sums JOIN asked USING (key)"
        return lambda: self.database.sql(query).to_arrow_table()

    def close(self) -> None:
        self.database.close()


def _as_puts(batch: pa.RecordBatch) -> WriteBatch:
    puts = WriteBatch(raw_mode=True)
    values = _pairs(batch).tobytes()
    for at, key in enumerate(_key_bytes(batch.column("key").to_numpy())):
        puts.put(key, values[16 * at : 16 * at + 16])
    return puts


def _pairs(batch: pa.RecordBatch) -> Longs:
    return np.stack([batch.column(name).to_numpy() for name in VALUE.names], axis=1)


def _key_bytes(keys: Longs) -> list[bytes]:
    """Big-endian: then their order is that of the numbers, without sign."""
    raw = keys.astype(">i8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _sortable(keys: Longs) -> NDArray[np.uint64]:
    return keys.view(np.uint64)
