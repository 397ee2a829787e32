"""Calls of aggregates, as partial columns and an expression over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamina.pipeline.aggregates import AGGREGATES, Partial, average
from lamina.pipeline.expressions import Words, after_dot, calls, normal, sign
from lamina.pipeline.key_types import refused_value
from lamina.pipeline.tokens import Script


@dataclass(frozen=True, slots=True)
class PartialColumn:
    sql: str
    merge: str


class AggregateCalls:
    """The partial columns that were needed so far; the same one twice is one column."""

    def __init__(
        self, script: Script, type_of: Callable[[str], str], is_aggregate: Callable[[str], bool]
    ) -> None:
        self._script = script
        self._type_of = type_of
        self._is_aggregate = is_aggregate
        self._found: dict[tuple[str, ...], PartialColumn] = {}

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return tuple(self._found.values())

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
        self._check_type(words, index, inner)
        return self._over_partials(words[index].text.lower(), inner, condition), end

    def _check_type(self, words: Words, index: int, inner: Words) -> None:
        """What Spark can compare, the merge of old and new values may not."""
        name = words[index].text.lower()
        if name not in ("min", "max", "sum"):
            return
        kind = self._type_of(f"{name}({self._script.slice(inner)})")
        reason = refused_value(name, kind)
        if reason is not None:
            raise self._script.bad(f"{name}() of type {kind}: {reason}", words[index])

    def _over_partials(self, name: str, inner: Words, condition: Words) -> str:
        arguments = self._script.slice(inner)
        where = f" FILTER (WHERE {self._script.slice(condition)})" if condition else ""
        known = AGGREGATES[name]
        if known is None:
            known = average(self._type_of(f"avg({arguments})"), self._type_of(f"sum({arguments})"))
        same = (*map(normal, inner), "FILTER", *map(normal, condition))
        columns = [self._column(partial, arguments, where, same) for partial in known.partials]
        return f"({known.final.format(*columns)})"

    def _column(self, partial: Partial, arguments: str, where: str, same: tuple[str, ...]) -> str:
        sql = partial.sql.format(arguments=arguments) + where
        identity = (partial.sql, partial.merge, *same)
        self._found.setdefault(identity, PartialColumn(sql, partial.merge))
        return f"p{list(self._found).index(identity)}"

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
            raise self._script.bad(f"{name}() of nothing", call)
        if inner[0].upper == "DISTINCT":
            raise self._script.bad(
                f"{name}(DISTINCT ...) would have to keep every value",
                inner[0],
                "Group by it in a stream of its own, and count there",
            )
        nested = self.first(inner)
        if nested is not None:
            raise self._script.bad("an aggregate inside of an aggregate", inner[nested])


def _filter_after(words: Words, close: int) -> tuple[int, Words]:
    """Where a call with its FILTER ends, and the condition."""
    if [sign(words, close + step) for step in (1, 2, 3)] != ["FILTER", "(", "WHERE"]:
        return close, ()
    depth = words[close].depth
    ends = (i for i in range(close + 3, len(words)) if words[i].depth == depth)
    end = next(ends)
    return end, words[close + 4 : end]
