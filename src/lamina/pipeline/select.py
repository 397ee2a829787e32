"""One SELECT block, taken apart by the places of its words; no text is ever made anew.

SELECT items FROM table [WHERE condition] [GROUP BY keys] [HAVING condition]

Everything else that a SELECT may have in SQL is refused here, by name and with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.pipeline.model import Stream
from lamina.pipeline.tokens import Script, Word, read_script

CLAUSES = ("FROM", "WHERE", "GROUP BY", "HAVING")
REFUSED = {
    "DISTINCT": "it would keep every row for ever; GROUP BY the columns instead",
    "ORDER BY": "a stream has no last row, so it has no order",
    "SORT BY": "a stream has no last row, so it has no order",
    "CLUSTER BY": "the rows of a stream are placed by their keys",
    "DISTRIBUTE BY": "the rows of a stream are placed by their keys",
    "LIMIT": "a stream has no end to count to",
    "OFFSET": "a stream has no end to count to",
    "UNION": "a stream is one SELECT; write one stream for each",
    "EXCEPT": "a stream is one SELECT",
    "INTERSECT": "a stream is one SELECT",
    "MINUS": "a stream is one SELECT",
    "JOIN": "joins come later",
    "LATERAL": "put the generator into the SELECT list of a stream of its own",
    "QUALIFY": "window functions look at rows that have not come yet",
    "WINDOW": "window functions look at rows that have not come yet",
    "TABLESAMPLE": "a sample would not be the same after a restart",
    "PIVOT": "write one FILTER aggregate for each column",
    "UNPIVOT": "use stack() in a stream of its own",
}
REFUSED_ANYWHERE = {
    "OVER": "window functions look at rows that have not come yet",
    "GROUPING SETS": "write one stream for each set",
    "ROLLUP": "write one stream for each level",
    "CUBE": "write one stream for each set",
    "SELECT": "a stream is one SELECT; write a stream of its own for the inner one",
}


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
    """Take the SELECT of a stream apart; BadPipeline if it is not one that a stream can be."""
    script = read_script(stream.select, file, stream.place)
    words = script.words
    if words[0].upper != "SELECT":
        raise script.bad(
            f"a stream is one SELECT, and begins with it, not with {words[0].text!r}",
            words[0],
            "Write a stream of its own for each WITH and each subquery",
        )
    _refuse(script, words)
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


def calls(words: tuple[Word, ...]) -> Iterator[tuple[int, int]]:
    """Every function call among *words*: where its name stands, and where its bracket closes."""
    for index, word in enumerate(words[:-1]):
        follows = words[index + 1]
        if follows.text == "(" and not word.is_string and _is_name(word):
            close = next(
                i
                for i in range(index + 2, len(words))
                if words[i].text == ")" and not words[i].is_string and words[i].depth == word.depth
            )
            yield index, close


def _is_name(word: Word) -> bool:
    return word.is_quoted or word.text.replace("_", "a").isalnum()


def _refuse(script: Script, words: tuple[Word, ...]) -> None:
    for index, word in enumerate(words[1:], 1):
        name = word.upper
        if name in REFUSED_ANYWHERE:
            raise script.bad(f"{name} in a stream: {REFUSED_ANYWHERE[name]}", word)
        follows = words[index + 1] if index + 1 < len(words) else None
        is_call = follows is not None and follows.text in ("(", ".")
        is_path = words[index - 1].text == "."
        if name in REFUSED and word.depth == 0 and not is_call and not is_path:
            raise script.bad(f"{name} in a stream: {REFUSED[name]}", word)


def _clauses(script: Script, words: tuple[Word, ...]) -> dict[str, tuple[Word, ...]]:
    found: dict[str, tuple[Word, ...]] = {"SELECT": (), **dict.fromkeys(CLAUSES, ())}
    current, start = "SELECT", 1
    for index, word in enumerate(words):
        if word.depth or word.upper not in CLAUSES:
            continue
        if found[word.upper] or CLAUSES.index(word.upper) < _position(current):
            raise script.bad(f"{word.upper} stands in the wrong place", word)
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
    if table.text == "(" or any(word.text == "," for word in rest):
        raise script.bad("a stream reads FROM one source or stream", table, "Joins come later")
    named = rest[1:] if rest and rest[0].upper == "AS" else rest
    if len(named) > 1:
        raise script.bad(f"{named[1].text!r} is not known after FROM", named[1])
    return table, named[0] if named else None


def _by_comma(script: Script, words: tuple[Word, ...], first: Word) -> Iterator[tuple[Word, ...]]:
    start = 0
    for index, word in enumerate((*words, None)):
        if word is None or (word.text == "," and word.depth == first.depth and not word.is_string):
            if start == index:
                raise script.bad("an expression is missing", word)
            yield words[start:index]
            start = index + 1


def _item(script: Script, words: tuple[Word, ...]) -> Item:
    """An expression and its name: `x AS n`, `x n`, or none."""
    if len(words) >= 3 and words[-2].upper == "AS" and words[-2].depth == 0:
        return Item(words[:-2], words[-1].text)
    if any(word.upper == "AS" and word.depth == 0 for word in words):
        raise script.bad("the name of a column follows AS", words[-1])
    last = words[-1]
    before = words[-2] if len(words) > 1 else None
    ends = before is not None and (before.text == ")" or _is_operand(before))
    if ends and _is_operand(last) and not last.is_string and not last.text.isdigit():
        return Item(words[:-1], last.text)
    return Item(words, None)


def _is_operand(word: Word) -> bool:
    """Whether an expression may end with it: two in a row are an expression and its name."""
    keywords = ("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "THEN", "ELSE", "WHEN", "CASE")
    plain = word.is_string or word.is_quoted or word.text.replace("_", "a").isalnum()
    return plain and word.upper not in (
        *keywords,
        "END",
        "NULL",
        "TRUE",
        "FALSE",
        "DIV",
        "INTERVAL",
    )
