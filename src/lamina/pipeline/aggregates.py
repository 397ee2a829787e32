"""What an aggregate is made of: the table that the compiler looks in. A new one is a row here.

partial   what Spark computes of an epoch's rows, one state column each
merge     how old and new values of that column become one (lamina.state.merge)
final     the value that people see, as an expression over the state columns {0}, {1}, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aggregate:
    partials: tuple[tuple[str, str], ...]  # (SQL with {arguments} and {filter}, merge function)
    final: str


def _same(name: str, merge: str) -> Aggregate:
    return Aggregate(((f"{name}({{arguments}}){{filter}}", merge),), "{0}")


_AVERAGE = Aggregate(
    (
        ("sum({arguments}){filter}", "sum"),
        ("count({arguments}){filter}", "count"),
    ),
    "{average}",
)

AGGREGATES: Mapping[str, Aggregate] = {
    "sum": _same("sum", "sum"),
    "count": _same("count", "count"),
    "min": _same("min", "min"),
    "max": _same("max", "max"),
    "avg": _AVERAGE,
    "mean": _AVERAGE,
}
"""By name in lower case. `{average}` is sum over count in the type that Spark's own avg has."""
