"""How the rows of an epoch get into an Iceberg table, in one transaction that the caller commits.

append   the staged files become data files of the table, if they fit; else their rows are
         written again: into a partition each, with wider types, or as one file of many small ones
upsert   data files with rows of the epoch's keys are replaced by files without these rows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.utils.properties import property_as_bool

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.iceberg.columns import as_in_table
from lamina.connectors.iceberg.copies import can_be_copied, copied
from lamina.connectors.iceberg.data import DataWriter
from lamina.connectors.keyed import Writing, last_of_each_key
from lamina.connectors.staged import staged_rows
from lamina.engine.ports import Publication

IN_MAX = 200
"""pyiceberg looks at the bounds of files only for lists that are not longer."""

Words = Mapping[str, str]
_where: Any = expressions  # their types say nothing of columns by name


def append_nothing(transaction: Transaction, mark: Words) -> None:
    """A snapshot without a change: who has a handle from before it can no longer commit."""
    with transaction.update_snapshot(snapshot_properties=dict(mark)).fast_append():
        pass


def append(transaction: Transaction, table: Table, publication: Publication, mark: Words) -> None:
    if can_be_copied(table, publication):
        files = copied(table, publication, _name(publication))
    else:
        writer = DataWriter(table, _name(publication))
        writer.add(staged_rows(publication))
        files = writer.close()
    with _appending(transaction, mark) as snapshot:
        for file in files:
            snapshot.append_data_file(file)


def upsert(
    transaction: Transaction,
    table: Table,
    publication: Publication,
    mark: Words,
    *,
    writing: Writing,
) -> None:
    """Every key of the epoch has its last row afterwards, or none if that was deleted."""
    rows = last_of_each_key(staged_rows(publication), writing)
    upserts, deletes = as_in_table(rows.upserts, table), as_in_table(rows.deletes, table)
    replaced = pa.concat_tables([upserts.select(writing.keys), deletes])
    writer = DataWriter(table, _name(publication))
    gone: list[DataFile] = []
    for task, kept in _touched(table, replaced):
        gone.append(task.file)
        writer.add(kept)
    writer.add(upserts)
    written = writer.close()
    if not gone and not written:
        return append_nothing(transaction, mark)
    with transaction.update_snapshot(snapshot_properties=dict(mark)).overwrite() as snapshot:
        for file in gone:
            snapshot.delete_data_file(file)
        for file in written:
            snapshot.append_data_file(file)
    return None


# append


def _appending(transaction: Transaction, mark: Words) -> Any:
    """As the table wants it: small manifests are merged, or each append has one of its own."""
    merged = property_as_bool(
        transaction.table_metadata.properties,
        TableProperties.MANIFEST_MERGE_ENABLED,
        TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
    )
    update = transaction.update_snapshot(snapshot_properties=dict(mark))
    return update.merge_append() if merged else update.fast_append()


def _name(publication: Publication) -> str:
    """How the names of an epoch's files begin; an earlier try may yet be committed: not its."""
    tag = new_writer_id(SystemClock())[:12]
    return f"lamina-{publication.point.epoch:020d}-{publication.generation}-{tag}"


# upsert


def _touched(table: Table, keys: pa.Table) -> Iterator[tuple[FileScanTask, pa.Table]]:
    """Data files with rows of these keys, each with its other rows; one file at a time.

    Of files whose bounds do not rule the keys out the key columns are read; of those that have
    such rows, all.
    """
    if not keys.num_rows:
        return
    for task in table.scan(row_filter=_bounds(keys)).plan_files():
        found = _read(table, task, tuple(keys.column_names))
        if _is_in(found, keys).any():
            whole = _read(table, task)
            kept = ~_is_in(whole.select(keys.column_names), keys)
            yield task, whole.filter(pa.array(kept))


def _read(table: Table, task: FileScanTask, names: tuple[str, ...] = ()) -> pa.Table:
    schema = table.schema()
    wanted = schema.select(*names) if names else schema
    rows = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_table([task])
    return as_in_table(rows.select(names) if names else rows, table)


def _bounds(keys: pa.Table) -> BooleanExpression:
    """What every row with one of these keys is like, and as few others as can be said."""
    bounds: BooleanExpression = AlwaysTrue()
    for name in keys.column_names:
        bound = _bound(name, keys[name])
        bounds = bound if isinstance(bounds, AlwaysTrue) else And(bounds, bound)
    return bounds


def _bound(name: str, values: pa.ChunkedArray) -> BooleanExpression:
    kind = values.type
    is_ordered = (
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string(kind)
    )
    if not is_ordered:
        return AlwaysTrue()
    nulls: BooleanExpression = _where.IsNull(name)
    distinct = pc.unique(pc.drop_null(values))
    if not len(distinct):
        return nulls
    try:
        bound = _within(name, distinct)
    except (OverflowError, ValueError):  # times that Python does not have
        return AlwaysTrue()
    return Or(bound, nulls) if values.null_count else bound


def _within(name: str, distinct: pa.Array) -> BooleanExpression:
    if len(distinct) <= IN_MAX:
        listed: BooleanExpression = _where.In(name, distinct.to_pylist())
        return listed
    ends = pc.min_max(distinct).as_py()
    return And(
        _where.GreaterThanOrEqual(name, ends["min"]), _where.LessThanOrEqual(name, ends["max"])
    )


def _is_in(rows: pa.Table, keys: pa.Table) -> np.ndarray:
    """For each row whether it has one of these keys; NULL is like NULL."""
    together = pa.concat_tables([rows, keys])
    codes = np.zeros(together.num_rows, np.int64)
    for column in together.columns:
        array = pa.chunked_array(column).combine_chunks()
        encoded = array.dictionary_encode(null_encoding="encode")
        values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        mixed = codes * (len(encoded.dictionary) + 1) + values
        codes = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])
