"""Objects as DataFrames: tasks fetch them, and Spark parses what they hold, as it does with files.

Text comes as lines and is parsed by the expressions that are used for bad rows of files. So a row
counts or does not whether its file is in a folder or in a bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from heapq import heappop, heappush
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import StringType, StructField, StructType

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.file_frames import CORRUPT, ddl, quoted
from lamina.connectors.json_text import JsonText
from lamina.connectors.object_tasks import Fetch, Header, Placed, ReadLines, ReadParquet
from lamina.connectors.objects import ObjectRange
from lamina.connectors.partitions import Chain, by_chain, values_in
from lamina.connectors.spark_source import ArrowTask, MakeStep, Step
from lamina.connectors.text_rows import FILE, CsvText, TextRows
from lamina.pipeline.model import Column as Definition
from lamina.pipeline.model import DeclaredSource
from lamina.store.bucket import FoundObject

VALUE = "value"
OPENING_BYTES = 1 << 20  # what an object costs beside its bytes, when work is shared out


class ObjectFrames:
    """The rows of a source's objects."""

    def __init__(
        self,
        source: DeclaredSource,
        options: Mapping[str, str],
        store: Mapping[str, Any],
        make_step: MakeStep,
        *,
        keeps_bad_rows: bool,
    ) -> None:
        """*options* are those of Spark's reader, in lower case; *store* are those of the bucket."""
        self._source = source
        self._options = options
        self._store = store
        self._make_step = make_step
        self._keeps_bad_rows = keeps_bad_rows
        self._text = _text_of(source.format, options)
        self._steps: dict[StructType, Step] = {}
        self._schemas: dict[Chain, bytes] = {}

    def rows(self, spark: SparkSession, planned: ObjectRange) -> DataFrame:
        """Of a range; without those that cannot be read, if these are kept elsewhere."""
        names = [quoted(column.name) for column in self._source.columns]
        return _union(
            self._rows(spark, planned, chain, objects).select(*names)
            for chain, objects in self._groups(planned)
        )

    def bad_rows(self, spark: SparkSession, planned: ObjectRange) -> DataFrame:
        """The rows of a range that cannot be read: `file` and `text`."""
        assert self._text is not None, "Parquet has no bad rows"
        return _union(
            self._text.bad_rows(
                self._lines(spark, planned.url, chain, objects), ddl(self._in_files(chain))
            )
            for chain, objects in self._groups(planned)
        )

    # steps

    def _groups(self, planned: ObjectRange) -> list[tuple[Chain, list[FoundObject]]]:
        """By the columns in their paths; mostly one."""
        objects = {found.path: found for found in planned.objects}
        names = [column.name for column in self._source.columns]
        grouped = by_chain(planned.url, objects, names)
        return [(chain, [objects[path] for path in paths]) for chain, paths in grouped.items()]

    def _rows(
        self, spark: SparkSession, planned: ObjectRange, chain: Chain, objects: list[FoundObject]
    ) -> DataFrame:
        if self._text is None:
            return self._parquet(spark, planned.url, chain, objects)
        lines = self._lines(spark, planned.url, chain, objects)
        columns = ddl(self._in_files(chain))
        return self._text.rows(lines, columns, strict=not self._keeps_bad_rows)

    def _lines(
        self, spark: SparkSession, url: str, chain: Chain, objects: list[FoundObject]
    ) -> DataFrame:
        columns = (VALUE, FILE, *chain.columns)
        task = ReadLines(
            self._fetch(spark, url, chain, objects),
            columns,
            separator=self._options.get("linesep", "").encode(),
            whole=self._options.get("multiline", "").lower() == "true",
            header=self._header(chain),
        )
        schema = StructType([StructField(name, StringType()) for name in columns])
        made = self._made(spark, schema, len(task.fetch.groups), task)
        return made.select(VALUE, FILE, *self._typed(chain))

    def _parquet(
        self, spark: SparkSession, url: str, chain: Chain, objects: list[FoundObject]
    ) -> DataFrame:
        empty = spark.createDataFrame([], ddl(self._in_files(chain)))
        if chain not in self._schemas:
            self._schemas[chain] = empty.limit(0).toArrow().schema.serialize().to_pybytes()
        columns = (*empty.columns, *chain.columns)
        task = ReadParquet(self._fetch(spark, url, chain, objects), columns, self._schemas[chain])
        of_files = [StructField(field.name, field.dataType) for field in empty.schema]
        of_paths = [StructField(name, StringType()) for name in chain.columns]
        made = self._made(spark, StructType(of_files + of_paths), len(task.fetch.groups), task)
        return made.select(*map(quoted, empty.columns), *self._typed(chain))

    def _made(
        self, spark: SparkSession, schema: StructType, tasks: int, task: ArrowTask
    ) -> DataFrame:
        if schema not in self._steps:
            self._steps[schema] = self._make_step(spark, schema, ["id"])
        return self._steps[schema].over(spark.range(0, tasks, 1, tasks), task)

    def _fetch(
        self, spark: SparkSession, url: str, chain: Chain, objects: list[FoundObject]
    ) -> Fetch:
        placed = [Placed(found, tuple(values_in(found.path, chain))) for found in objects]
        tasks = min(len(placed), spark.sparkContext.defaultParallelism)
        return Fetch(url, shared_out(placed, tasks), self._store)

    def _typed(self, chain: Chain) -> list[Column]:
        """The columns of paths, which tasks give as text; a value of another type is an error."""
        of_paths = [c for c in self._source.columns if c.name.lower() in chain.columns]
        return [F.col(quoted(c.name)).cast(_plain(c.type)).alias(c.name) for c in of_paths]

    def _in_files(self, chain: Chain) -> list[Definition]:
        return [c for c in self._source.columns if c.name.lower() not in chain.columns]

    def _header(self, chain: Chain) -> Header | None:
        given = self._options
        if self._source.format != "csv" or given.get("header", "").lower() != "true":
            return None
        is_checked = given.get("enforceschema", "false").lower() != "true"
        names = tuple(c.name for c in self._in_files(chain)) if is_checked else ()
        separator = given.get("sep", given.get("delimiter", ","))
        return Header(names, separator, given.get("quote", '"'), given.get("comment", ""))


def shared_out(placed: Iterable[Placed], tasks: int) -> tuple[tuple[Placed, ...], ...]:
    """The largest first, each to the task that has least: the same every time."""
    groups: list[list[Placed]] = [[] for _ in range(tasks)]
    load = [(0, number) for number in range(tasks)]
    for each in sorted(placed, key=lambda one: (-one.found.size, one.found.path)):
        least, number = heappop(load)
        groups[number].append(each)
        heappush(load, (least + each.found.size + OPENING_BYTES, number))
    return tuple(tuple(group) for group in groups)


def _text_of(kind: str, options: Mapping[str, str]) -> TextRows | None:
    if kind == "json":
        return JsonText(options, new_writer_id(SystemClock()), CORRUPT, FILE)
    return CsvText(options, CORRUPT, FILE) if kind == "csv" else None


def _plain(kind: str) -> str:
    """A type without NOT NULL and the like, which no cast knows."""
    return kind.upper().partition(" NOT NULL")[0].partition(" COMMENT")[0]


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)
