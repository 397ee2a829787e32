"""Calls of aggregates, as partial columns and an expression over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamina.pipeline.aggregates import AGGREGATES, Part, of_one_row
from lamina.pipeline.expressions import Words, after_dot, by_comma, calls, sign
from lamina.pipeline.key_types import refused_value
from lamina.pipeline.keys import Names
from lamina.pipeline.tokens import Script
from lamina.state.merge import Merge


@dataclass(frozen=True, slots=True)
class PartialColumn:
    name: str  # in the state
    sql: str  # what Spark computes
    meaning: str  # the same in one spelling, for comparing and for people
    of_row: str | None  # the same of one row, where that can be said


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call and its FILTER, as they were written and in one spelling."""

    arguments: tuple[str, ...]
    spelled: tuple[str, ...]
    condition: str = ""
    spelled_condition: str = ""

    def sql(self, template: str) -> str:
        kept = f" FILTER (WHERE {self.condition})" if self.condition else ""
        return template.format(*self.arguments, all=", ".join(self.arguments)) + kept

    def meaning(self, template: str) -> str:
        kept = f" filter (where {self.spelled_condition})" if self.condition else ""
        return template.format(*self.spelled, all=", ".join(self.spelled)) + kept

    def of_row(self, template: str) -> str | None:
        return of_one_row(template, self.arguments, self.condition)


class AggregateCalls:
    """The partial columns that were needed so far; the same one twice is one column."""

    def __init__(
        self,
        script: Script,
        names: Names,
        type_of: Callable[[str], str],
        is_aggregate: Callable[[str], bool],
    ) -> None:
        self._script = script
        self._names = names
        self._type_of = type_of
        self._is_aggregate = is_aggregate
        self._parts: dict[tuple[str, ...], tuple[str, tuple[PartialColumn, ...]]] = {}

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return tuple(column for _, columns in self._parts.values() for column in columns)

    @property
    def merges(self) -> tuple[Merge, ...]:
        return tuple(
            Merge(f, tuple(c.name for c in columns)) for f, columns in self._parts.values()
        )

    def first(self, words: Words) -> int | None:
        """Where the first aggregate is called, if one is."""
        found = (i for i, _ in calls(words) if self._is_aggregate(words[i].text.lower()))
        return next(found, None)

    def at(self, words: Words, index: int) -> tuple[str, int] | None:
        """The call at *index* as an expression over partial columns, and where it ends."""
        close = dict(calls(words)).get(index)
        if close is None or not self._is_aggregate(words[index].text.lower()):
            return None
        self._check(words, index, close)
        end, condition = _filter_after(words, close)
        inner = words[index + 2 : close]
        if inner[0].upper == "ALL" and len(inner) > 1:
            inner = inner[1:]
        return self._over_partials(words, index, self._call(inner, condition)), end

    def _call(self, inner: Words, condition: Words) -> _Call:
        arguments = by_comma(inner)
        texts = tuple(self._script.slice(each) for each in arguments)
        spelled = tuple(self._names.spelled(each) for each in arguments)
        if not condition:
            return _Call(texts, spelled)
        return _Call(texts, spelled, self._script.slice(condition), self._names.spelled(condition))

    def _over_partials(self, words: Words, index: int, call: _Call) -> str:
        name = words[index].text.lower()
        row = AGGREGATES[name]
        if row.arguments is not None and len(call.arguments) != row.arguments:
            given = len(call.arguments)
            message = f"{name}() takes {row.arguments} arguments; it was given {given}"
            raise self._script.bad(message, words[index])
        unfiltered = _Call(call.arguments, call.spelled)
        known = row.made(lambda template: self._type_of(unfiltered.sql(template)))
        for part in known.parts:
            kind = self._type_of(unfiltered.sql(part.columns[-1]))
            reason = refused_value(part.merge, kind)
            if reason is not None:
                raise self._script.bad(f"{name}() of type {kind}: {reason}", words[index])
        columns = [column for part in known.parts for column in self._columns(part, call)]
        return f"({known.final.format(*columns)})"

    def _columns(self, part: Part, call: _Call) -> list[str]:
        identity = (part.merge, *(call.meaning(template) for template in part.columns))
        if identity not in self._parts:
            first = len(self.columns)
            made = (
                PartialColumn(f"p{first + i}", call.sql(template), meaning, call.of_row(template))
                for i, (template, meaning) in enumerate(
                    zip(part.columns, identity[1:], strict=True)
                )
            )
            self._parts[identity] = part.merge, tuple(made)
        return [column.name for column in self._parts[identity][1]]

    def _check(self, words: Words, index: int, close: int) -> None:
        call, inner = words[index], words[index + 2 : close]
        name = call.text.lower()
        if after_dot(words, index):
            raise self._script.bad(f"{name}() with a schema before it", call, "Leave it out")
        if name not in AGGREGATES:
            raise self._script.bad(
                f"{name}() cannot be kept as state yet",
                call,
                f"There are {', '.join(sorted(AGGREGATES))}",
            )
        if not inner:
            raise self._script.bad(f"{name}() has no argument", call)
        if inner[0].upper == "DISTINCT":
            raise self._script.bad(
                f"{name}(DISTINCT ...) would have to keep every value",
                inner[0],
                "Group by it in a stream of its own, and count there",
            )
        nested = self.first(inner)
        if nested is not None:
            raise self._script.bad("an aggregate inside an aggregate", inner[nested])


def _filter_after(words: Words, close: int) -> tuple[int, Words]:
    """Where a call with its FILTER ends, and the condition."""
    if [sign(words, close + step) for step in (1, 2, 3)] != ["FILTER", "(", "WHERE"]:
        return close, ()
    depth = words[close].depth
    ends = (i for i in range(close + 3, len(words)) if words[i].depth == depth)
    end = next(ends)
    return end, words[close + 4 : end]
