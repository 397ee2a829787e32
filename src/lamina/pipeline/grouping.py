"""What GROUP BY says: keys, and the sets of them that rows are grouped by.

GROUP BY a, b                          one set of all keys
GROUP BY ALL                           the keys are the items of the list without an aggregate
GROUP BY GROUPING SETS ((a, b), ())    a set each; () is the total
GROUP BY ROLLUP (a, b)                 (a, b), (a), ()
GROUP BY CUBE (a, b)                   (a, b), (a), (b), ()
GROUP BY a, CUBE (b, c)                each set of one with each set of the other

A bracket inside ROLLUP or CUBE holds keys that come and go together. WITH ROLLUP and WITH CUBE at
the end are the older spelling.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice, product

from lamina.pipeline.aggregates import AGGREGATES, REFUSED
from lamina.pipeline.expressions import Words, by_comma, calls, closing, normal, sign
from lamina.pipeline.tokens import Script, Word

SETS_MAX = 256
Set = tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    keys: tuple[Words, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    """The places of each set's keys; none if all keys are one set."""
    every: Word | None = None  # the ALL that stands for the keys


def read_grouping(
    script: Script, words: Words, items: Sequence[Words], own: Collection[str] = ()
) -> Grouping:
    """The words after GROUP BY, in a SELECT of these *items*; BadPipeline if they make no sense.

    *own* are the names of the user's aggregates, in lower case.
    """
    if not words:
        return Grouping()
    if len(words) == 1 and words[0].upper == "ALL" and not words[0].is_quoted:
        return Grouping(tuple(item for item in items if is_key(item, own)), every=words[0])
    kind = sign(words, len(words) - 1)
    if sign(words, len(words) - 2) == "WITH" and kind in ("ROLLUP", "CUBE"):
        parts = [_analytic(kind, [(each,) for each in _listed(script, words[:-2])])]
    else:
        parts = [_sets(script, each) for each in _listed(script, words)]
    sets = [tuple(chain.from_iterable(each)) for each in islice(product(*parts), SETS_MAX + 1)]
    if len(sets) == 1:
        return Grouping(sets[0])
    keys: dict[tuple[str, ...], Words] = {}
    for key in chain.from_iterable(sets):
        keys.setdefault(_spelled(key), key)
    return Grouping(tuple(keys.values()), _places(script, words, sets, list(keys)))


def is_key(words: Words, own: Collection[str]) -> bool:
    """Whether GROUP BY ALL groups by an item; by a constant there is nothing to group."""
    named = (words[index].text.lower() for index, _ in calls(words))
    has_aggregate = any(name in AGGREGATES or name in REFUSED or name in own for name in named)
    is_constant = len(words) == 1 and (words[0].is_string or words[0].is_number)
    return not has_aggregate and not is_constant


def _sets(script: Script, words: Words) -> list[Set]:
    """The sets that one element of GROUP BY stands for; an expression is a set of itself."""
    kind = sign(words, 0)
    if kind not in ("ROLLUP", "CUBE", "GROUPING SETS") or sign(words, 1) != "(":
        for word in words:
            if word.upper == "GROUPING SETS":
                advice = "Write GROUP BY GROUPING SETS (...) without the keys before it"
                raise script.bad("GROUPING SETS behind an expression", word, advice)
        return [(words,)]
    if closing(words, 1) != len(words) - 1:
        raise script.bad(f"{words[-1].text!r} after {kind} (...)", words[closing(words, 1) + 1])
    inner = _listed(script, words[2:-1])
    if kind != "GROUPING SETS":
        return _analytic(kind, [_bracket(script, each) for each in inner])
    return [each for element in inner for each in _set_of(script, element)]


def _set_of(script: Script, words: Words) -> list[Set]:
    if sign(words, 0) in ("ROLLUP", "CUBE", "GROUPING SETS") and sign(words, 1) == "(":
        return _sets(script, words)
    return [_bracket(script, words)]


def _bracket(script: Script, words: Words) -> Set:
    """The keys in brackets, or the one without them."""
    if sign(words, 0) != "(" or closing(words, 0) != len(words) - 1:
        return (words,)
    return tuple(_listed(script, words[1:-1])) if len(words) > 2 else ()


def _analytic(kind: str, groups: Sequence[Set]) -> list[Set]:
    count = len(groups)
    if kind == "ROLLUP":
        chosen = [tuple(groups[: count - i]) for i in range(count + 1)]
    else:
        subsets = (each for size in range(count, -1, -1) for each in combinations(groups, size))
        chosen = list(islice(subsets, SETS_MAX + 1))
    return [tuple(chain.from_iterable(each)) for each in chosen]


def _listed(script: Script, words: Words) -> list[Words]:
    parts = by_comma(words) if words else [words]
    if not all(parts):
        raise script.bad("an expression is missing", words[-1] if words else None)
    return parts


def _spelled(words: Words) -> tuple[str, ...]:
    return tuple(normal(word) for word in words)


def _places(
    script: Script, words: Words, sets: Sequence[Set], keys: Sequence[tuple[str, ...]]
) -> tuple[tuple[int, ...], ...]:
    if len(sets) > SETS_MAX:
        message = f"more than {SETS_MAX} sets to group by"
        raise script.bad(message, words[0], "Name the ones that are needed: GROUPING SETS (...)")
    places = [tuple(sorted({keys.index(_spelled(key)) for key in each})) for each in sets]
    for number, each in enumerate(places):
        if each in places[:number]:
            named = ", ".join(script.slice(key) for key in sets[number]) or "()"
            message = f"the same set twice: {named}; its rows would come out twice"
            raise script.bad(message, words[0], "Leave one out")
    if not keys:
        raise script.bad("sets without a key", words[0], "Leave GROUP BY out for a total")
    return tuple(places)
