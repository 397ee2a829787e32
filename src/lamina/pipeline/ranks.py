"""Top n: row_number() OVER (PARTITION BY key ORDER BY x), with a condition that says how many.

    SELECT ... FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS n FROM t)
    WHERE n <= 3

    SELECT ... FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) = 1

Of each key the n first rows are kept, in one sorted list (the merge function list_sorted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lamina.pipeline.expressions import Words, by_comma, closing, sign
from lamina.pipeline.tokens import Script, Word, whole_number

FUNCTION = "ROW_NUMBER"
ADVICE = (
    "There is row_number() OVER (PARTITION BY key ORDER BY x) with QUALIFY ... <= n, or inside of "
    "FROM (...) WHERE its_name <= n"
)
_TURNED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "=": "=", "==": "=="}


@dataclass(frozen=True, slots=True)
class Ordered:
    """One expression of ORDER BY."""

    words: Words
    descending: bool
    nulls_first: bool

    @property
    def is_usual(self) -> bool:
        """Whether nulls stand where Spark puts them if nothing is said."""
        return self.nulls_first != self.descending

    @property
    def said(self) -> str:
        nulls = "" if self.is_usual else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{'desc' if self.descending else 'asc'}{nulls}"


@dataclass(frozen=True, slots=True)
class Ranked:
    """What rows are ranked by."""

    at: Word
    partition: tuple[Words, ...]
    order: tuple[Ordered, ...]
    item: int | None = None  # which of the SELECT list is the rank
    limit: int | None = None  # how many rows of a key there are, if it is said here

    @property
    def descending(self) -> bool:
        """The direction in which rows are kept: that of the first expression."""
        return self.order[0].descending


def is_ranking(words: Words) -> bool:
    """Whether an expression is a call of row_number(), and nothing else."""
    named = [sign(words, i) for i in range(5)] == [FUNCTION, "(", ")", "OVER", "("]
    return named and closing(words, 4) == len(words) - 1


def read_ranking(script: Script, words: Words) -> Ranked:
    """row_number() OVER (PARTITION BY a, b ORDER BY c DESC)."""
    inner = words[5:-1]
    at = next(
        (i for i, w in enumerate(inner) if w.upper == "ORDER BY" and not _deeper(w, inner)), None
    )
    if at is None or at + 1 == len(inner):
        raise script.bad("row_number() without ORDER BY: which rows come first?", words[0], ADVICE)
    before, order = inner[:at], inner[at + 1 :]
    if before and (before[0].upper != "PARTITION BY" or len(before) < 2):
        raise script.bad("PARTITION BY is expected in OVER (...)", before[0], ADVICE)
    if any(w.upper in ("ROWS", "RANGE") and not _deeper(w, inner) for w in order):
        raise script.bad("row_number() with a frame", words[0], "Leave ROWS or RANGE out")
    keys = tuple(by_comma(before[1:])) if before else ()
    return Ranked(words[0], keys, tuple(_ordered(script, each, order) for each in by_comma(order)))


def _deeper(word: Word, inner: Words) -> bool:
    return word.depth != inner[0].depth


def _ordered(script: Script, words: Words, order: Words) -> Ordered:
    """x [ASC | DESC] [NULLS FIRST | NULLS LAST]: without the last, as Spark has it."""
    nulls = ""
    if sign(words, len(words) - 2) == "NULLS":
        words, nulls = words[:-2], words[-1].upper
        if nulls not in ("FIRST", "LAST"):
            raise script.bad("NULLS FIRST or NULLS LAST is expected", order[0], "Write one of them")
    descending = bool(words) and words[-1].upper == "DESC"
    if words and words[-1].upper in ("ASC", "DESC"):
        words = words[:-1]
    if not words:
        raise script.bad("an expression is missing in ORDER BY", order[0], ADVICE)
    return Ordered(words, descending, nulls == "FIRST" if nulls else not descending)


def limit_in(words: Words, is_rank: Callable[[Words], bool]) -> int | None:
    """The greatest rank that a condition lets through, if one of its ANDs says so."""
    found = [limit for each in _ands(words) if (limit := _limit(each, is_rank)) is not None]
    return min(found, default=None)


def _ands(words: Words) -> Iterator[Words]:
    """The parts of a condition that all must hold; one with an OR is a single part."""
    top = [w.upper if w.depth == words[0].depth else "" for w in words] if words else []
    if "OR" in top:
        yield words
        return
    start, between = 0, False
    for index, name in enumerate(top):
        if name == "BETWEEN":
            between = True
        elif name == "AND" and between:
            between = False
        elif name == "AND":
            yield words[start:index]
            start = index + 1
    yield words[start:]


def _limit(words: Words, is_rank: Callable[[Words], bool]) -> int | None:
    """n of `rank <= n`, `n >= rank`, `rank < n`, `rank = n`, `rank BETWEEN 1 AND n`."""
    for index, word in enumerate(words):
        left, right = words[:index], words[index + 1 :]
        if word.upper == "BETWEEN" and is_rank(left) and sign(right, 1) == "AND":
            return _number(right[2:])
        if word.upper in _TURNED and left and right and word.depth == words[0].depth:
            if is_rank(left):
                return _bounded(word.upper, _number(right))
            if is_rank(right):
                return _bounded(_TURNED[word.upper], _number(left))
    return None


def _number(words: Sequence[Word]) -> int | None:
    return whole_number(words[0].text) if len(words) == 1 and words[0].is_number else None


def _bounded(sign_: str, number: int | None) -> int | None:
    if number is None or sign_ in (">=", ">"):
        return None
    return number - 1 if sign_ == "<" else number
