"""The aggregates that a stream can have: the table that the compiler looks in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lamina.pipeline.aggregate_lists import LISTS, several_by
from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal, Row
from lamina.pipeline.aggregate_percentiles import PERCENTILES
from lamina.pipeline.aggregate_sketches import SKETCHES
from lamina.pipeline.aggregate_statistics import STATISTICS
from lamina.pipeline.aggregate_texts import texts
from lamina.pipeline.decimal_averages import decimal_average
from lamina.pipeline.expressions import Words, calls, is_over


def _one(sql: str, merge: str) -> Row:
    aggregate = Aggregate((Part(merge, (sql,)),), "{0}")
    return Row(lambda _: aggregate)


def _by(name: str, extreme: str, merge: str) -> Row:
    """The value of the row with the least or greatest second argument; of equals, any."""
    columns = (f"{name}({{0}}, {{1}})", f"{extreme}({{1}})")
    aggregate = Aggregate((Part(merge, columns),), "{0}")

    def made(asked: Asked) -> Aggregate | Refusal:
        if len(asked.arguments) == 3:
            return several_by(asked, descending=extreme == "max")
        asked.type_of(f"{name}({{all}})")
        return aggregate

    return Row(made)


def _any_value(asked: Asked) -> Aggregate:
    """The least, so that it is the same one whatever the order of rows."""
    asked.type_of("any_value({all})")
    return Aggregate((Part("min", ("min({0})",)),), "{0}")


def _average(of: str = "{all}", arguments: int | None = None) -> Row:
    """Sum over count, in the type of Spark's avg."""

    def made(asked: Asked) -> Aggregate:
        kind, count = asked.type_of(f"avg({of})"), Part("count", (f"count({of})",))
        if not kind.startswith(("decimal", "interval")):
            total = Part("sum", (f"sum(CAST({of} AS DOUBLE))",))
            return Aggregate((total, count), "{0} / CAST({1} AS DOUBLE)")
        total = Part("sum", (f"sum({of})",))
        is_decimal = kind.startswith("decimal")
        final = decimal_average(kind, asked.type_of(f"sum({of})")) if is_decimal else "{0} / {1}"
        return Aggregate((total, count), final)

    return Row(made, arguments)


AGGREGATES: Mapping[str, Row] = {
    "sum": _one("sum({all})", "sum"),
    "count": _one("count({all})", "count"),
    "count_if": _one("count_if({all})", "count"),
    "min": _one("min({all})", "min"),
    "max": _one("max({all})", "max"),
    **dict.fromkeys(("bool_and", "every"), _one("bool_and({all})", "all")),
    **dict.fromkeys(("bool_or", "some", "any"), _one("bool_or({all})", "any")),
    "any_value": Row(_any_value),
    "bit_and": _one("bit_and({all})", "bit_and"),
    "bit_or": _one("bit_or({all})", "bit_or"),
    "bit_xor": _one("bit_xor({all})", "bit_xor"),
    "avg": _average(),
    "mean": _average(),
    "regr_avgx": _average("CASE WHEN ({0}) IS NOT NULL THEN {1} END", arguments=2),
    "regr_avgy": _average("CASE WHEN ({1}) IS NOT NULL THEN {0} END", arguments=2),
    "min_by": _by("min_by", "min", "first_by"),
    "max_by": _by("max_by", "max", "last_by"),
    **STATISTICS,
    **LISTS,
    **PERCENTILES,
    **SKETCHES,
    **texts(_average()),
}
"""By name in lower case."""

_BY_TIME = "Write {0}(x, ts) for the {1} by time"
_FIRST, _LAST = _BY_TIME.format("min_by", "first"), _BY_TIME.format("max_by", "last")
REFUSED: Mapping[str, Refusal] = {
    name: Refusal("which row comes first depends on how Spark reads", advice)
    for names, advice in ((("first", "first_value"), _FIRST), (("last", "last_value"), _LAST))
    for name in names
}
"""Aggregates that a stream cannot have, and what to write instead."""
_OTHERS = ("histogram_numeric", "count_min_sketch", "bitmap_construct_agg", "bitmap_or_agg")
"""Others of Spark's, which are known without it."""
_NAMES = frozenset((*AGGREGATES, *REFUSED, *_OTHERS))


def has_aggregate(words: Words, own: Collection[str] = ()) -> bool:
    """Whether an expression calls one that is known here; with OVER it is a window function.

    *own* are the names of the user's aggregates, in lower case.
    """
    named = ((words[index].text.lower(), close) for index, close in calls(words))
    return any(
        (name in _NAMES or name in own) and not is_over(words, close) for name, close in named
    )


_SAME = frozenset(
    f"{name}({argument})"
    for name in ("sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")
    for argument in ("{all}", "{0}")
)
"""Partials that are, of one row, its argument."""


def of_one_row(partial: str, arguments: Sequence[str], condition: str = "") -> str | None:
    """A partial of a single row, as an expression over the row; None where that is not the same.

    Merged with those of all other rows it is what Spark's own partial is. *condition* is a FILTER.
    """
    kept = [f"({condition})"] if condition else []
    if partial in _SAME and len(arguments) == 1:
        return f"CASE WHEN {kept[0]} THEN {arguments[0]} END" if kept else f"({arguments[0]})"
    if partial == "count_if({all})":
        kept.append(f"({arguments[0]})")
    elif partial == "count({all})" and not any(each.endswith(".*") for each in arguments):
        kept += [f"({each}) IS NOT NULL" for each in arguments if each != "*"]
    else:
        return None
    return f"CASE WHEN {' AND '.join(kept)} THEN 1L ELSE 0L END" if kept else "1L"
