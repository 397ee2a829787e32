"""New data files of an Iceberg table, with the ids of its columns in them.

Not by pyiceberg's own writer: in a column of lists or maps of structs it makes empty ones of those
that are NULL (0.12.0), and in a partition by a float it loses the rows of NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    _determine_partitions,
    _get_parquet_writer_kwargs,
    bin_pack_arrow_table,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.utils.properties import property_as_int

from lamina.connectors.iceberg.columns import as_in_table

POOL_BYTES_MAX = 64 << 20
"""Rows that are gathered for one file; in the file they are fewer bytes."""
ROW_GROUP_ROWS = 1 << 20


class DataWriter:
    """Data files of rows that come in tables of any size: small ones are gathered."""

    def __init__(self, table: Table, name: str) -> None:
        """*name* begins the names of all files, and no other writer's."""
        self._table, self._name = table, name
        self._numbers = itertools.count()
        self._pool: list[pa.Table] = []
        self._written: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        """Rows with columns of the table; those that it lacks are NULL."""
        if rows.num_rows:
            self._pool.append(rows)
        if sum(each.nbytes for each in self._pool) > POOL_BYTES_MAX:
            self._flush()

    def close(self) -> list[DataFile]:
        if self._pool:
            self._flush()
        return self._written

    def _flush(self) -> None:
        rows = pa.concat_tables((self._whole(each) for each in self._pool), promote_options="none")
        self._pool = []
        for key, part in _partitions(self._table.metadata, rows):
            size = property_as_int(
                self._table.properties,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
            )
            for batches in bin_pack_arrow_table(part, size or POOL_BYTES_MAX):
                self._written.append(self._write(key, pa.Table.from_batches(batches)))

    def _whole(self, rows: pa.Table) -> pa.Table:
        """With all columns of the table, in its order and with its types."""
        rows = as_in_table(rows, self._table)
        columns = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        for column in columns:
            if column.name not in rows.column_names:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return rows.select(columns.names)

    def _write(self, key: PartitionKey | None, rows: pa.Table) -> DataFile:
        metadata, name = self._table.metadata, f"{self._name}-{next(self._numbers):05d}.parquet"
        location: str = self._table.location_provider().new_data_location(name, key)
        output = self._table.io.new_output(location)
        writer = None
        with output.create() as target:
            writer = pq.ParquetWriter(
                target,
                schema_to_pyarrow(metadata.schema(), include_field_ids=True),
                store_decimal_as_integer=True,
                **_get_parquet_writer_kwargs(metadata.properties),
            )
            with writer:
                writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        return data_file(self._table, output, writer.writer.metadata, key)


def data_file(
    table: Table, written: InputFile | OutputFile, footer: pq.FileMetaData, key: PartitionKey | None
) -> DataFile:
    """A file as a manifest lists it."""
    metadata = table.metadata
    plan = compute_statistics_plan(metadata.schema(), metadata.properties)
    ids = parquet_path_to_id_mapping(metadata.schema())
    for path in _beyond_python(footer):
        plan[ids[path]] = replace(plan[ids[path]], mode=MetricsMode(MetricModeTypes.COUNTS))
    statistics = data_file_statistics_from_parquet_metadata(footer, plan, ids)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.location,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key else Record(),
        file_size_in_bytes=len(written),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _beyond_python(footer: pq.FileMetaData) -> set[str]:
    """Columns with limits that Python has no value for, as times after the year 9999.

    pyiceberg would stop there. Without bounds a file is never passed over.
    """
    found = set()
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            try:
                if column.is_stats_set and column.statistics.has_min_max:
                    _ = column.statistics.min, column.statistics.max
            except (OverflowError, ValueError):
                found.add(column.path_in_schema)
            except pa.ArrowNotImplementedError:
                pass  # which pyiceberg sees for itself
    return found


def _partitions(
    metadata: TableMetadata, rows: pa.Table
) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    if metadata.spec().is_unpartitioned():
        yield None, rows
        return
    found = 0
    for each in _determine_partitions(metadata.spec(), metadata.schema(), rows):
        found += each.arrow_table_partition.num_rows
        yield each.partition_key, each.arrow_table_partition
    assert found == rows.num_rows, "every row is in one partition"
