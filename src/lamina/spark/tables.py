"""Tables as Spark sees them: each is a view of its own name, over the version of the epoch.

A small table is sent to every task (broadcast); rows of a stream are not moved then. A large one is
moved by the keys of the join, and so are the rows of the stream: before the exchange that brings
them to the owners of their state (R8). benchmarks/joins.py has measured where to draw the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lamina.connectors.file_frames import local
from lamina.connectors.spark_source import DriverFiles
from lamina.connectors.table_sizes import is_sent_whole
from lamina.engine.model import TableVersion
from lamina.engine.ports import Table
from lamina.pipeline.model import DeclaredTable
from lamina.pipeline.select import quoted
from lamina.spark.failures import spark_errors
from lamina.spark.internals import empty_frame
from lamina.spark.schemas import columns_schema

_WHOLE, _BY_KEY = "broadcast", "shuffle_hash"


def declare_tables(spark: SparkSession, tables: Iterable[DeclaredTable]) -> dict[str, StructType]:
    """A view without rows for each, in a session of our own; their columns, by name."""
    schemas = {table.name: columns_schema(spark, table) for table in tables}
    for name, schema in schemas.items():
        _show(empty_frame(spark, schema), name)
    return schemas


class TableViews:
    """The views of one session, which always show the versions of the epoch that runs."""

    def __init__(
        self,
        spark: SparkSession,
        schemas: Mapping[str, StructType],
        files: DriverFiles | None = None,
    ) -> None:
        """Without *files* tasks see the copies of tables on the driver's disk."""
        self._spark = spark
        self._schemas = schemas
        self._files = files
        self._shown: dict[str, tuple[str, ...]] = {}

    def show(self, versions: Iterable[TableVersion]) -> None:
        for version in versions:
            if self._shown.get(version.table) != version.files:
                _show(self._frame(version), version.table)
                self._shown[version.table] = version.files

    def _frame(self, version: TableVersion) -> DataFrame:
        columns = self._schemas[version.table]
        if self._files is None:
            reader = self._spark.read.schema(columns)
            frame = reader.parquet(*(local(Path(file)) for file in version.files))
        else:
            owner = f"table {version.table}"
            frame = self._files.frame(self._spark, columns, version.files, owner=owner)
        return frame.hint(_WHOLE if is_sent_whole(version.size) else _BY_KEY)


class SparkTable:
    """A table that is read with Spark: what Spark refuses is an error of ours."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def version(self) -> TableVersion:
        with spark_errors():
            return self._table.version()

    def confirm(self, version: TableVersion) -> None:
        self._table.confirm(version)

    def close(self) -> None:
        self._table.close()


def _show(frame: DataFrame, table: str) -> None:
    frame.createOrReplaceTempView(quoted(table))
