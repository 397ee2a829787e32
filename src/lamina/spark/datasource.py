"""`spark.read.format("lamina")`: keyed state, and what a pipeline consists of, as DataFrames.

The driver finds out which state is meant, once for all tasks; each task reads one partition of the
key space, from the files of a checkpoint that it fetches and proves itself. What is not in a
checkpoint is in the log of the home, which every task must see then. Nothing is claimed.

    lamina.spark.register(spark)
    spark.read.format("lamina").option("stream", "totals").load("pipeline.sql")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lamina.errors import Unsupported, UsageError
from lamina.inspect.archive import Archive, open_archive
from lamina.inspect.conditions import parse_condition
from lamina.inspect.metadata import SCHEMAS, metadata
from lamina.inspect.places import of_pipeline
from lamina.inspect.reach import as_of
from lamina.inspect.view import View
from lamina.spark.internals import frame_schema, sent_schema

OPTIONS = ("path", "home", "store", "stream", "table", "at", "as_of", "where")
AS_OF_ADVICE = "Write ISO 8601, such as 2026-11-19T14:00:00; without a zone it is UTC"


def register(spark: SparkSession) -> None:
    """Let a session know the format `lamina`; the same call twice is not an error."""
    spark.dataSource.register(LaminaSource)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of one read; relative paths are below the driver's current folder."""

    store: str
    home: str | None
    stream: str
    table: str
    at: str | None
    as_of: str | None
    where: str | None

    @contextmanager
    def opened(self) -> Iterator[Archive]:
        with open_archive(self.store, home=self.home) as archive:
            yield archive

    def view(self, archive: Archive) -> View:
        if self.as_of is None:
            return archive.view(self.at)
        return archive.view(as_of(archive.checkpointer, _milliseconds(self.as_of)))


@dataclass
class Part(InputPartition):
    """One partition of the key space, at a state that all tasks agree on; or a whole table."""

    wanted: Wanted
    at: str | None
    number: int


class LaminaSource(DataSource):
    """What Spark asks of a format."""

    @classmethod
    def name(cls) -> str:
        return "lamina"

    def schema(self) -> StructType:
        """From manifest and log alone."""
        return _frame_schema(_schema(_wanted(self.options)))

    def reader(self, schema: StructType) -> LaminaReader:
        del schema  # a frame has the columns that are there; select what is needed of them
        return LaminaReader(_wanted(self.options))


class LaminaReader(DataSourceReader):
    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """One for each partition of the state: every task opens the very same one."""
        wanted = self._wanted
        with wanted.opened() as archive:
            if wanted.table:
                return [Part(wanted, wanted.at, 0)]
            view = wanted.view(archive)
            at = str(view.epoch) if view.commits else str(view.checkpoint)
            return [Part(wanted, at, each) for each in range(view.partitions(wanted.stream))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        wanted = partition.wanted
        with wanted.opened() as archive:
            if wanted.table:
                at = wanted.view(archive).checkpoint if wanted.as_of else wanted.at
                sent = sent_schema(_frame_schema(SCHEMAS[wanted.table]))
                yield from metadata(archive, wanted.table, at).cast(sent).to_batches()
                return
            view = archive.view(partition.at)
            schema, where = view.row_schema(wanted.stream), None
            sent = sent_schema(_frame_schema(schema))
            if wanted.where is not None:
                where = parse_condition(schema, wanted.where)
            for batch in view.scan_part(wanted.stream, partition.number, where):
                yield _as(batch, sent)


def _wanted(options: Mapping[str, str]) -> Wanted:
    """The options, checked; Spark writes their names in small letters."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(
            f"the format lamina has no option {unknown[0]!r}", advice=f"It has {', '.join(OPTIONS)}"
        )
    path, stream, table = (options.get(name, "") for name in ("path", "stream", "table"))
    if not path:
        raise UsageError("no path is given", advice="Give a pipeline file, or a store")
    if bool(stream) == bool(table):
        raise UsageError(
            "give either a stream or a table",
            advice=f"option('stream', NAME) is keyed state; the tables are {', '.join(SCHEMAS)}",
        )
    if table and table not in SCHEMAS:
        raise UsageError(
            f"there is no table {table!r}", advice=f"It is one of {', '.join(SCHEMAS)}"
        )
    if "at" in options and "as_of" in options:
        raise UsageError("at and as_of are two ways to say the same: give one of them")
    if table and "where" in options:
        raise UsageError("where is for a stream", advice="Filter the DataFrame")
    given = options.get("home")
    home = given if given is None or "://" in given else str(Path(given).absolute())
    at_path = path if "://" in path else str(Path(path).absolute())
    store, kept = of_pipeline(at_path, home, options.get("store"))
    return Wanted(
        str(store),
        None if kept is None else str(kept),
        stream,
        table,
        options.get("at"),
        options.get("as_of"),
        options.get("where"),
    )


def _schema(wanted: Wanted) -> pa.Schema:
    if wanted.table:
        return SCHEMAS[wanted.table]
    with wanted.opened() as archive:
        view = wanted.view(archive)
        schema = view.row_schema(wanted.stream)
    if wanted.where is not None:
        parse_condition(schema, wanted.where)  # a mistake is said before a task is started
    return schema


def _frame_schema(schema: pa.Schema) -> StructType:
    try:
        return frame_schema(schema)
    except PySparkException as error:
        raise Unsupported(
            f"Spark does not have the type of a column: {error}",
            advice="`lamina state` and lamina.open_view show it",
        ) from error


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that were announced; one that is younger than a run is null in it."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"as_of: {text[:40]!r} is not a time", advice=AS_OF_ADVICE) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
