"""A block that has the values of queries inside expressions: a SELECT without state.

Its rows are as those of a join (joins.py), with a table of one column for each value. A query over
tables is given to Spark as it stands: so it says what SQL says of no rows, and of too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.engine.ports import Change
from lamina.format.canonical import Json
from lamina.pipeline.join_conditions import Relation
from lamina.pipeline.model import DeclaredTable, Pipeline, Stream, Values
from lamina.pipeline.plans import Stateless
from lamina.pipeline.scalars import VALUE
from lamina.pipeline.select import quoted
from lamina.pipeline.table_values import values_over_changes
from lamina.pipeline.tokens import bad_at
from lamina.pipeline.variables import filled
from lamina.spark.compiling_tables import compile_table_join
from lamina.spark.frames import view
from lamina.spark.internals import empty_frame
from lamina.spark.join_asked import Input
from lamina.spark.joins import flat, seen_by_readers
from lamina.spark.known import Known
from lamina.spark.schemas import advice_on, first_line
from lamina.spark.streams import Reading, SparkStream


@dataclass(frozen=True, slots=True)
class _Compiling:
    spark: SparkSession
    stream: Stream
    of: Values
    left: Input
    tables: tuple[DeclaredTable, ...]
    file: str

    def known(self, meaning: Json) -> Known:
        read = self.left.known
        if self.of.tables and read.change is not Change.APPEND:
            raise values_over_changes(self.of.left, self.of, self.file)
        shown = (*self.left.relations, *(Relation(a, (VALUE,)) for a, _ in self.of.columns))
        plan = self._plan(shown)
        try:
            schema = self._schema(plan)
        except PySparkException as error:
            said = f"a query inside an expression: {first_line(error)}"
            raise bad_at(said, self.file, self.of.place, advice_on(error)) from error
        columns: list[Json] = [c.definition() for table in self.tables for c in table.columns]
        return Known(
            schema,
            read.sources,
            [meaning, columns],
            read.change,
            self._keys(),
            lateness_us=read.lateness_us,
            inlined=SparkStream(
                self.stream.name, self.left.reading, plan, schema, b"", makes_rows=False
            ),
            delay_us=read.delay_us,
            relations=shown,
        )

    def _plan(self, shown: tuple[Relation, ...]) -> Stateless:
        made = dict(self.of.columns)
        listed = ", ".join(
            f"{self._text(each, column, made)} AS {quoted(flat(each.alias, column))}"
            for each in shown
            for column in each.columns
        )
        return Stateless(
            f"{seen_by_readers(shown, {}).before}(SELECT {listed} FROM ",  # noqa: S608
            f" AS {quoted(self.left.called)})",
        )

    def _text(self, relation: Relation, column: str, made: Mapping[str, str]) -> str:
        """A value, or a column with its table; a join has tables as columns."""
        if relation.alias in made:
            return filled(made[relation.alias], self.stream.variables)
        is_field = relation in self.left.known.relations
        path = [self.left.called] if is_field else []
        return ".".join(map(quoted, [*path, relation.alias, column]))

    def _keys(self) -> tuple[str, ...] | None:
        """What tells rows apart is still what it was before."""
        read = self.left.known
        if read.keys is None or read.relations:
            return read.keys
        return tuple(flat(self.left.alias, key) for key in read.keys)

    def _schema(self, plan: Stateless) -> StructType:
        given = empty_frame(self.spark, self.left.known.schema)
        with view(given, f"rows of {self.stream.name}") as name:
            return self.spark.sql(plan.sql(name)).schema


def reads_tables_beside(stream: Stream) -> bool:
    """Whether a block is a join with a table, or has the values of queries: it keeps no state."""
    return stream.values is not None or (stream.join is not None and stream.join.is_table)


def compile_beside(
    spark: SparkSession,
    pipeline: Pipeline,
    schemas: Mapping[str, StructType],
    stream: Stream,
    read: tuple[Known, Reading],
    *,
    meaning: Json,
    file: str,
) -> Known:
    """Such a block, over what it reads; *schemas* are those of the tables of the pipeline."""
    by_name = {name.lower(): each for name, each in pipeline.tables.items()}
    if stream.join is not None:
        table = by_name[stream.join.right.lower()]
        given = (table, schemas[table.name])
        return compile_table_join(spark, stream, read, given, meaning=meaning, file=file)
    of = stream.values
    assert of is not None
    tables = tuple(by_name[name] for name in dict.fromkeys(of.tables))
    return _Compiling(spark, stream, of, Input(*read, of.left_alias), tables, file).known(meaning)
