"""Values joined to a text, the most frequent value, and sums that are null where they overflow."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.pipeline.aggregate_changes import MODE, bag_of
from lamina.pipeline.aggregate_lists import unsorted
from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal, Row

JOINED = ("string_agg", "listagg")
"""In the order of WITHIN GROUP; without one sorted, so that the text does not depend on epochs."""
PAIR = "CASE WHEN ({0}) IS NOT NULL THEN named_struct('by', {1}, 'value', CAST({0} AS STRING)) END"
"""A value with what it is ordered by."""
TEXT = "CAST({0} AS STRING)"
_FOR_EVER = "without a window it would keep every value for ever"
_DIGITS_MAX = 38


def _joined(asked: Asked) -> Aggregate | Refusal:
    if not asked.has_window:
        return Refusal(
            _FOR_EVER,
            "Group by a window, or say how many to keep: array_join(slice(sort_array("
            "collect_list(x)), 1, 100), ', ')",
        )
    kind = asked.type_of(f"sort_array(collect_list({asked.arguments[0]}))").removeprefix("array<")
    values = f"sort_array({{0}}{', false' if asked.descending else ''})"
    if kind.startswith("struct<"):
        values = f"transform({values}, e -> e.value)"
    said = f"coalesce(CAST({asked.between} AS STRING), '')".replace("{", "{{").replace("}", "}}")
    part = Part("list_append", ("collect_list({0}){where}",))
    final = f"CASE WHEN size({{0}}) > 0 THEN array_join({values}, {said}) END"
    return unsorted(kind) or Aggregate((part,), final)


def _mode(asked: Asked) -> Aggregate | Refusal:
    """Of several that are as frequent the least."""
    if len(asked.arguments) > 1 and asked.arguments[1].upper() != "TRUE":
        return Refusal("of values that are as frequent it takes the least", "Write mode(x)")
    kind = asked.type_of("mode({0})")
    if not asked.has_window:
        return Refusal(
            _FOR_EVER,
            "Group by a window, or count the values of each key in a subquery, EMIT CHANGES, and "
            "take the first: row_number() OVER (PARTITION BY key ORDER BY n DESC, x) = 1",
        )
    return unsorted(f"{kind}>") or Aggregate((bag_of("{0}"),), MODE)


def _try_sum(asked: Asked) -> Aggregate | Refusal:
    """Added up without a limit, so that null is what the whole sum says, and not a part of it."""
    kind = asked.type_of("try_sum({all})")
    if kind == "bigint":
        total = Part("sum", ("sum(CAST({0} AS DECIMAL(20, 0)))",))
        return Aggregate((total,), "try_cast({0} AS BIGINT)")
    if kind != "double" and _overflows(kind):
        return _no_digits(kind, "try_sum")
    return Aggregate((Part("sum", ("sum({all})",)),), "{0}")


def _try_average(average: Row) -> Row:
    """The average, where the sum cannot overflow."""

    def made(asked: Asked) -> Aggregate | Refusal:
        kind = asked.type_of("try_sum({all})")
        if kind not in ("double", "bigint") and _overflows(kind):
            return _no_digits(kind, "try_avg")
        return average.made(asked)

    return Row(made, arguments=1)


def _overflows(kind: str) -> bool:
    """Whether the sum of so many digits as there are rows may have too many."""
    return not kind.startswith("decimal") or kind.startswith(f"decimal({_DIGITS_MAX}")


def _no_digits(kind: str, name: str) -> Refusal:
    if kind.startswith("decimal"):
        return Refusal(f"a sum of type {kind} may overflow in between", "CAST to DECIMAL(27, s)")
    return Refusal(f"a sum of type {kind} cannot be null", f"Write {name.removeprefix('try_')}(x)")


def texts(average: Row) -> Mapping[str, Row]:
    """The rows of the table; *average* is avg's."""
    return {
        **dict.fromkeys(JOINED, Row(_joined, arguments=1)),
        "mode": Row(_mode),
        "try_sum": Row(_try_sum, arguments=1),
        "try_avg": _try_average(average),
    }
