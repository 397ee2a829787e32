"""Queries inside of WHERE that are joins: EXISTS (SELECT ...), x IN (SELECT ...), and their NOT.

WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND ...)    a LEFT SEMI JOIN b ON b.k = a.k AND ...
WHERE x IN (SELECT y FROM b WHERE ...)                    a LEFT SEMI JOIN b ON x = y AND ...
WHERE NOT EXISTS (...), WHERE x NOT IN (...)              a LEFT ANTI JOIN b

They stand beside other conditions, with AND. The SELECT that reads the join has `true` in their
place, and blanks: every other word stays where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lamina.errors import BadPipeline
from lamina.pipeline.aggregates import has_aggregate
from lamina.pipeline.expressions import Words, after_dot, by_comma, closing, sign, strength
from lamina.pipeline.join_conditions import conjuncts, stripped
from lamina.pipeline.joins import JoinClause, Joins, Table, has_joins, read_joins, read_table
from lamina.pipeline.model import JoinKind
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import Script, Word
from lamina.pipeline.window_tables import opens_window_table

_QUERIES = ("SELECT", "WITH")
_ENDS = (
    *("GROUP BY", "HAVING", "QUALIFY", "ORDER BY", "SORT BY", "LIMIT", "OFFSET"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS", "LATERAL"),
)
_MAKES_ROWS = ("EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "STACK")
_PREDICATE = 3
"""How tight IN binds: what stands before it must bind tighter, or it is no value."""
_BESIDE = (
    "Put it beside other conditions with AND, or into a stream of its own for each case. Over a "
    "table, EXISTS (SELECT 1 FROM table WHERE y = x) can stand anywhere"
)


@dataclass(frozen=True, slots=True)
class Subquery:
    """One of a WHERE."""

    kind: JoinKind  # SEMI, or ANTI
    words: Words  # all of it
    inner: Words  # in its brackets
    value: Words = ()  # of x IN (...): x

    @property
    def is_exists(self) -> bool:
        return not self.value


def read_subqueries(script: Script) -> tuple[Subquery, ...]:
    """The parts of its WHERE that are joins; what else has a query inside is refused elsewhere."""
    found = []
    for part in conjuncts(clause_of(script.words, "WHERE")):
        asked = _subquery(part)
        if asked is not None:
            found.append(asked)
            continue
        for index, word in enumerate(part):
            if word.upper in ("EXISTS", "IN") and _opens(part, index + 1):
                raise script.bad(
                    f"{word.upper} (SELECT ...) under OR, or inside of an expression: a row would "
                    "have to wait for it, or not, by what the rest says",
                    word,
                    _BESIDE,
                )
    return tuple(found)


def clause_of(words: Words, name: str) -> Words:
    """What follows FROM or WHERE in a SELECT."""
    marks = list(clause_marks(words))
    at = next((i for i, mark in enumerate(marks) if sign(words, mark) == name), None)
    if at is None:
        return ()
    return words[marks[at] + 1 : (*marks, len(words))[at + 1]]


def clause_marks(words: Words) -> Iterator[int]:
    """Where the clauses of a SELECT begin."""
    for index, word in enumerate(words):
        if word.depth != words[0].depth or after_dot(words, index):
            continue
        is_from = word.upper == "FROM" and sign(words, index - 1) != "DISTINCT"
        is_ttl = word.upper == "STATE" and sign(words, index + 1) == "TTL"
        if is_from or is_ttl or word.upper in ("WHERE", *_ENDS):
            yield index


def _subquery(part: Words) -> Subquery | None:
    """EXISTS or IN that is all of a condition, with NOT before it or without."""
    words, is_not = stripped(part), False
    while sign(words, 0) in ("NOT", "!"):
        words, is_not = stripped(words[1:]), not is_not
    if sign(words, 0) == "EXISTS" and _opens(words, 1) and closing(words, 1) == len(words) - 1:
        return Subquery(_kind(is_not), part, words[2:-1])
    level = words[0].depth if words else 0
    for index, word in enumerate(words):
        if word.upper != "IN" or word.depth != level or not _opens(words, index + 1):
            continue
        if closing(words, index + 1) != len(words) - 1:
            return None
        is_negated = sign(words, index - 1) == "NOT"
        value = words[: index - is_negated]
        if not value or strength(value) <= _PREDICATE:
            return None
        return Subquery(_kind(is_not != is_negated), part, words[index + 2 : -1], value)
    return None


def _has_windows(words: Words) -> bool:
    return any(opens_window_table(words, index) for index in range(len(words)))


def _kind(is_not: bool) -> JoinKind:
    return JoinKind.ANTI if is_not else JoinKind.SEMI


def _opens(words: Words, index: int) -> bool:
    return sign(words, index) == "(" and sign(words, index + 1) in _QUERIES


def without(script: Script, found: Collection[Subquery]) -> str:
    """The text with `true` in place of each of them; the others stand where they stood."""
    text = script.text
    for each in found:
        start, end, at = each.words[0].start, each.words[-1].end, each.inner[0].start
        blank = "".join(letter if letter == "\n" else " " for letter in text[start:end])
        put = blank[: at - start] + "true" + blank[at - start + 4 :]
        text = text[:start] + put + text[end:]
    return text


def joins_of(script: Script, found: Collection[Subquery], own: frozenset[str]) -> Joins:
    """The joins of FROM, and then those that the subqueries are; *own* names own aggregates."""
    words = clause_of(script.words, "FROM")
    first, clauses = read_joins(script, words) or (
        read_table(script, words, words[0], unnamed="subquery"),
        (),
    )
    aliases = [first.alias.lower(), *(each.table.alias.lower() for each in clauses)]
    more = []
    for number, each in enumerate(found):
        clause = _Reading(script, each, own).clause(f"subquery {number + 1}", aliases)
        if clause.table.alias.lower() in aliases:
            message = f"two tables of this query are called {clause.table.alias!r}"
            raise script.bad(message, clause.table.word, "Give each a name with AS")
        aliases.append(clause.table.alias.lower())
        more.append(clause)
    return first, (*clauses, *more)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Takes one subquery apart."""

    script: Script
    of: Subquery
    own: frozenset[str]

    def clause(self, name: str, outer: Collection[str]) -> JoinClause:
        parts = self._parts()
        if parts is None:
            return self._of_block(name, outer)
        items, table, where = parts
        self._refuse_queries(where)
        values = () if self.of.is_exists else self._values([self._text(each) for each in items])
        read = read_table(self.script, table, self.of.inner[0])
        return JoinClause(self.of.kind, read, where, (), self.of.words, values, is_inner=True)

    def _parts(self) -> tuple[list[Words], Words, Words] | None:
        """The list, FROM and WHERE of a plain SELECT over one table."""
        words = self.of.inner
        if sign(words, 0) != "SELECT":
            return None
        marks = list(clause_marks(words))
        if [sign(words, i) for i in marks] not in (["FROM"], ["FROM", "WHERE"]):
            return None
        listed, end = words[1 : marks[0]], (*marks, len(words))[1]
        if sign(listed, 0) in ("DISTINCT", "ALL") and sign(listed, 1) not in (",", "."):
            listed = listed[1:]
        makes_rows = any(word.upper in (*_MAKES_ROWS, "OVER", "ON") for word in listed)
        is_plain = not makes_rows and not has_joins(words) and not _has_windows(words)
        if not listed or not is_plain or has_aggregate(listed, self.own):
            return None
        return by_comma(listed), words[marks[0] + 1 : end], words[end + 1 :]

    def _of_block(self, name: str, outer: Collection[str]) -> JoinClause:
        """x IN a query that is a block of its own: it stands for itself."""
        words = self.of.inner
        for index, word in enumerate(words):
            if word.text.lower() in outer and sign(words, index + 1) == ".":
                raise self._bad(f"{word.text}.{words[index + 2].text}", word)
        if self.of.is_exists:
            raise self._bad("EXISTS", words[0])
        marks = [i for i in clause_marks(words) if sign(words, i) == "FROM"]
        if sign(words, 0) != "SELECT" or not marks:
            raise self._bad(words[0].upper, words[0])
        names = []
        for item in by_comma(words[1 : marks[0]]):
            if not item or not item[-1].is_name or item[-1].upper in ("DISTINCT", "END"):
                raise self.script.bad(
                    "a column of IN (SELECT ...) has no name", words[0], "Name it with AS"
                )
            names.append(f"{quoted(name)}.{quoted(item[-1].text)}")
        table = Table(words[0], name, words, self.of.words)
        return JoinClause(
            self.of.kind, table, (), (), self.of.words, self._values(names), is_inner=True
        )

    def _values(self, texts: list[str]) -> tuple[tuple[str, str], ...]:
        """What is compared: x of x IN (SELECT y ...), and y."""
        value = stripped(self.of.value)
        asked = by_comma(value)
        if any(text.split(".")[-1].strip() == "*" for text in texts):
            raise self.script.bad("* in IN (SELECT ...)", self.of.inner[0], "Name the columns")
        if len(asked) != len(texts):
            message = f"IN compares {len(asked)} columns with {len(texts)} of its SELECT"
            raise self.script.bad(message, self.of.inner[0], "Name as many columns")
        return tuple((self._text(one), text) for one, text in zip(asked, texts, strict=True))

    def _refuse_queries(self, where: Words) -> None:
        for index, word in enumerate(where):
            if sign(where, index - 1) == "(" and word.upper in _QUERIES:
                raise self.script.bad(
                    "a query inside of the condition of another one",
                    word,
                    "Make one of them a stream, or a block of WITH",
                )

    def _text(self, words: Words) -> str:
        return self.script.slice(words)

    def _bad(self, what: str, at: Word) -> BadPipeline:
        said = f"{what} in a subquery that is more than a SELECT with WHERE over one table"
        return self.script.bad(
            f"{said}: nobody knows which of its rows belong to which row outside",
            at,
            "Give the inner query, with its groups or joins, a name with WITH, and ask EXISTS "
            "(SELECT 1 FROM name WHERE ...) with equal columns and bounds of time",
        )
