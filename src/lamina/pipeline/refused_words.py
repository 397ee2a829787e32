"""What a SELECT may have in SQL and a stream may not: refused by name, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.pipeline.expressions import sign
from lamina.pipeline.tokens import Script, Word

_NO_ORDER = "a stream has no last row, so it has no order"
_NO_END = "a stream has no end to count to"
_PLACED = "the rows of a stream are placed by their keys"
_ONE = "a stream is one SELECT"
_TAKES_BACK = "a row that comes later could take one back that has come out"
REFUSED = {
    "ORDER BY": _NO_ORDER,
    "SORT BY": _NO_ORDER,
    "CLUSTER BY": _PLACED,
    "DISTRIBUTE BY": _PLACED,
    "LIMIT": _NO_END,
    "OFFSET": _NO_END,
    "UNION": "a SELECT stands on both sides of UNION ALL",
    "EXCEPT": _TAKES_BACK,
    "INTERSECT": _TAKES_BACK,
    "MINUS": _TAKES_BACK,
    "TABLESAMPLE": "a sample would not be the same after a restart",
    "PIVOT": "write one FILTER aggregate for each column",
    "UNPIVOT": "use stack() in a stream of its own",
    "|>": _ONE,
}
"""Clauses, outside of brackets."""
REFUSED_CALLS = {
    "WINDOW_TIME": "write window.end - INTERVAL 1 MICROSECOND",
}
_QUERIES = ("SELECT", "WITH", "TABLE", "FROM", "VALUES")
_NAME = "A column of that name goes in back quotes"


def refuse_others(
    script: Script,
    given: tuple[Word, ...],
    words: tuple[Word, ...],
    inside: Sequence[tuple[Word, ...]],
) -> None:
    """Stop at what a stream may not have, but for what is *inside* of its subqueries."""
    for index, word in enumerate(given):
        if index in (0, len(words)):  # SELECT, and the ORDER BY of a DISTINCT ON
            continue
        if not any(each and each[0].start <= word.start < each[-1].end for each in inside):
            _refuse(script, given, index)


def _refuse(script: Script, words: tuple[Word, ...], index: int) -> None:
    """Stop at what SQL may have here and a stream may not."""
    word, name = words[index], words[index].upper
    before, follows = sign(words, index - 1), sign(words, index + 1)
    if before == "." or follows == "." or not name:
        return  # a column, or a part of its path
    if name == "SELECT" or (before == "(" and name in _QUERIES):
        raise script.bad(
            f"{name} inside an expression: a stream has no end, so nobody knows its value",
            word,
            "A query can be a value in the SELECT list and in WHERE, as x > (SELECT max(y) FROM "
            "...), and WHERE has EXISTS (SELECT ...) and x IN (SELECT ...), with NOT or without, "
            "beside other conditions. Or put it into FROM, or compute what a row is compared with "
            "beside it: max(x) OVER (PARTITION BY ...) over closed windows",
        )
    if name in REFUSED_CALLS and follows == "(":
        raise script.bad(f"{name} in a stream: {REFUSED_CALLS[name]}", word)
    if word.depth == 0:
        _refuse_clause(script, words, index)


def _refuse_clause(script: Script, words: tuple[Word, ...], index: int) -> None:
    word, name = words[index], words[index].upper
    before = sign(words, index - 1)
    named = sign(words, index + 2) == "AS" and sign(words, index + 3) == "("
    if name == "WINDOW" and named:
        raise script.bad("WINDOW in a stream", word, "Write it in the brackets of OVER (...)")
    if name not in REFUSED or before == "AS" or (name == "EXCEPT" and before == "*"):
        return
    raise script.bad(f"{name} in a stream: {REFUSED[name]}", word, _NAME if name.isalpha() else "")
