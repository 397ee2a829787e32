"""Aggregates that keep values: collect_list, collect_set.

Which order Spark collects rows in, nobody can say. Here a list is always sorted: so it is the same
however rows came, and equals sort_array(collect_list(x)) over all of them. A group that lasts for
ever must say how many values it keeps: slice(sort_array(collect_list(x)), 1, 100).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal, Row
from lamina.pipeline.expressions import Words, sign
from lamina.pipeline.tokens import whole_number

_SORTS = ("SORT_ARRAY", "ARRAY_SORT")
_UNSORTED = re.compile(r"\b(array<|map<|variant\b|interval (year|month)|string collate)")
FOR_EVER = Refusal(
    "without a window it would keep every value for ever",
    "Group by a window, or say how many to keep: slice(sort_array({0}), 1, 100)",
)


def _collected(name: str, *, distinct: bool) -> Row:
    def made(asked: Asked) -> Aggregate | Refusal:
        collected = f"{name}({{0}}){{where}}"
        kind = asked.type_of(f"sort_array({name}({{0}}))").removeprefix("array<")
        if asked.limit is None and not asked.has_window:
            return Refusal(FOR_EVER.reason, FOR_EVER.advice.format(f"{name}({asked.arguments[0]})"))
        if asked.limit is None and not distinct:
            # Sorted when it is shown: appending costs less, and elements may be of any type.
            return Aggregate((Part("list_append", (collected,)),), "sort_array({0})")
        return unsorted(kind) or Aggregate((_sorted(collected, asked, distinct=distinct),), "{0}")

    return Row(made, arguments=1)


def several_by(asked: Asked, *, descending: bool) -> Aggregate | Refusal:
    """The values of the rows with the least or greatest second arguments; of equals, by value."""
    limit = whole_number(asked.arguments[2])
    if not limit:
        return Refusal("it keeps a number of values", "Write that number as third argument")
    pair = "CASE WHEN ({1}) IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END"
    kind = asked.type_of(f"sort_array(collect_list({pair}))").removeprefix("array<")
    part = _sorted(
        f"collect_list({pair}){{where}}",
        replace(asked, limit=limit, descending=descending),
        distinct=False,
    )
    final = "CASE WHEN size({0}) > 0 THEN transform({0}, pair -> pair.value) END"
    return unsorted(kind) or Aggregate((part,), final)


def unsorted(kind: str) -> Refusal | None:
    if not _UNSORTED.search(kind):
        return None
    return Refusal(
        f"elements of type {kind.removesuffix('>')} have no order here",
        "Keep numbers, texts, times or structs of them",
    )


def _sorted(collected: str, asked: Asked, *, distinct: bool) -> Part:
    options: dict[str, int | bool] = {"distinct": True} if distinct else {}
    descending = ", false" if asked.descending else ""
    partial = f"sort_array({collected}{descending})"
    if asked.limit is not None:
        options["limit"] = asked.limit
        partial = f"slice({partial}, 1, {asked.limit})"
    if asked.descending:
        options["descending"] = True
    return Part("list_sorted", (partial,), options)


def limit_around(words: Words, first: int, last: int) -> tuple[int | None, bool]:
    """How many elements of the list at *first* to *last* are looked at, and from which end."""
    descending = False
    if sign(words, first - 1) == "(" and sign(words, first - 2) in _SORTS:
        after = [sign(words, last + step) for step in (1, 2, 3)]
        if after[0] == ")":
            first, last = first - 2, last + 1
        elif after[0] == "," and after[1] in ("TRUE", "FALSE") and after[2] == ")":
            descending = after[1] == "FALSE" and sign(words, first - 2) == "SORT_ARRAY"
            first, last = first - 2, last + 3
    is_slice = sign(words, first - 2) == "SLICE" and sign(words, first - 1) == "("
    rest = [sign(words, last + step) for step in (1, 2, 3, 5)]
    if not is_slice or rest != [",", "1", ",", ")"]:
        return None, False
    limit = whole_number(words[last + 4].text)
    return (limit, descending) if limit else (None, False)


LISTS: Mapping[str, Row] = {
    **{name: _collected(name, distinct=False) for name in ("collect_list", "array_agg")},
    "collect_set": _collected("collect_set", distinct=True),
}
