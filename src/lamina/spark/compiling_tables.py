"""A join with a table, compiled: a SELECT without state, which is a part of what reads it.

Its rows are as those of a join of streams (joins.py): a column for each table of FROM, and every
column that only one of them has.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lamina.engine.ports import Change
from lamina.format.canonical import Json
from lamina.pipeline.join_conditions import Relation
from lamina.pipeline.model import DeclaredTable, JoinKind, JoinOf, Stream
from lamina.pipeline.plans import Stateless
from lamina.pipeline.select import quoted
from lamina.pipeline.table_joins import over_changes
from lamina.pipeline.tokens import bad_at, did_you_mean
from lamina.pipeline.variables import filled
from lamina.spark.frames import view
from lamina.spark.internals import empty_frame
from lamina.spark.join_asked import Input, inner_condition
from lamina.spark.joins import flat, seen_by_readers
from lamina.spark.known import Known
from lamina.spark.schemas import advice_on, first_line
from lamina.spark.streams import Reading, SparkStream

_KINDS = {
    JoinKind.INNER: "INNER JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
}


@dataclass(frozen=True, slots=True)
class TableJoin:
    """What a join with a table is made of."""

    spark: SparkSession
    stream: Stream
    of: JoinOf
    left: Input
    table: DeclaredTable
    schema: StructType  # of the table
    file: str

    def known(self, meaning: Json) -> Known:
        """The join, as those that read it need to know it."""
        if self.left.known.change is not Change.APPEND:
            raise over_changes(self.of.left, self.of, self.file, is_of_source=False)
        left = self.left.relations
        right = Relation(self.of.right_alias, tuple(self.schema.names))
        shown = (*left, *((right,) if self.of.kind.has_pairs else ()))
        plan = self._plan(shown, right)
        try:
            schema = self._schema(plan)
        except PySparkException as error:
            said = f"the join of {self.stream.block_of!r}: {first_line(error)}"
            raise bad_at(said, self.file, self.of.on_place, advice_on(error)) from error
        read = self.left.known
        made = SparkStream(self.stream.name, self.left.reading, plan, schema, b"", makes_rows=True)
        columns: list[Json] = [column.definition() for column in self.table.columns]
        return Known(
            schema,
            read.sources,
            [meaning, columns],
            lateness_us=read.lateness_us,
            inlined=made,
            delay_us=read.delay_us,
            relations=shown,
        )

    def _plan(self, shown: tuple[Relation, ...], right: Relation) -> Stateless:
        listed = ", ".join(
            f"{self._column(each, column)} AS {quoted(flat(each.alias, column))}"
            for each in shown
            for column in each.columns
        )
        plain = {
            column.lower(): quoted(flat(found.alias, name))
            for column in self.of.using
            for found, name in [self._found(column)]
        }
        seen = seen_by_readers(shown, plain)
        return Stateless(
            f"{seen.before}(SELECT {listed} FROM ",  # noqa: S608  names in quotes
            f" AS {quoted(self.left.called)} {self._joined(right)})",
        )

    def _joined(self, right: Relation) -> str:
        """JOIN and all that follows it."""
        table = f"{quoted(self.table.name)} AS {quoted(right.alias)}"
        equal = [
            f"{self._column(*self._found(column))} = {quoted(right.alias)}.{quoted(column)}"
            for column in self.of.using
        ]
        asked = self.of.on
        if self.of.is_inner:
            asked = inner_condition(self.of, self.left.relations, (right,), self.file)
        on = " AND ".join(equal) or filled(asked, self.stream.variables)
        return f"{_KINDS[self.of.kind]} {table} ON {on}" if on else f"CROSS JOIN {table}"

    def _column(self, relation: Relation, column: str) -> str:
        """A column with its table; a join has tables as columns."""
        is_field = relation in self.left.known.relations
        path = [self.left.called] if is_field else []
        return ".".join(map(quoted, [*path, relation.alias, column]))

    def _found(self, column: str) -> tuple[Relation, str]:
        """The one table on the left that has a column of USING, and how it spells it."""
        found = [each for each in self.left.relations if each.has(column)]
        if len(found) != 1 or column.lower() not in map(str.lower, self.schema.names):
            listed = [c for each in self.left.relations for c in each.columns]
            missing = column.lower() not in map(str.lower, self.schema.names)
            where = f"the table {self.table.name!r}" if missing else "the left side"
            number = 0 if missing else len(found)
            message = f"USING ({column}): {number} columns of that name in {where}"
            known = self.schema.names if missing else listed
            advice = did_you_mean(column, known)
            raise bad_at(message, self.file, self.of.on_place, advice)
        return found[0], next(c for c in found[0].columns if c.lower() == column.lower())

    def _schema(self, plan: Stateless) -> StructType:
        given = empty_frame(self.spark, self.left.known.schema)
        with view(given, f"left side of {self.stream.name}") as name:
            return self.spark.sql(plan.sql(name)).schema


def compile_table_join(
    spark: SparkSession,
    stream: Stream,
    left: tuple[Known, Reading],
    table: tuple[DeclaredTable, StructType],
    *,
    meaning: Json,
    file: str,
) -> Known:
    """The join of a stream with a table; what it reads, and the table with its columns."""
    of = stream.join
    assert of is not None
    read = Input(*left, of.left_alias)
    return TableJoin(spark, stream, of, read, *table, file).known(meaning)
