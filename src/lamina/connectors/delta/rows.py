"""Rows as data files of a Delta table: split by partition, replaced by key, small files merged.

A file of a table never changes. To replace rows, the files that have them are written again without
them, and the version that adds the new files removes the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lamina.clock import Clock
from lamina.connectors.delta.place import Place
from lamina.connectors.delta.schema import TableColumns
from lamina.connectors.delta.stats import read_stats
from lamina.connectors.keyed import KeyedRows
from lamina.errors import Refused

FILE_ROWS = 1 << 20
SMALL_BYTES = 32 << 20
MERGED_BYTES = 128 << 20

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

    def _write(self, values: PartitionValues, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        repeated = [each.name for each in rows.schema if pa.types.is_string(each.type)]
        pq.write_table(rows, sink, use_dictionary=repeated)  # numbers take longer with one
        data = sink.getvalue()
        name = self.name(len(self.adds))
        stats = read_stats(pa.BufferReader(data)).text
        now = self.clock.now_ms()
        self.adds.append(AddAction(name, data.size, values, now, self.data_change, stats))
        self.place.put(name, data)


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
        found = [groups[name][group].as_py() for name in keys.column_names]
        values = {
            name: _encode(name, value, where) for name, value in zip(columns, found, strict=True)
        }
        yield values, rest.take(numbers)


def _encode(column: str, value: object, where: str) -> str | None:
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
    kept: list[pa.Table] = []
    for path, read in _data_files(table, _may_have(touched)):
        stays = _rows_without(read(columns=list(keys)), touched)
        if stays is None:
            continue
        removed.append(RemoveAction(path, True, files.clock.now_ms()))
        kept.append(read().take(stays))
        if sum(each.num_rows for each in kept) >= FILE_ROWS:
            files.write(_joined(kept, files.columns.schema))
            kept.clear()
    files.write(_joined([*kept, rows.upserts], files.columns.schema))
    return removed


def _joined(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([with_columns(table, schema) for table in tables])


def _data_files(
    table: DeltaTable, wanted: Callable[[pa.Table], pa.ChunkedArray]
) -> Iterator[tuple[str, Callable[..., pa.Table]]]:
    """Files by their path as the log has it, and how to read each; those that are *wanted*."""
    adds = pa.table(table.get_add_actions(flatten=True))
    paths = {unquote(path): path for path in adds.filter(wanted(adds))["path"].to_pylist()}
    dataset = table.to_pyarrow_dataset()
    for fragment in dataset.get_fragments():  # a filter here would leave out too many: see stats.py
        if fragment.path in paths:
            yield paths[fragment.path], partial(fragment.to_table, schema=dataset.schema)


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


# small files


def merge_small(table: DeltaTable, files: NewFiles) -> list[RemoveAction]:
    """Write the rows of small files into fewer ones; what is removed for that."""
    removed: list[RemoveAction] = []
    small = dict(_data_files(table, _is_small))
    for paths in _bins(pa.table(table.get_add_actions(flatten=True)), files.columns.partition_by):
        files.write(_joined([small[path]() for path in paths], files.columns.schema))
        removed += [RemoveAction(path, False, files.clock.now_ms()) for path in paths]
    return removed


def _is_small(adds: pa.Table) -> pa.ChunkedArray:
    return pc.less(adds["size_bytes"], SMALL_BYTES)


def _bins(adds: pa.Table, partition_by: tuple[str, ...]) -> Iterator[list[str]]:
    """Small files of one partition, up to the size of a merged one."""
    bins: dict[str, list[Mapping[str, object]]] = {}
    for add in adds.filter(_is_small(adds)).to_pylist():
        partition = repr([add[f"partition.{name}"] for name in partition_by])
        bins.setdefault(partition, []).append(add)
    for small in bins.values():
        paths: list[str] = []
        size = 0
        for add in small:
            paths.append(str(add["path"]))
            size += int(str(add["size_bytes"]))
            if size >= MERGED_BYTES:
                yield paths
                paths, size = [], 0
        if len(paths) > 1:
            yield paths
