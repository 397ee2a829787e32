"""A join as Spark runs it: the rows of both sides as one table, on the owner of their join keys.

The task gives rows with the columns of both sides, each under the name `alias.column`. Who reads
them sees what FROM has in SQL: a column for each table (a struct), and every column that only one
of them has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.engine.join_asking import asked_of_pairs
from lamina.engine.join_rows import ALONE, AT, RIGHT
from lamina.pipeline.join_conditions import Relation
from lamina.pipeline.plans import Stateless
from lamina.pipeline.select import quoted
from lamina.pipeline.variables import filled

Types = Mapping[str, str]
"""Columns and their types, in order."""


def flat(alias: str, column: str) -> str:
    """What a column of a table is called in the rows of a join."""
    return f"{alias}.{column}"


@dataclass(frozen=True, slots=True)
class JoinSide:
    """What is read of one side: texts over its rows."""

    alias: str  # behind the rows in FROM
    keys: tuple[str, ...]
    time: str
    columns: tuple[tuple[str, str], ...]  # flat names, and what they are
    where: str = ""
    only: str = ""
    """A row that does not meet it has no partner, but it may come out."""

    def filled(self, variables: Mapping[str, str]) -> JoinSide:
        return JoinSide(
            self.alias,
            tuple(filled(key, variables) for key in self.keys),
            self.time,
            self.columns,
            filled(self.where, variables),
            filled(self.only, variables),
        )

    def sql(
        self, over: str, names: Sequence[str], types: Types, *, is_right: bool, beside: str = ""
    ) -> str:
        """Its rows in the form that both sides have; *names* and *types* are of all columns.

        *beside* is what stands beside the side: the event time, unless it is given.
        """
        mine = dict(self.columns)
        alone = f"NOT coalesce({self.only}, false)" if self.only else "false"
        listed = [
            *(f"CAST({key} AS {types[f'k{i}']}) AS k{i}" for i, key in enumerate(self.keys)),
            f"{str(is_right).lower()} AS {RIGHT}",
            beside or f"{self.time} AS {AT}",
            f"{alone} AS {ALONE}",
            *(
                f"{mine.get(name, f'CAST(NULL AS {types[name]})')} AS {quoted(name)}"
                for name in names
            ),
        ]
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {', '.join(listed)} FROM {over} AS {quoted(self.alias)}{where}"  # noqa: S608


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Two sides, and what is asked of pairs."""

    sides: tuple[JoinSide, JoinSide]
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # flat names of both sides: what is kept
    outputs: tuple[str, ...]  # those of them that come out
    types: Types
    pairs: str  # a condition over both sides
    asked: Stateless  # what the condition sees of the rows

    @property
    def sent(self) -> tuple[str, ...]:
        """The columns of the rows that go to the owners of their keys."""
        return (*self.keys, RIGHT, AT, ALONE, *self.columns)

    def sql(self, left: str, right: str) -> str:
        """The rows of both sides."""
        texts = [
            side.sql(over, self.columns, self.types, is_right=bool(number))
            for number, (side, over) in enumerate(zip(self.sides, (left, right), strict=True))
        ]
        return " UNION ALL ".join(texts)

    def final(self, view: str, carry: str, number: str = "") -> str:
        """Pairs that meet the condition; a row of which *carry* is not null comes through.

        With a *number* rows are judged by it.
        """
        listed = ", ".join([*map(quoted, self.outputs), *([number] if number else []), carry])
        inner = self.asked.sql(view).replace("SELECT ", f"SELECT {listed}, ", 1)
        pairs = asked_of_pairs(self.pairs) if number else self.pairs
        where = f"CASE WHEN {carry} IS NULL THEN {pairs} ELSE true END"
        return f"SELECT {listed} FROM ({inner}) WHERE {where}"  # noqa: S608


def seen_by_readers(relations: Sequence[Relation], using: Mapping[str, str]) -> Stateless:
    """A struct for each table, and columns that only one of them has, or that USING makes one."""
    names = [column.lower() for each in relations for column in each.columns]
    aliases = {each.alias.lower() for each in relations}
    listed = []
    for each in relations:
        if each.columns:
            fields = (f"{_text(c)}, {quoted(flat(each.alias, c))}" for c in each.columns)
            listed.append(f"named_struct({', '.join(fields)}) AS {quoted(each.alias)}")
    for each in relations:
        listed += [
            f"{quoted(flat(each.alias, column))} AS {quoted(column)}"
            for column in each.columns
            if names.count(column.lower()) == 1
            and column.lower() not in aliases
            and column.lower() not in using
        ]
    listed += [f"{text} AS {quoted(name)}" for name, text in using.items()]
    return Stateless(f"SELECT {', '.join(listed)} FROM ", "")  # noqa: S608  names in quotes


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
