"""Small files of a Delta table, merged into fewer ones.

A bin of small files becomes one file, so every merge leaves fewer files, and what has grown to the
size of a large one is left alone from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from lamina.connectors.delta.active import active_files
from lamina.connectors.delta.rows import NewFiles

SMALL_BYTES = 32 << 20
MERGED_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that become one."""

    values: Mapping[str, object]  # of the partition
    paths: list[str]  # as the log has them


def merge_small(table: DeltaTable, files: NewFiles) -> list[RemoveAction]:
    """Write the rows of small files into fewer ones; what is removed for that."""
    where, removed = files.place.where, list[RemoveAction]()
    small = {file.path: file for file in active_files(table, _is_small, where)}
    movable = {path for path, file in small.items() if file.is_removable}
    adds = pa.table(table.get_add_actions(flatten=True))
    for merged in bins(adds, files.columns.partition_by, movable):
        sources = [small[path] for path in merged.paths]
        files.write_merged(merged.values, (rows for file in sources for rows in file.row_groups()))
        now = files.clock.now_ms()
        removed += [file.removed(now, where, data_change=False) for file in sources]
    return removed


def _is_small(adds: pa.Table) -> pa.ChunkedArray:
    return pc.less(adds["size_bytes"], SMALL_BYTES)


def bins(adds: pa.Table, partition_by: tuple[str, ...], movable: set[str]) -> Iterator[Bin]:
    """Of the *movable* files two or more of a partition, up to the size of a merged one."""
    columns = {name: f"partition.{name}" for name in partition_by}
    wanted = adds.select(["path", "size_bytes", *columns.values()])
    partitions: dict[str, list[Mapping[str, object]]] = {}
    for add in wanted.to_pylist():
        if add["path"] in movable:
            partition = repr([add[column] for column in columns.values()])
            partitions.setdefault(partition, []).append(add)
    for small in partitions.values():
        values = {name: small[0][column] for name, column in columns.items()}
        for paths in _cut(small):
            yield Bin(values, paths)


def _cut(small: list[Mapping[str, object]]) -> Iterator[list[str]]:
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
