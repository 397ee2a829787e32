"""What an aggregate is made of: the table that the compiler looks in. A new one is a row here.

partial   what Spark computes of an epoch's rows, one state column each
merge     how old and new values of that column become one (lamina.state.merge)
final     the value that people see, as an expression over the state columns {0}, {1}, ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partial:
    sql: str  # with {arguments}; a FILTER comes behind it
    merge: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    partials: tuple[Partial, ...]
    final: str


def _same(name: str, merge: str) -> Aggregate:
    return Aggregate((Partial(f"{name}({{arguments}})", merge),), "{0}")


AGGREGATES: Mapping[str, Aggregate | None] = {
    "sum": _same("sum", "sum"),
    "count": _same("count", "count"),
    "min": _same("min", "min"),
    "max": _same("max", "max"),
    "avg": None,
    "mean": None,
}
"""By name in lower case. What None is made of depends on types: see `average`."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DIGITS_MAX = 38
_COUNT = Partial("count({arguments})", "count")
_SUM = Partial("sum({arguments})", "sum")
_SUM_OF_DOUBLES = Partial("sum(CAST({arguments} AS DOUBLE))", "sum")


def average(kind: str, total: str) -> Aggregate:
    """Sum over count, in the type *kind* that Spark's avg has; *total* is the type of its sum."""
    if _DECIMAL.fullmatch(kind):
        return Aggregate((_SUM, _COUNT), _decimal_average(kind, total))
    if kind.startswith("interval"):
        return Aggregate((_SUM, _COUNT), "{0} / {1}")
    return Aggregate((_SUM_OF_DOUBLES, _COUNT), "{0} / CAST({1} AS DOUBLE)")


def _decimal_average(kind: str, total: str) -> str:
    """Spark's avg divides with 39 decimals; its `/` has as many as fit beside the whole digits."""
    digits, scale = _digits(kind)
    precision, total_scale = _digits(total)
    if _DIGITS_MAX - (precision - total_scale) > scale:
        return f"CAST({{0}} / CAST({{1}} AS DECIMAL(20, 0)) AS {kind})"
    # Long division: the whole part, and then the rest, which is smaller than the count. A sum of
    # two decimals needs room for a digit more; a whole part without that room is an overflow.
    count = "CAST({1} AS DECIMAL(19, 0))"
    rest = f"({{0}} % {count})"
    whole_digits = max(1, min(digits, _DIGITS_MAX - 1) - scale)
    whole = f"CAST(({{0}} - {rest}) / {count} AS DECIMAL({whole_digits}, 0))"
    part = f"CAST({rest} / {count} AS DECIMAL({min(scale + 1, _DIGITS_MAX)}, {scale}))"
    return f"CAST({whole} + {part} AS {kind})"


def _digits(kind: str) -> tuple[int, int]:
    found = _DECIMAL.fullmatch(kind)
    assert found is not None, f"{kind} is no decimal"
    return int(found[1]), int(found[2])
