"""What an aggregate is made of.

partial   what Spark computes of an epoch's rows: one column of the state each
merge     how old and new values of some of these columns become one (lamina.state.merge)
final     the value that people see, as an expression over the columns {0}, {1}, ...

In partials {0} is the first argument of the call, {1} the second, {all} all of them with commas. A
FILTER comes behind the partial, or in each place that says {where}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Own:
    """What a column of one of the user's own aggregates holds."""

    name: str
    of_bag: bool = False  # the arguments of its rows, each with how often it is there
    distinct: bool = False  # of these each counts once


@dataclass(frozen=True, slots=True)
class Part:
    """Partial columns that are merged together."""

    merge: str
    columns: tuple[str, ...]  # in the order of the merge
    options: Mapping[str, int | bool] = field(default_factory=dict)
    own: Own | None = None
    said: str = ""  # what its one column holds, as a template, if that is not what Spark computes
    of_row: str = ""  # the same of one row, as a template, if it is not what of_one_row says


@dataclass(frozen=True, slots=True)
class Aggregate:
    parts: tuple[Part, ...]
    final: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why this call cannot be kept as state, and what to write instead."""

    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of an aggregate."""

    type_of: Callable[[str], str]
    """The type that Spark gives a partial, in lower case; it refuses what does not fit."""
    arguments: tuple[str, ...]
    limit: int | None = None  # slice(collect_list(x), 1, limit)
    descending: bool = False  # slice(sort_array(collect_list(x), false), 1, limit)
    has_window: bool = False
    between: str = "''"  # of string_agg: the separator


@dataclass(frozen=True, slots=True)
class Row:
    """An aggregate of the table: what it is made of may depend on types."""

    made: Callable[[Asked], Aggregate | Refusal]
    arguments: int | None = None  # how many; None: Spark is asked
