"""FROM with several tables: which they are, how each is joined, and on what condition.

FROM a [AS x] JOIN b [AS y] ON condition        INNER, LEFT, RIGHT, FULL, LEFT SEMI, LEFT ANTI
FROM a JOIN b USING (k)
FROM a, b WHERE condition                       an inner join
FROM a ASOF JOIN b MATCH_CONDITION (x >= y) ON  one row of b for each of a (asof_clauses.py)

Each join is a block of its own, of two inputs; the next one reads it. A table is a source, a stream
or a subquery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamina.pipeline.asof_clauses import ASOF_KINDS, NO_ASOF, AsofWords, split_asof
from lamina.pipeline.expressions import Words, by_comma, closing, sign
from lamina.pipeline.laterals import starts_lateral
from lamina.pipeline.model import JoinKind
from lamina.pipeline.tokens import Script, Word

_KINDS = {
    ("JOIN",): JoinKind.INNER,
    ("INNER", "JOIN"): JoinKind.INNER,
    ("CROSS", "JOIN"): JoinKind.INNER,
    ("LEFT", "JOIN"): JoinKind.LEFT,
    ("LEFT", "OUTER", "JOIN"): JoinKind.LEFT,
    ("RIGHT", "JOIN"): JoinKind.RIGHT,
    ("RIGHT", "OUTER", "JOIN"): JoinKind.RIGHT,
    ("FULL", "JOIN"): JoinKind.FULL,
    ("FULL", "OUTER", "JOIN"): JoinKind.FULL,
    ("LEFT", "SEMI", "JOIN"): JoinKind.SEMI,
    ("SEMI", "JOIN"): JoinKind.SEMI,
    ("LEFT", "ANTI", "JOIN"): JoinKind.ANTI,
    ("ANTI", "JOIN"): JoinKind.ANTI,
}
_EVERY = {**_KINDS, **ASOF_KINDS}
_ENDS = ("WHERE", "GROUP BY", "HAVING", "QUALIFY")
_TABLES = (
    "FROM has names of sources, streams and tables, and subqueries with a name; and TUMBLE and HOP "
    "of one of them"
)
_OTHERS = {
    "NATURAL": "its columns would change with those of the tables",
}


@dataclass(frozen=True, slots=True)
class Table:
    """What stands in FROM, and the name that its columns have before them."""

    word: Word  # its name, or the bracket that opens
    alias: str
    inner: Words = ()  # of a subquery
    words: Words = ()

    def read(self, scope: Mapping[str, str]) -> str:
        """The source, stream or block; a subquery has a block of its own."""
        name = self.word.text
        return "" if self.inner else scope.get(name.lower(), name)


@dataclass(frozen=True, slots=True)
class JoinClause:
    kind: JoinKind
    table: Table
    on: Words = ()
    using: tuple[str, ...] = ()
    words: Words = ()
    values: tuple[tuple[str, str], ...] = ()  # of x IN (SELECT y ...): x and y
    is_inner: bool = False  # a subquery of WHERE: a name is one of its own table first
    asof: AsofWords = NO_ASOF
    is_value: bool = False  # a query inside an expression: its block is made, not cut


Joins = tuple[Table, tuple[JoinClause, ...]]
"""The first table of FROM, and the others."""


def has_joins(words: Words) -> bool:
    """Whether a SELECT reads several tables, as far as can be told before it is taken apart."""
    said = [word.upper if word.depth == words[0].depth else "" for word in words]
    start = next((i for i, word in enumerate(said) if word == "FROM"), len(said))
    end = next((i for i in range(start, len(said)) if said[i] in _ENDS), len(said))
    return bool(_starts(words[start + 1 : end]))


def read_joins(script: Script, words: Words) -> Joins | None:
    """The tables of FROM, if there are several."""
    starts = _starts(words)
    if not starts:
        return None
    first = read_table(script, words[: starts[0]], words[starts[0]])
    clauses = []
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        clauses.append(_clause(script, words[start:end]))
    aliases = [each.alias.lower() for each in (first, *(clause.table for clause in clauses))]
    for clause in clauses:
        if aliases.count(clause.table.alias.lower()) > 1:
            message = f"two tables of FROM are called {clause.table.alias!r}"
            raise script.bad(message, clause.table.word, "Give each a name with AS")
    return first, tuple(clauses)


def _starts(words: Words) -> list[int]:
    """Where the tables begin that follow the first one.

    Behind a LATERAL VIEW there are none: a comma is one between its columns.
    """
    laterals = (i for i in range(len(words)) if starts_lateral(words, i))
    end = next(laterals, len(words))
    found = [i for i in range(end) if _opening(words, i)]
    return found and [i for i in range(len(words)) if _opening(words, i)]


def _opening(words: Words, index: int) -> tuple[str, ...]:
    """The words with which another table begins here, if one does."""
    if words[index].depth != words[0].depth or starts_lateral(words, index):
        return ()
    if words[index].upper == ",":
        return (",",)
    if index and _opening_at(words, index - 1):
        return ()  # the second word of LEFT JOIN
    if index > 1 and _opening_at(words, index - 2):
        return ()
    return _opening_at(words, index)


def _opening_at(words: Words, index: int) -> tuple[str, ...]:
    for each in (*_EVERY, *((name, "JOIN") for name in _OTHERS)):
        if tuple(sign(words, index + i) for i in range(len(each))) == each:
            return each
    return ()


def _clause(script: Script, words: Words) -> JoinClause:
    opening = _opening(words, 0)
    if opening[0] in _OTHERS:
        message = f"{opening[0]} JOIN in a stream: {_OTHERS[opening[0]]}"
        raise script.bad(message, words[0], "Name the columns: JOIN ... USING (k)")
    kind = JoinKind.INNER if opening == (",",) else _EVERY[opening]
    rest, asof = split_asof(script, words[len(opening) :], opening, kind)
    at = next((i for i in _level(rest) if rest[i].upper in ("ON", "USING")), len(rest))
    table = read_table(script, rest[:at], words[0])
    _refuse_lateral(script, rest[at:])
    condition = rest[at:]
    if not condition:
        if opening not in ((",",), ("CROSS", "JOIN"), ("JOIN",), ("INNER", "JOIN")):
            advice = "Write ON x.key = y.key" if asof.is_asof else _CONDITION
            raise script.bad(f"{' '.join(opening)} without ON", words[0], advice)
        return JoinClause(kind, table, words=words, asof=asof)
    if condition[0].upper == "ON":
        if len(condition) == 1:
            raise script.bad("a condition follows ON", condition[0], _CONDITION)
        return JoinClause(kind, table, condition[1:], words=words, asof=asof)
    if sign(condition, 1) != "(" or closing(condition, 1) != len(condition) - 1:
        raise script.bad("columns in brackets follow USING", condition[0])
    listed = by_comma(condition[2:-1])
    for each in listed:
        if len(each) != 1 or not each[0].is_name:
            raise script.bad("the names of columns follow USING", each[0] if each else condition[0])
    return JoinClause(kind, table, (), tuple(each[0].text for each in listed), words, asof=asof)


_CONDITION = "Write ON with equal columns, and bounds of time: y.ts BETWEEN x.ts AND x.ts + ..."


def _level(words: Words) -> Iterator[int]:
    """Where words stand that are in no bracket."""
    return (i for i, word in enumerate(words) if word.depth == words[0].depth)


def _refuse_lateral(script: Script, words: Words) -> None:
    for index in range(len(words)):
        if starts_lateral(words, index):
            message = "LATERAL beside a join"
            raise script.bad(message, words[index], "Put it into a subquery, or a stream")


def read_table(script: Script, words: Words, at: Word, *, unnamed: str = "") -> Table:
    """A source, a stream or a subquery, and its name; *unnamed* is that of one without."""
    if not words:
        raise script.bad("a source or a stream is missing in FROM", at)
    _refuse_lateral(script, words)
    is_query = sign(words, 0) == "(" and sign(words, 1) in ("SELECT", "WITH", "(")
    close = closing(words, 0) if is_query else 0
    if not is_query and not words[0].is_name:
        raise script.bad("a source or a stream is expected in FROM", words[0], _TABLES)
    rest = words[close + 1 :]
    named = rest[1:] if sign(rest, 0) == "AS" else rest
    if rest and (len(named) != 1 or not named[0].is_name):
        said = named[-1] if named else rest[0]
        raise script.bad(f"{said.text!r} is not known after FROM {words[0].text}", said, _TABLES)
    if is_query and not named and not unnamed:
        raise script.bad("a subquery beside a join has a name", words[0], "Write (...) AS name")
    alias = named[0].text if named else unnamed if is_query else words[0].text
    return Table(words[0], alias, words[1:close] if is_query else (), words)
