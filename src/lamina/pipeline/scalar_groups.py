"""Values beside aggregates: the SELECT is cut into its groups, and one over them that has values.

    SELECT k, sum(x) AS s FROM a GROUP BY k HAVING count(*) > 1 AND sum(x) > (SELECT ...)

    SELECT k, s FROM (SELECT k, sum(x) AS s, sum(x) AS `#1` FROM a GROUP BY k HAVING count(*) > 1)
      AS a WHERE `#1` > (SELECT ...)

Lines stay where they were; columns do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from lamina.pipeline.aggregates import AGGREGATES
from lamina.pipeline.expressions import Words, after_filter, calls, is_over, is_reference, sign
from lamina.pipeline.join_conditions import conjuncts
from lamina.pipeline.scalar_blocks import values_of_groups
from lamina.pipeline.scalars import Scalar
from lamina.pipeline.select import Item, Select, quoted
from lamina.pipeline.subqueries import joins_of
from lamina.pipeline.tokens import Script


def over_groups(
    script: Script,
    read: Script,
    select: Select,
    found: tuple[Scalar, ...],
    *,
    taken: Collection[str],
) -> str | None:
    """The text of a SELECT over its groups, if it has values beside aggregates.

    *read* has references for the values of *script*, and *select* is it without EXISTS and IN, at
    the same places. *taken* are names that blocks have.
    """
    found_at = tuple(values_of_groups(select, found))
    if not found_at:
        return None
    words = select.script.words
    numbered = any(len(key) == 1 and key[0].is_number for key in select.keys)
    if select.distinct or numbered or any(w.upper == "QUALIFY" and not w.depth for w in words):
        raise select.script.bad(
            "a query inside an expression beside aggregates, with DISTINCT, QUALIFY, or keys that "
            "are numbers",
            found_at[0],
            "Put the SELECT with its groups into FROM (...) AS x, and the query into the SELECT "
            "or WHERE around it",
        )
    first, joins = joins_of(read, (), select.own)
    is_free = not joins and first.alias.lower() not in taken
    alias = first.alias if is_free else "groups"  # columns are called as those of the table
    return _Cutting(script, read, select, found, frozenset(w.start for w in found_at), alias).text()


@dataclass(slots=True)
class _Cutting:
    script: Script
    read: Script
    select: Select
    found: tuple[Scalar, ...]
    places: frozenset[int]  # of the values that are of groups
    alias: str
    more: dict[str, str] = field(default_factory=dict)  # texts over the groups, and their names

    def text(self) -> str:
        select, text = self.select, self.read.text
        parts = list(conjuncts(select.having))
        asked = [self._over(part) for part in parts if self._is_outer(part)]
        kept = [self._inside(part) for part in parts if not self._is_outer(part)]
        listed = [self._item(item) for item in select.items]
        inner = [
            f"{self._inside(item.words)} AS {quoted(self._name(item))}"
            for item in select.items
            if not self._is_outer(item.words)
        ]
        inner += [f"{said} AS {name}" for said, name in self.more.items()]
        end = select.having[0].start if select.having else select.end
        tables = text[select.table.start : end].rstrip()
        tables = tables[: -len("HAVING")] if select.having else tables
        lines = "\n" * text[: select.table.start].count("\n")
        return (
            f"SELECT {', '.join(listed)} FROM (SELECT {', '.join(inner)}{lines} FROM "  # noqa: S608
            f"{self._restored(tables)}{_all('HAVING', kept)}{text[select.end :]}) "
            f"AS {quoted(self.alias)}{_all('WHERE', asked)}"
        )

    def _is_outer(self, words: Words) -> bool:
        return any(word.start in self.places for word in words)

    def _item(self, item: Item) -> str:
        name = quoted(self._name(item))
        return f"{self._over(item.words)} AS {name}" if self._is_outer(item.words) else name

    def _name(self, item: Item) -> str:
        words = item.words
        is_column = words[-1].is_name and (
            len(words) == 1 or [sign(words, 1), len(words)] == [".", 3]
        )
        if item.alias is None and not is_column:
            raise self.select.script.bad(
                "a column without a name, beside a query inside an expression",
                words[0],
                "Name it with AS",
            )
        return item.alias or words[-1].text

    def _over(self, words: Words) -> str:
        """An expression over the groups: aggregates and keys are columns of theirs."""
        text, at, until = "", words[0].start, -1
        ends = dict(self._aggregates(words))
        for index, word in enumerate(words):
            if index <= until:
                continue
            until = ends.get(index, -1)
            if until < 0 and is_reference(words, index) and word.start not in self.places:
                until = index + 2 * self._steps(words, index)
            if until < 0 or self._is_column(words[index : until + 1]):
                continue
            said = self._restored(self._slice(words[index : until + 1]))
            name = self.more.setdefault(said, quoted(f"of group {len(self.more) + 1}"))
            text += self._slice_at(at, word.start) + name
            at = words[until].end
        return self._restored(text + self._slice_at(at, words[-1].end))

    def _aggregates(self, words: Words) -> Iterator[tuple[int, int]]:
        """Where aggregates begin and end, each with its FILTER."""
        for index, close in calls(words):
            name = words[index].text.lower()
            if (name in AGGREGATES or name in self.select.own) and not is_over(words, close):
                yield index, after_filter(words, close) - 1

    def _steps(self, words: Words, index: int) -> int:
        """How many dots a path has."""
        steps = 0
        while sign(words, index + 1 + 2 * steps) == ".":
            steps += 1
        return steps

    def _is_column(self, path: Words) -> bool:
        """Whether the groups have a column that is called like this."""
        names = {self._name(item).lower() for item in self.select.items}
        of_table = len(path) == 1 or path[0].text.lower() == self.alias.lower()
        return len(path) in (1, 3) and of_table and path[-1].text.lower() in names

    # texts

    def _inside(self, words: Words) -> str:
        return self._restored(self._slice(words))

    def _slice(self, words: Words) -> str:
        return self.read.slice(words)

    def _slice_at(self, start: int, end: int) -> str:
        return self.read.text[start:end]

    def _restored(self, text: str) -> str:
        """With the queries again that references stand for."""
        for scalar in self.found:
            text = text.replace(scalar.reference, self.script.slice(scalar.words))
        return text


def _all(clause: str, parts: list[str]) -> str:
    return f" {clause} {' AND '.join(f'({part})' for part in parts)}" if parts else ""
