"""Rows as data files of a Delta table: split by partition, and replaced by key.

A file of a table never changes. To replace rows, the files that have them are written again without
them, and the version that adds the new files removes the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lamina.clock import Clock
from lamina.connectors.delta.active import active_files
from lamina.connectors.delta.place import Place
from lamina.connectors.delta.schema import TableColumns
from lamina.connectors.delta.stats import read_stats
from lamina.connectors.keyed import KeyedRows
from lamina.errors import Refused

FILE_ROWS = 1 << 20
POOL_BYTES_MAX = 128 << 20
"""Rows that are held in memory on their way into new files; in a file they are fewer bytes."""

_ORDERED = (pa.types.is_integer, pa.types.is_date, pa.types.is_string)

PartitionValues = dict[str, str | None]


@dataclass
class NewFiles:
    """Files that are written for one version of a table, and durable when the block ends.

    A block that fails removes them. After it nobody does: a commit may have named them, and only
    its answer been lost.
    """

    place: Place
    columns: TableColumns
    clock: Clock
    name: Callable[[int], str]
    data_change: bool = True
    adds: list[AddAction] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.adds:
            self.place.settle()
        elif kind is not None and issubclass(kind, Exception):
            self.place.remove(add.path for add in self.adds)

    def write(self, rows: pa.Table) -> None:
        """*rows* as the table has them, one file for each partition; none for no rows."""
        rows = with_columns(rows, self.columns.schema)
        check_nulls(rows, self.columns.schema, self.place.where)
        for values, part in by_partition(rows, self.columns.partition_by, self.place.where):
            for start in range(0, part.num_rows, FILE_ROWS):
                self._write(values, part.slice(start, FILE_ROWS))

    def write_merged(self, values: Mapping[str, object], tables: Iterable[pa.Table]) -> None:
        """*tables* of one partition as one file; nothing more than a row group is held."""
        encoded = {name: encode(name, value, self.place.where) for name, value in values.items()}
        written = pa.schema([each for each in self.columns.schema if each.name not in values])
        with OpenFile(written) as file:
            pool = Pool(lambda rows: file.write(rows.select(written.names)), self.columns.schema)
            for rows in tables:
                pool.add(rows)
            pool.flush()
        self._put(encoded, file.data())

    def _write(self, values: PartitionValues, rows: pa.Table) -> None:
        with OpenFile(rows.schema) as file:
            file.write(rows)
        self._put(values, file.data())

    def _put(self, values: PartitionValues, data: pa.Buffer) -> None:
        name = self.name(len(self.adds))
        stats = read_stats(pa.BufferReader(data)).text
        now = self.clock.now_ms()
        self.adds.append(AddAction(name, data.size, values, now, self.data_change, stats))
        self.place.put(name, data)


class OpenFile:
    """A Parquet file on its way, in memory; a row group for each write."""

    def __init__(self, schema: pa.Schema) -> None:
        repeated = [each.name for each in schema if pa.types.is_string(each.type)]
        self._sink = pa.BufferOutputStream()
        # What must not be null is checked before; numbers take longer with a dictionary.
        plain = pa.schema([pa.field(each.name, each.type) for each in schema])
        self._writer = pq.ParquetWriter(self._sink, plain, use_dictionary=repeated)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=FILE_ROWS)

    def data(self) -> pa.Buffer:
        return self._sink.getvalue()


class Pool:
    """Rows that are gathered until they are worth writing."""

    def __init__(self, write: Callable[[pa.Table], None], schema: pa.Schema) -> None:
        self._write, self._schema = write, schema
        self._tables: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._tables.append(with_columns(rows, self._schema))
        size = sum(table.nbytes for table in self._tables)
        if size >= POOL_BYTES_MAX or sum(table.num_rows for table in self._tables) >= FILE_ROWS:
            self.flush()

    def flush(self) -> None:
        tables, self._tables = self._tables, []
        if tables:
            self._write(pa.concat_tables(tables))


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the table, in its order; what rows lack is null."""
    missing = [each for each in schema if each.name not in rows.column_names]
    for each in missing:
        rows = rows.append_column(each.name, pa.nulls(rows.num_rows, each.type))
    wanted = pa.schema([pa.field(each.name, each.type) for each in schema])
    return rows.select(schema.names).cast(wanted)


def check_nulls(rows: pa.Table, schema: pa.Schema, where: str) -> None:
    for each in schema:
        if not each.nullable and rows[each.name].null_count:
            raise null_refused(each.name, where)


def null_refused(column: str, where: str) -> Refused:
    message = f"a row has NULL for {column!r}, which is NOT NULL in the table"
    return Refused(message, where=where, advice="Filter such rows out in the SELECT")


# partitions


def by_partition(
    rows: pa.Table, columns: tuple[str, ...], where: str
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """The rows of each partition, without its columns: the log has their values."""
    if not rows.num_rows:
        return
    if not columns:
        yield {}, rows
        return
    keys = rows.select(columns).rename_columns([f"k{number}" for number in range(len(columns))])
    numbered = keys.append_column("row", pa.array(np.arange(rows.num_rows)))
    groups = numbered.group_by(keys.column_names).aggregate([("row", "list")])
    rest = rows.drop_columns(list(columns))
    for group in range(groups.num_rows):
        numbers = groups["row_list"][group].values
        found = [groups[name][group] for name in keys.column_names]
        values = {
            name: encode(name, _python(name, value, where), where)
            for name, value in zip(columns, found, strict=True)
        }
        yield values, rest.take(numbers)


def _python(column: str, value: pa.Scalar, where: str) -> object:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        message = f"{column!r} is beyond the year 9999, and partitions of a Delta table are not"
        advice = "Filter such rows out in the SELECT, or do not partition by it"
        raise Refused(message, where=where, advice=advice) from None


def encode(column: str, value: object, where: str) -> str | None:
    """As the Delta protocol writes values of partitions."""
    if value is None:
        return None
    if value == "":
        message = f"{column!r} is an empty text, and Delta reads that as NULL in a partition column"
        advice = f"Write nullif({column}, '') in the SELECT, or do not partition by it"
        raise Refused(message, where=where, advice=advice)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


# by key


def replace_rows(
    table: DeltaTable, rows: KeyedRows, keys: tuple[str, ...], files: NewFiles
) -> list[RemoveAction]:
    """Write the new rows, and again the files that have old ones; what is removed for that."""
    touched = pa.concat_tables([rows.upserts.select(keys), rows.deletes])
    removed: list[RemoveAction] = []
    pool = Pool(files.write, files.columns.schema)
    where = files.place.where
    for file in active_files(table, _may_have(touched), where):
        stays = _rows_without(file.read(keys), touched)
        if stays is None:
            continue
        removed.append(file.removed(files.clock.now_ms(), where, data_change=True))
        for kept in _parts(file.row_groups(), stays):
            pool.add(kept)
    pool.add(rows.upserts)
    pool.flush()
    return removed


def _parts(tables: Iterable[pa.Table], numbers: pa.Array) -> Iterator[pa.Table]:
    """The rows with these *numbers*, in their order, of tables that are one after the other."""
    wanted, start = numbers.to_numpy(zero_copy_only=False), 0
    for table in tables:
        end = start + table.num_rows
        inside = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, end)]
        yield table.take(pa.array(inside - start))
        start = end


def _may_have(touched: pa.Table) -> Callable[[pa.Table], pa.ChunkedArray]:
    """Whether a file may have one of the keys, by the limits of its numbers, dates and texts."""

    def wanted(adds: pa.Table) -> pa.ChunkedArray:
        found = pa.chunked_array([pa.array(np.full(adds.num_rows, True))])
        for name, keys in zip(touched.column_names, touched.columns, strict=True):
            least, most = f"min.{name}", f"max.{name}"
            ordered = any(is_kind(keys.type) for is_kind in _ORDERED)
            if ordered and not keys.null_count and len(keys) and least in adds.column_names:
                limits = pc.min_max(keys)
                beside = pc.or_(
                    pc.less(adds[most], limits["min"]), pc.greater(adds[least], limits["max"])
                )
                found = pc.and_(found, pc.invert(pc.fill_null(beside, False)))
        return found

    return wanted


def _rows_without(keys: pa.Table, touched: pa.Table) -> pa.Array | None:
    """The numbers of the rows whose keys are not *touched*; None if that is all of them."""
    names = [f"k{number}" for number in range(keys.num_columns)]
    old = keys.rename_columns(names).append_column("row", pa.array(np.arange(keys.num_rows)))
    new = touched.rename_columns(names).cast(keys.rename_columns(names).schema)
    new = new.append_column("row", pa.array(np.full(new.num_rows, -1)))
    groups = (
        pa.concat_tables([old, new]).group_by(names).aggregate([("row", "min"), ("row", "list")])
    )
    untouched = groups.filter(pc.greater_equal(groups["row_min"], 0))
    stays = pc.list_flatten(untouched["row_list"]).combine_chunks()
    return None if len(stays) == keys.num_rows else stays.take(pc.sort_indices(stays))
