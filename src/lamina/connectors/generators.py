"""Sources that generate their rows: row n depends only on the options and n, so it never changes.

Rows are Spark expressions over their numbers: nothing runs in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, SourceMemory
from lamina.pipeline.model import DeclaredSource
from lamina.pipeline.tokens import bad_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.state.schema import StateSchema

ROW = "row"
PIECES_MIN, PIECES_MAX = 8, 256  # of a range: what Spark deals out to its tasks
PIECE_ROWS = 4096
_SYNONYMS = {
    "long": "bigint",
    "integer": "int",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Made:
    """A column: its type in Spark's DDL, and the SQL that makes it of `id`, the row's number."""

    type: str
    sql: str


class Numbered:
    """Rows 0 to *rows* - 1: the offset is the number of the next one."""

    memory: StateSchema | None = None

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self._rows = rows

    def initial(self) -> Offset:
        return {ROW: "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        del memory  # a number says it all
        at = int(start[ROW])
        end = max(at, self._rows)  # rows that were read stay read, also if there are fewer now
        if limits.rows is not None:
            end = min(end, at + limits.rows)
        return SourceRange(self.name, start, {ROW: str(end)})

    def confirm(self, planned: SourceRange) -> None:
        """Nothing can have changed."""

    def acknowledge(self, offset: Offset) -> None:
        """Nothing is held."""


def numbers(spark: SparkSession, planned: SourceRange) -> DataFrame:
    """The numbers of a range of rows as `id`.

    Not by `spark.range`, whose bounds are part of the code that Spark generates: every epoch would
    compile it again, and run it before the JVM has had time to optimise it.
    """
    first, end = int(planned.start[ROW]), int(planned.end[ROW])
    rows = end - first
    assert rows > 0, "an empty range is not read"
    pieces = min(rows, max(PIECES_MIN, min(PIECES_MAX, rows // PIECE_ROWS)))
    bounds = [first + rows * piece // pieces for piece in range(pieces + 1)]
    listed = ", ".join(f"({low}L, {high - 1}L)" for low, high in pairwise(bounds))
    return spark.sql(
        f"SELECT explode(sequence(low, high)) AS id FROM VALUES {listed} AS pieces(low, high)"  # noqa: S608  numbers
    )


def chosen(source: DeclaredSource, made: Mapping[str, Made], *, file: str) -> list[str]:
    """The SQL of the columns that a source names; each must be one of *made*, of its type."""
    known = {name.lower(): each for name, each in made.items()}
    columns = []
    for column in source.columns:
        each = known.get(column.name.lower())
        if each is None:
            raise bad_at(
                f"the source {source.name!r} has no column {column.name!r}",
                file,
                source.place,
                f"{source.format} has {', '.join(f'{n} {m.type}' for n, m in made.items())}",
            )
        if plain_type(column.type) != plain_type(each.type):
            raise bad_at(
                f"the column {column.name!r} of {source.name!r} is not {column.type}",
                file,
                source.place,
                f"Write {column.name} {each.type}",
            )
        columns.append(f"{each.sql} AS `{column.name}`")
    return columns


def plain_type(text: str) -> str:
    """A type as DDL has it, without what makes no difference."""
    joined = re.sub(r"\s*([<>(),:])\s*", r"\1", text.strip().lower().replace("`", ""))
    spaced = re.sub(r"\s+", ":", joined)  # STRUCT<a BIGINT> is STRUCT<a: BIGINT>
    return re.sub(r"[a-z_]+", lambda word: _SYNONYMS.get(word[0], word[0]), spaced)
