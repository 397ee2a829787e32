"""Queries that are a value: (SELECT max(x) FROM ...) in the SELECT list, WHERE, QUALIFY, ...

What reads tables alone is given to Spark as it stands, over the rows of FROM: it has one version of
a table in an epoch, like a join. EXISTS over tables can stand anywhere, too. What reads streams is
a LEFT JOIN (scalar_joins.py). The SELECT has a column in place of each: every other word stays
where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lamina.pipeline.expressions import Words, after_dot, closing, sign
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import Script, Word

VALUE = "v"
"""The column that a query is."""
_MANY = 100
_QUERIES = ("SELECT", "WITH")
_OF_FROM = ("WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY", "LIMIT", "UNION", "WINDOW")
_JOINS = (
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "ASOF", "LATERAL", "ON"),
    *("USING", "NATURAL"),
)
_OTHERS = ("EXISTS", "IN", "ANY", "SOME", "ALL", "LATERAL", "ARRAY")
_LATER = ("GROUP BY", "HAVING", "QUALIFY")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One query that is a value, with its brackets; *number* counts the different ones."""

    number: int
    words: Words
    inner: Words
    tables: tuple[str, ...] = ()  # in lower case, if it reads nothing else
    streams: tuple[str, ...] = ()

    @property
    def alias(self) -> str:
        return f"#{self.number}"

    @property
    def is_exists(self) -> bool:
        return self.words[0].upper == "EXISTS"

    @property
    def reference(self) -> str:
        return f"{quoted(self.alias)}.{VALUE}"


def read_scalars(script: Script, *, tables: Collection[str]) -> tuple[Scalar, ...]:
    """The values of a SELECT, but for those in FROM; *tables* are those of the pipeline."""
    words, found = script.words, list[Scalar]()
    numbers: dict[str, int] = {}
    for first, opened in _places(words):
        close = closing(words, opened)
        inner, whole = words[opened + 1 : close], words[first : close + 1]
        read = relations_of(inner)
        of_tables = tuple(name for name in read if name in tables)
        others = tuple(name for name in read if name not in tables)
        if whole[0].upper == "EXISTS" and (others or _is_condition(words, first, close)):
            continue  # a join, or refused elsewhere
        if of_tables and others:
            raise script.bad(
                f"a query inside an expression over the table {of_tables[0]!r} and {others[0]!r}: "
                "rows of a stream do not wait for those of a table",
                whole[0],
                "Make a stream of the join of both, and read that one",
            )
        if len(found) == _MANY:
            advice = "Make some of them streams of their own, and join those"
            raise script.bad(f"more than {_MANY} queries inside expressions", whole[0], advice)
        number = numbers.setdefault(script.slice(whole), len(numbers) + 1)
        found.append(Scalar(number, whole, inner, of_tables, others))
    return tuple(found)


def relations_of(words: Words) -> tuple[str, ...]:
    """What a query reads, in lower case: sources, streams and tables, but for its own WITHs."""
    own = {
        word.text.lower()
        for index, word in enumerate(words)
        if sign(words, index + 1) == "AS"
        and sign(words, index + 2) == "("
        and sign(words, index + 3) in (*_QUERIES, "(")
        and sign(words, index - 1) in ("WITH", ",", "RECURSIVE")
    }
    names = (word.text.lower() for _, word in relations(words) if word.is_name)
    return tuple(dict.fromkeys(name for name in names if name not in own))


def relations(words: Words) -> Iterator[tuple[int, Word]]:
    """What stands behind FROM and JOIN, and behind a comma of FROM: names, and brackets."""
    selects, reading = set[int](), dict[int, bool]()
    for index, word in enumerate(words):
        depth, before = word.depth, sign(words, index - 1)
        if word.upper in (")", "]"):
            selects.discard(depth + 1)
            reading[depth + 1] = False
        if after_dot(words, index):
            continue
        if word.upper == "SELECT":
            selects.add(depth)
            reading[depth] = False
        is_from = word.upper == "FROM" and depth in selects and before != "DISTINCT"
        if is_from or word.upper in _OF_FROM:
            reading[depth] = is_from
        is_table = word.upper == "(" or (word.is_name and sign(words, index + 1) != "(")
        if reading.get(depth) and before in ("FROM", "JOIN", ",") and is_table:
            yield index, word


def alias_of(words: Words, index: int) -> Word | None:
    """The name that what stands at *index* of FROM is given, if any."""
    at = (closing(words, index) if words[index].upper == "(" else index) + 1
    at += sign(words, at) == "AS"
    ends = (*_OF_FROM, *_JOINS, ",", ")", "")
    return (
        words[at] if at < len(words) and words[at].is_name and sign(words, at) not in ends else None
    )


def _places(words: Words) -> Iterator[tuple[int, int]]:
    """Where a value begins, and where its bracket opens."""
    level, until = words[0].depth, 0
    is_from = False
    for index, word in enumerate(words):
        if word.depth == level and not after_dot(words, index):
            if word.upper == "FROM" and sign(words, index - 1) != "DISTINCT":
                is_from = True
            elif word.upper in ("WHERE", *_LATER):
                is_from = False
        is_query = word.upper == "(" and sign(words, index + 1) in _QUERIES
        if not is_query or index < until:
            continue
        until = closing(words, index)
        before = sign(words, index - 1)
        if is_from or (before in _OTHERS and before != "EXISTS"):
            continue
        yield (index - 1 if before == "EXISTS" else index), index


def _is_condition(words: Words, first: int, close: int) -> bool:
    """Whether an EXISTS is all of a condition of WHERE: that is a join with the table."""
    before, after = sign(words, first - 1), sign(words, close + 1)
    level, said = words[0].depth, [word.upper for word in words[:first] if not word.depth]
    is_where = words[first].depth == level and "WHERE" in said
    if not is_where or any(word.upper == "OR" for word in words if word.depth == level):
        return False
    return before in ("WHERE", "AND", "NOT", "!") and after in ("", "AND", *_LATER)


def with_references(script: Script, found: Collection[Scalar]) -> str:
    """The text with a column in place of each; lines and columns stay."""
    text = script.text
    for each in sorted(found, key=lambda scalar: -scalar.words[0].start):
        start, end = each.words[0].start, each.words[-1].end
        blank = "".join(letter if letter == "\n" else " " for letter in text[start:end])
        size = len(each.reference)
        rest = blank if "\n" in blank[:size] else blank[size:]
        text = text[:start] + each.reference + rest + text[end:]
    return text
