"""A query over streams that is a value, as a LEFT JOIN with a block of its own.

    (SELECT max(n) FROM b WHERE b.at = a.at AND b.n > 1)

    LEFT JOIN (SELECT max(n) AS v, b.at AS k1 FROM b WHERE b.n > 1 GROUP BY b.at) ON a.at = k1

One without an outer column has the key 1. Without an aggregate a value counts its rows: two for one
row outside are an error, as in SQL. Whether such a join can be is said by the rules of joins: of
equal windows that close, or of changes on both sides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lamina.errors import BadPipeline
from lamina.pipeline.aggregate_lists import LISTS
from lamina.pipeline.aggregate_sketches import SKETCHES
from lamina.pipeline.aggregates import AGGREGATES, has_aggregate
from lamina.pipeline.expressions import Words, after_dot, by_comma, calls, closing, is_over, sign
from lamina.pipeline.join_conditions import conjuncts, stripped
from lamina.pipeline.scalars import VALUE, Scalar, alias_of, relations
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import Script, Word

_COUNT = "n"
_CLAUSES = (
    *("FROM", "WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY", "SORT BY", "LIMIT", "OFFSET"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS", "LATERAL"),
)
_ZERO = ("count", "count_if", "regr_count", "approx_count_distinct")
_TOO_MANY = "a query inside an expression has more than one row for a row outside"
_EQUAL = "Write inner.column = outer.column, beside others with AND"


@dataclass(frozen=True, slots=True)
class ScalarJoin:
    """The block on the right side, what its keys are compared with, and the value of a pair."""

    alias: str
    text: str
    keys: tuple[tuple[str, str], ...]  # of outside and of the block
    value: str = ""  # over the joined rows, if it is not just the column


def join_of_scalar(
    script: Script, scalar: Scalar, outer: Collection[str], own: Collection[str]
) -> ScalarJoin:
    """*outer* are the names of the tables outside, *own* those of own aggregates; lower case."""
    return _Reading(script, scalar, frozenset(outer), frozenset(own)).join()


@dataclass(frozen=True, slots=True)
class _Reading:
    script: Script
    scalar: Scalar
    outer: frozenset[str]
    own: frozenset[str]

    def join(self) -> ScalarJoin:
        parts = self._parts()
        if parts is None:
            return self._of_rows(self._whole())
        listed, table, where = parts
        self._refuse_outer((*listed, *table))
        local, keys = self._conditions(where)
        item = self._item(listed)
        over = f"FROM {self.script.slice(table)}"
        if local:
            over += f" WHERE {' AND '.join(local)}"
        if not has_aggregate(item, self.own):
            return self._of_rows((self.script.slice(item), over), keys)
        text = self._text(f"{self.script.slice(item)} AS {VALUE}", over, keys)
        return self._made(text, keys, self._of_none(item))

    def _parts(self) -> tuple[Words, Words, Words] | None:
        """The list, FROM and WHERE of a plain SELECT."""
        words = self.scalar.inner
        marks = [i for i in _marks(words) if words[i].upper in _CLAUSES]
        said = [words[i].upper for i in marks]
        if sign(words, 0) != "SELECT" or said not in (["FROM"], ["FROM", "WHERE"]):
            return None
        listed, end = words[1 : marks[0]], (*marks, len(words))[1]
        if sign(listed, 0) == "DISTINCT" or any(word.upper == "OVER" for word in listed):
            return None
        return listed, words[marks[0] + 1 : end], words[end + 1 :]

    def _whole(self) -> tuple[str, str]:
        """A query of more than that stands for itself, as rows with one column."""
        words = self.scalar.inner
        self._refuse_outer(words)
        marks = [i for i in _marks(words) if sign(words, i) == "FROM"]
        listed = words[1 : marks[0]] if marks and sign(words, 0) == "SELECT" else ()
        name = listed[-1] if listed else words[0]
        if len(by_comma(listed)) != 1 or not name.is_name or name.upper in ("END", "WITH"):
            raise self._bad(
                "a query inside an expression has one column with a name",
                words[0],
                "Write SELECT expression AS name",
            )
        return quoted(name.text), f"FROM ({self.script.slice(words)}) AS {quoted('rows')}"

    def _of_rows(self, of: tuple[str, str], keys: tuple[tuple[str, str], ...] = ()) -> ScalarJoin:
        """Of a query without aggregate, and how many rows there are for a key."""
        item, over = of
        text = self._text(f"max({item}) AS {VALUE}, count(*) AS {_COUNT}", over, keys)
        joined = quoted(self._joined)
        value = f"CASE WHEN {joined}.{_COUNT} > 1 THEN raise_error('{_TOO_MANY}') "
        return self._made(text, keys, f"{value}ELSE {joined}.{VALUE} END", is_value=True)

    def _text(self, items: str, over: str, keys: tuple[tuple[str, str], ...]) -> str:
        named = [f"{inner} AS k{number + 1}" for number, (_, inner) in enumerate(keys)]
        group = f" GROUP BY {', '.join(inner for _, inner in keys)}" if keys else ""
        return f"SELECT {', '.join([items, *(named or ['1 AS k1'])])} {over}{group}"

    def _made(
        self, text: str, keys: tuple[tuple[str, str], ...], none: str, *, is_value: bool = False
    ) -> ScalarJoin:
        alias = self._joined if none else self.scalar.alias
        compared = tuple(
            (outer, f"{quoted(alias)}.k{number + 1}") for number, (outer, _) in enumerate(keys)
        )
        value = none
        if none and not is_value:
            joined = quoted(alias)
            value = f"CASE WHEN {joined}.k1 IS NULL THEN {none} ELSE {joined}.{VALUE} END"
        return ScalarJoin(alias, text, compared or (("1", f"{quoted(alias)}.k1"),), value)

    @property
    def _joined(self) -> str:
        return f"{self.scalar.alias} of"

    # the condition

    def _conditions(self, where: Words) -> tuple[list[str], tuple[tuple[str, str], ...]]:
        """What is asked of rows inside, and the pairs of an outer and an inner expression."""
        local, keys = list[str](), list[tuple[str, str]]()
        for part in conjuncts(where):
            if not any(self._is_outer(part, index) for index in range(len(part))):
                local.append(f"({self.script.slice(part)})")
                continue
            keys.append(self._pair(stripped(part)))
        return local, tuple(keys)

    def _pair(self, part: Words) -> tuple[str, str]:
        at = [i for i, word in enumerate(part) if word.depth == part[0].depth]
        signs = [i for i in at if part[i].upper in ("=", "==")]
        said = next(word for i, word in enumerate(part) if self._is_outer(part, i))
        if len(signs) == 1 and not any(part[i].upper in ("AND", "OR", "NOT", "!") for i in at):
            sides = part[: signs[0]], part[signs[0] + 1 :]
            outer = [any(self._is_outer(side, i) for i in range(len(side))) for side in sides]
            if outer.count(True) == 1:
                outside, inside = sides if outer[0] else sides[::-1]
                if not self._mixes(outside):
                    return self.script.slice(outside), self.script.slice(inside)
        raise self._bad(
            f"{self.script.slice(part)!r} in a query inside an expression: which of its rows "
            "belong to a row outside is known by equal columns only",
            said,
            _EQUAL,
        )

    def _mixes(self, words: Words) -> bool:
        """Whether an outer side also has columns that are not said to be of outside."""
        return any(
            word.is_name
            and sign(words, index + 1) == "."
            and not after_dot(words, index)
            and not self._is_outer(words, index)
            for index, word in enumerate(words)
        ) or any(word.upper == "SELECT" for word in words)

    def _is_outer(self, words: Words, index: int) -> bool:
        """Whether a word is a table of outside, before the dot of a column."""
        word, name = words[index], words[index].text.lower()
        if sign(words, index + 1) != "." or after_dot(words, index):
            return False
        is_nested = word.depth > self.scalar.inner[0].depth and name in self._names(nested=True)
        return name in self.outer and not is_nested and name not in self._names(nested=False)

    def _names(self, *, nested: bool) -> Iterator[str]:
        """What the tables inside are called: those of its own FROM, or of queries in it."""
        words = self.scalar.inner
        for index, word in relations(words):
            if (word.depth > words[0].depth) == nested:
                alias = alias_of(words, index)
                yield (alias or word).text.lower()

    def _refuse_outer(self, words: Words) -> None:
        for index, word in enumerate(words):
            if self._is_outer(words, index):
                raise self._bad(
                    f"{word.text}.{words[index + 2].text} of outside, in a query inside an "
                    "expression: it can be compared in its WHERE",
                    word,
                    _EQUAL,
                )

    # the value

    def _item(self, listed: Words) -> Words:
        parts = by_comma(listed)
        if len(parts) != 1 or not listed or listed[-1].upper == "*":
            raise self._bad(
                f"a query inside an expression has one column, not {len(parts)}"
                if listed and listed[-1].upper != "*"
                else "* in a query inside an expression",
                self.scalar.inner[0],
                "Name one column",
            )
        level = listed[0].depth
        named = next(
            (i for i, w in enumerate(listed) if w.upper == "AS" and w.depth == level), len(listed)
        )
        item = listed[:named]
        return item[1:] if sign(item, 0) == "ALL" else item

    def _of_none(self, item: Words) -> str:
        """What the item is of no rows; nothing if that is a plain null."""
        text, at, is_null = "", item[0].start, True
        for index, close in calls(item):
            name = item[index].text.lower()
            if item[index].start < at or is_over(item, close):
                continue
            if name not in AGGREGATES and name not in self.own:
                continue
            end = close
            if sign(item, close + 1) == "FILTER":
                end = closing(item, close + 2)
            if name in self.own or (name in SKETCHES and "sketch" in name):
                raise self._bad(
                    f"{name}() in a query inside an expression: what it is of no rows is not known",
                    item[index],
                    "Join the query with its groups: LEFT JOIN (SELECT ...) AS x ON ...",
                )
            none = "0" if name in _ZERO else "array()" if name in LISTS else "NULL"
            is_null &= none == "NULL" and not index and end == len(item) - 1
            text += self.script.text[at : item[index].start] + none
            at = item[end].end
        return "" if is_null else f"({text}{self.script.text[at : item[-1].end]})"

    def _bad(self, message: str, at: Word, advice: str) -> BadPipeline:
        return self.script.bad(message, at, advice)


def _marks(words: Words) -> Iterator[int]:
    """Where the clauses of a query begin."""
    for index, word in enumerate(words):
        is_here = word.depth == words[0].depth and not after_dot(words, index)
        if is_here and word.upper in _CLAUSES and sign(words, index - 1) != "DISTINCT":
            yield index
