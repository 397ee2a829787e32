"""One SELECT block, taken apart by the places of its words; its text is never rewritten.

SELECT items FROM table [WHERE condition] [GROUP BY keys] [HAVING condition]

Everything else that a SELECT may have in SQL is refused here, by name and with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from lamina.pipeline.expressions import after_dot, has_implicit_alias, sign
from lamina.pipeline.model import NOWHERE, START, Place, Stream
from lamina.pipeline.tokens import Script, Word, read_script

CLAUSES = ("FROM", "WHERE", "GROUP BY", "HAVING")
_LOOKS_AHEAD = "window functions look at rows that have not come yet"
_NO_ORDER = "a stream has no last row, so it has no order"
_NO_END = "a stream has no end to count to"
_PLACED = "the rows of a stream are placed by their keys"
_ONE = "a stream is one SELECT"
REFUSED = {
    "ORDER BY": _NO_ORDER,
    "SORT BY": _NO_ORDER,
    "CLUSTER BY": _PLACED,
    "DISTRIBUTE BY": _PLACED,
    "LIMIT": _NO_END,
    "OFFSET": _NO_END,
    "UNION": f"{_ONE}; write one stream for each",
    "EXCEPT": _ONE,
    "INTERSECT": _ONE,
    "MINUS": _ONE,
    "JOIN": "joins come later",
    "LATERAL": "put the generator into the SELECT list of a stream of its own",
    "QUALIFY": _LOOKS_AHEAD,
    "TABLESAMPLE": "a sample would not be the same after a restart",
    "PIVOT": "write one FILTER aggregate for each column",
    "UNPIVOT": "use stack() in a stream of its own",
    "|>": _ONE,
}
"""Clauses, outside of brackets."""
REFUSED_CALLS = {
    "ROLLUP": "write one stream for each level",
    "CUBE": "write one stream for each set",
    "SESSION_WINDOW": "sessions come later",
    "WINDOW_TIME": "write window.end - INTERVAL 1 MICROSECOND",
}
_QUERIES = ("SELECT", "WITH", "TABLE", "FROM", "VALUES")
_NAME = "A column of that name goes in back quotes"


@dataclass(frozen=True, slots=True)
class Item:
    """One expression of the SELECT list, and the name that was given to it."""

    words: tuple[Word, ...]
    alias: str | None


@dataclass(frozen=True, slots=True)
class Select:
    """The parts of a block, as words of *script*."""

    script: Script
    items: tuple[Item, ...]
    table: Word
    alias: Word | None
    where: tuple[Word, ...]
    keys: tuple[tuple[Word, ...], ...]
    having: tuple[Word, ...]

    def text(self, words: tuple[Word, ...]) -> str:
        return self.script.slice(words)


def read_select(stream: Stream, file: str) -> Select:
    """Take the SELECT of a stream apart; BadPipeline if it is not one that a stream can be.

    It is parsed once: whoever asks again gets the same value.
    """
    if stream.place == NOWHERE:  # places are those in its own text
        return _read(stream.select, f"stream {stream.name}", START)
    return _read(stream.select, file, stream.place)


@lru_cache(maxsize=1024)
def _read(text: str, file: str, origin: Place) -> Select:
    script = read_script(text, file, origin)
    words = script.words
    if sign(words, 0) != "SELECT":
        raise script.bad(
            f"a stream must begin with SELECT, not with {text[:20]!r}",
            0,
            "Write a stream of its own for each WITH and each subquery",
        )
    for index in range(1, len(words)):
        _refuse(script, words, index)
    clauses = _clauses(script, words)
    table, alias = _table(script, clauses["FROM"], words[0])
    return Select(
        script,
        tuple(_item(script, item) for item in _by_comma(script, clauses["SELECT"], words[0])),
        table,
        alias,
        clauses["WHERE"],
        tuple(_by_comma(script, clauses["GROUP BY"], words[0])) if clauses["GROUP BY"] else (),
        clauses["HAVING"],
    )


def _refuse(script: Script, words: tuple[Word, ...], index: int) -> None:
    """Stop at what SQL may have here and a stream may not."""
    word, name = words[index], words[index].upper
    before, follows = sign(words, index - 1), sign(words, index + 1)
    if before == "." or follows == "." or not name:
        return  # a column, or a part of its path
    if name == "SELECT" or (before == "(" and name in _QUERIES):
        raise script.bad(
            f"{name} inside a stream: {_ONE}",
            word,
            "Write a stream of its own for the inner one",
        )
    if name == "OVER" and before == ")":
        raise script.bad(f"OVER in a stream: {_LOOKS_AHEAD}", word)
    if name == "GROUPING SETS" or (name in REFUSED_CALLS and (follows == "(" or before == "WITH")):
        reason = REFUSED_CALLS.get(name, "write one stream for each set")
        raise script.bad(f"{name} in a stream: {reason}", word)
    if word.depth == 0:
        _refuse_clause(script, words, index)


def _refuse_clause(script: Script, words: tuple[Word, ...], index: int) -> None:
    word, name = words[index], words[index].upper
    before = sign(words, index - 1)
    if before == "SELECT" and name in ("DISTINCT", "ALL"):
        reason = "it would keep every row for ever; GROUP BY the columns instead"
        raise script.bad(
            f"{name} in a stream: {reason if name == 'DISTINCT' else 'leave it out'}", word
        )
    named = sign(words, index + 2) == "AS" and sign(words, index + 3) == "("
    if name == "WINDOW" and named:
        raise script.bad(f"WINDOW in a stream: {_LOOKS_AHEAD}", word)
    if name not in REFUSED or before == "AS" or (name == "EXCEPT" and before == "*"):
        return
    raise script.bad(f"{name} in a stream: {REFUSED[name]}", word, _NAME if name.isalpha() else "")


def _clauses(script: Script, words: tuple[Word, ...]) -> dict[str, tuple[Word, ...]]:
    found: dict[str, tuple[Word, ...]] = {"SELECT": (), **dict.fromkeys(CLAUSES, ())}
    current, start = "SELECT", 1
    for index, word in enumerate(words):
        if word.depth or word.upper not in CLAUSES or after_dot(words, index):
            continue
        if word.upper == "FROM" and sign(words, index - 1) == "DISTINCT":
            continue  # a IS DISTINCT FROM b
        if found[word.upper] or CLAUSES.index(word.upper) < _position(current):
            raise script.bad(f"{word.upper} is in the wrong place", word)
        found[current] = words[start:index]
        if not found[current]:
            raise script.bad(f"nothing follows {current}", word)
        current, start = word.upper, index + 1
    found[current] = words[start:]
    if not found[current]:
        raise script.bad(f"nothing follows {current}", None)
    return found


def _position(clause: str) -> int:
    return -1 if clause == "SELECT" else CLAUSES.index(clause) + 1


def _table(script: Script, words: tuple[Word, ...], first: Word) -> tuple[Word, Word | None]:
    if not words:
        raise script.bad("a stream reads FROM a source or a stream", first)
    table, *rest = words
    if not table.is_name or any(word.upper == "," for word in rest):
        raise script.bad(
            "a stream reads FROM one source or stream", table, "Joins are not supported yet"
        )
    named = rest[1:] if rest and rest[0].upper == "AS" else rest
    for word in named[1:] if named and named[0].is_name else named[:1]:
        raise script.bad(f"{word.text!r} is not known after FROM {table.text}", word)
    if rest and not named:
        raise script.bad("a name follows AS", rest[0])
    return table, named[0] if named else None


def _by_comma(script: Script, words: tuple[Word, ...], first: Word) -> Iterator[tuple[Word, ...]]:
    start = 0
    for index, word in enumerate((*words, None)):
        if word is None or (word.upper == "," and word.depth == first.depth):
            if start == index:
                raise script.bad("an expression is missing", word or words[-1].end)
            yield words[start:index]
            start = index + 1


def _item(script: Script, words: tuple[Word, ...]) -> Item:
    """An expression and its name: `x AS n`, `x n`, or none."""
    named = next((i for i, w in enumerate(words) if w.upper == "AS" and w.depth == 0), None)
    if named is None:
        has_alias = has_implicit_alias(words)
        return Item(words[:-1], words[-1].text) if has_alias else Item(words, None)
    if named == 0:
        raise script.bad("an expression is missing", words[0])
    name = words[named + 1 :]
    if sign(name, 0) == "(":
        return Item(words, None)  # explode(m) AS (k, v)
    if len(name) != 1 or not name[0].is_name:
        raise script.bad("the name of a column follows AS", name[0] if name else words[-1])
    return Item(words[:named], name[0].text)
