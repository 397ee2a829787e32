"""What makes several rows of one in FROM: LATERAL VIEW, and LATERAL with a function.

FROM t LATERAL VIEW [OUTER] explode(xs) e AS x
FROM t, LATERAL explode(xs) AS e(x)             the same, as Spark gets it: without a join
FROM t LEFT JOIN LATERAL explode(xs) AS e(x) ON TRUE        LATERAL VIEW OUTER
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.pipeline.expressions import Words, by_comma, calls, closing, sign
from lamina.pipeline.tokens import Script, Word

_FORM = "Write LATERAL VIEW explode(list) e AS x, or , LATERAL explode(list) AS e(x)"
_VIEW = ("LATERAL", "VIEW")
_OUTER = (("LEFT", "JOIN", "LATERAL"), ("LEFT", "OUTER", "JOIN", "LATERAL"))
_OPENINGS = (
    _VIEW,
    (",", "LATERAL"),
    ("JOIN", "LATERAL"),
    ("CROSS", "JOIN", "LATERAL"),
    ("INNER", "JOIN", "LATERAL"),
    *_OUTER,
)


@dataclass(frozen=True, slots=True)
class Laterals:
    """All of them, as Spark's LATERAL VIEW, with a space before; and the columns that they name."""

    text: str = ""
    columns: frozenset[str] = frozenset()  # in lower case


def starts_lateral(words: Words, index: int) -> bool:
    """Whether a lateral begins at *index* of FROM."""
    return bool(_opening(words, index))


def read_laterals(script: Script, words: Words) -> Laterals:
    """Every lateral of *words*, which begin with the first."""
    texts: list[str] = []
    columns: set[str] = set()
    while words:
        opening = _opening(words, 0)
        more = (i for i in range(len(opening), len(words)) if starts_lateral(words, i))
        end = next(more, len(words))
        read = _view if opening == _VIEW else _join
        text, named = read(script, words[:end], len(opening), is_outer=opening in _OUTER)
        texts.append(text)
        columns.update(named)
        words = words[end:]
    return Laterals("".join(texts), frozenset(columns))


def _opening(words: Words, index: int) -> tuple[str, ...]:
    """The words with which a lateral begins here, if one does."""
    if words[index].depth != words[0].depth:
        return ()
    found = (
        each
        for each in _OPENINGS
        if tuple(sign(words, index + i) for i in range(len(each))) == each
    )
    return next(found, ())


def _view(script: Script, words: Words, first: int, *, is_outer: bool) -> tuple[str, list[str]]:
    """LATERAL VIEW [OUTER] f(x) e [[AS] a, b]."""
    is_outer = sign(words, first) == "OUTER"
    first += is_outer
    close = _call(script, words, first)
    name, rest = words[close + 1 : close + 2], words[close + 2 :]
    if not name or not name[0].is_name or name[0].upper == "AS":
        raise script.bad("a name follows the function of LATERAL VIEW", words[first], _FORM)
    listed = rest[1:] if sign(rest, 0) == "AS" else rest
    if rest and not listed:
        raise script.bad("the names of columns follow AS", rest[0], _FORM)
    return _text(script, words[first : close + 1], name[0], by_comma(listed), is_outer=is_outer)


def _join(script: Script, words: Words, first: int, *, is_outer: bool) -> tuple[str, list[str]]:
    """, LATERAL f(x) [AS] e [(a, b)] [ON TRUE]."""
    close = _call(script, words, first)
    rest = words[close + 1 :]
    if [sign(rest, i) for i in (len(rest) - 2, len(rest) - 1)] == ["ON", "TRUE"]:
        rest = rest[:-2]
    rest = rest[1:] if sign(rest, 0) == "AS" else rest
    if not rest or not rest[0].is_name:
        raise script.bad("a name follows the function of LATERAL", words[first], _FORM)
    listed = rest[1:]
    if listed:
        if sign(listed, 0) != "(" or closing(listed, 0) != len(listed) - 1:
            raise script.bad(f"{listed[0].text!r} is not known behind LATERAL", listed[0], _FORM)
        listed = listed[1:-1]
    return _text(script, words[first : close + 1], rest[0], by_comma(listed), is_outer=is_outer)


def _call(script: Script, words: Words, first: int) -> int:
    """Where the call at *first* ends."""
    found = dict(calls(words)).get(first)
    if found is None:
        at = words[first] if first < len(words) else words[-1]
        raise script.bad("a function follows LATERAL", at, _FORM)
    return found


def _text(
    script: Script, call: Words, name: Word, columns: list[Words], *, is_outer: bool
) -> tuple[str, list[str]]:
    named = [each for each in columns if each]
    for each in named:
        if len(each) != 1 or not each[0].is_name:
            raise script.bad("the names of columns are expected", each[0], _FORM)
    listed = ", ".join(script.slice(each) for each in named)
    outer = " OUTER" if is_outer else ""
    text = f" LATERAL VIEW{outer} {script.slice(call)} {script.slice((name,))}"
    return (f"{text} AS {listed}" if listed else text), [each[0].text.lower() for each in named]
