"""What a SELECT may have in SQL and a stream may not: refused by name, with a way around."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.pipeline.aggregate_model import Refusal
from lamina.pipeline.expressions import sign
from lamina.pipeline.tokens import Script, Word

_FIRST = "QUALIFY row_number() OVER (ORDER BY x) <= 10 keeps the first ten rows by x"
_NO_ORDER = Refusal(
    "a stream has no last row, so it has no order",
    f"Leave it out, and sort where the rows are read. {_FIRST}",
)
_NO_END = Refusal(
    "a stream has no end to count to",
    f"{_FIRST}; with PARTITION BY k, of each k. They change as rows come: EMIT ON UPDATE",
)
_PLACED = Refusal("the rows of a stream are placed by their keys", "Leave it out")
_SETS = (
    "Write LEFT SEMI JOIN for INTERSECT and LEFT ANTI JOIN for EXCEPT, with bounds of time: a row "
    "then comes out when no partner can come any more"
)
_TAKES_BACK = Refusal("a row that comes later could take one back that has come out", _SETS)
REFUSED = {
    "ORDER BY": _NO_ORDER,
    "SORT BY": _NO_ORDER,
    "CLUSTER BY": _PLACED,
    "DISTRIBUTE BY": _PLACED,
    "LIMIT": _NO_END,
    "FETCH": _NO_END,
    "OFFSET": Refusal(
        "a stream has no end to count to",
        "Keep the rows before it, too: row_number() OVER (ORDER BY x) AS place in a subquery, and "
        "WHERE place <= 20 around it; who reads them leaves out the first ten",
    ),
    "UNION": Refusal(
        "a SELECT stands on both sides of UNION ALL", "Write SELECT ... UNION ALL SELECT ..."
    ),
    "EXCEPT": _TAKES_BACK,
    "INTERSECT": _TAKES_BACK,
    "MINUS": _TAKES_BACK,
    "TABLESAMPLE": Refusal(
        "a sample would not be the same after a restart",
        "Write WHERE pmod(xxhash64(k), 100) < 5: five of a hundred keys, always the same",
    ),
    "PIVOT": Refusal(
        "which columns it has would depend on the rows",
        "Write an aggregate for each column: sum(x) FILTER (WHERE k = 'a') AS a",
    ),
    "UNPIVOT": Refusal(
        "it makes several rows of one",
        "Write SELECT k, stack(2, 'a', a, 'b', b) AS (name, value) in a stream of its own",
    ),
    "MATCH_RECOGNIZE": Refusal(
        "there are no patterns of rows", "Write a keyed step in Python: it has the rows of a key"
    ),
    "|>": Refusal("a stream is one SELECT", "Write SELECT ... FROM (SELECT ...)"),
}
"""Clauses, outside of brackets."""
REFUSED_CALLS = {
    "WINDOW_TIME": Refusal(
        "of a window there are the start and the end", "Write window.end - INTERVAL 1 MICROSECOND"
    ),
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
        known = REFUSED_CALLS[name]
        raise script.bad(f"{name} in a stream: {known.reason}", word, known.advice)
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
    known = REFUSED[name]
    advice = f"{known.advice}. {_NAME}" if name.isalpha() else known.advice
    raise script.bad(f"{name} in a stream: {known.reason}", word, advice)
