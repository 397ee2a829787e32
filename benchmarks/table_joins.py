"""A stream joined with a table: against a batch of plain Spark, and broadcast against by key.

The batch reads the same file, joins it with the same table by a broadcast and writes Parquet. It
syncs nothing, and remembers nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from report import Number
from sql_contenders import Contender, Stream, in_turns, ratio, told

from lamina.connectors import table_sizes

COLUMNS, ITEM = "id BIGINT, item BIGINT, v BIGINT", "item BIGINT, name STRING, price BIGINT"
QUERY = "SELECT s.id, s.v * i.price AS total, i.name FROM src s JOIN items i ON s.item = i.item"
WARM = 3


@dataclass(frozen=True, slots=True)
class TableRows:
    """How many rows an epoch has, and the table; then tables that are also moved by key."""

    epoch: int
    table: int
    small: int
    large: int


class Batch:
    """Plain Spark, a batch for each file."""

    def __init__(self, spark: SparkSession, folder: Path, table: Path) -> None:
        self._spark, self._folder, self._table = spark, folder, table
        self._done = 0

    def epoch(self, file: Path) -> float:
        start = time.perf_counter()
        rows = self._spark.read.schema(COLUMNS).parquet(str(file)).alias("s")
        items = F.broadcast(self._spark.read.schema(ITEM).parquet(str(self._table))).alias("i")
        joined = rows.join(items, F.expr("s.item = i.item")).selectExpr(
            "s.id", "s.v * i.price AS total", "i.name"
        )
        joined.write.parquet(f"{self._folder}/out-{self._done}")
        self._done += 1
        return time.perf_counter() - start


def table_joins(
    spark: SparkSession, folder: Path, rows: TableRows, rounds: int
) -> Iterator[Number]:
    files = [_file(folder / "input", n, rows) for n in range(WARM + rounds)]
    warm, timed = files[:WARM], files[WARM:]
    items = _items(folder / "items", rows.table)
    ours = _stream(spark, folder / "lamina", items)
    contenders: dict[str, Contender] = {
        "lamina": ours,
        "batch": Batch(spark, folder / "batch", items),
    }
    try:
        seconds = in_turns(contenders, warm, timed)
        assert ours.rows() == len(files) * rows.epoch, "each row meets one of the table"
    finally:
        ours.close()
    details = f"{rows.epoch} rows and a table of {rows.table}: {told(seconds)}"
    value = ratio(seconds, "batch", "lamina")
    yield Number("table_join_ratio", value, details, at_least=0.7)
    for name, count in (("small", rows.small), ("large", rows.large)):
        yield _by_key(spark, folder / name, count, warm, timed)


def _by_key(
    spark: SparkSession, folder: Path, count: int, warm: list[Path], timed: list[Path]
) -> Number:
    """An epoch whose table is moved by key, over one whose table is broadcast; reported."""
    items = _items(folder / "items", count)
    streams: dict[str, Contender] = {}
    with _sent_whole_up_to(1 << 60):
        streams["broadcast"] = whole = _stream(spark, folder / "whole", items)
        whole.epoch(warm[0])
    with _sent_whole_up_to(0):
        streams["by key"] = moved = _stream(spark, folder / "moved", items)
        moved.epoch(warm[0])
    try:  # a version is sent as it was when it was first seen
        seconds = in_turns(streams, warm[1:], timed)
    finally:
        whole.close()
        moved.close()
    size = sum(pq.read_metadata(file).row_group(0).total_byte_size for file in items.iterdir())
    details = f"a table of {count} rows, {size >> 20} MiB: {told(seconds)}"
    return Number(f"table_by_key_{folder.name}", ratio(seconds, "by key", "broadcast"), details)


@contextmanager
def _sent_whole_up_to(size: int) -> Iterator[None]:
    before, table_sizes.SENT_WHOLE_MAX = table_sizes.SENT_WHOLE_MAX, size
    try:
        yield
    finally:
        table_sizes.SENT_WHOLE_MAX = before


def _stream(spark: SparkSession, folder: Path, items: Path) -> Stream:
    table = f"CREATE TABLE items ({ITEM}) USING parquet OPTIONS (path '{items}');\n"
    return Stream(spark, folder, f"src ({COLUMNS})", QUERY, tables=table)


def _items(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True)
    numbers = np.arange(count)
    names = [f"item number {n}" for n in range(count)]
    table = pa.table({"item": numbers, "name": names, "price": numbers % 97})
    pq.write_table(table, folder / "items.parquet", row_group_size=max(1, count))
    return folder


def _file(folder: Path, number: int, rows: TableRows) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(number)
    table = pa.table(
        {
            "id": number * rows.epoch + np.arange(rows.epoch),
            "item": random.integers(0, rows.table, rows.epoch),
            "v": random.integers(0, 1 << 30, rows.epoch),
        }
    )
    path = folder / f"{number:06d}.parquet"
    pq.write_table(table, path, row_group_size=max(1, (rows.epoch + 1) // 2))
    return path


if __name__ == "__main__":
    raise SystemExit("run benchmarks/joins.py")
