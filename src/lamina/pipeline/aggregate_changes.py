"""Aggregates over changes: what is kept of rows that may be taken back.

Sums of whole numbers, decimals and intervals, and counts, are added to and taken from. All other
aggregates keep a bag of a group's values (lamina.state.merge_bags): each value with how often it is
there, sorted. What people see is computed of the whole bag, so an epoch costs as much as the groups
that it changes are large. Aggregates of the same values share a bag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lamina.pipeline.aggregate_lists import unsorted
from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal
from lamina.pipeline.decimal_averages import decimal_average
from lamina.pipeline.tokens import whole_number

COUNT_ROWS = Part("count", ("count(*)",))
"""How many rows a group has: without any it is gone."""

_DOUBLE = "CAST({0} AS DOUBLE)"
_BY = "CASE WHEN ({1}) IS NOT NULL THEN named_struct('by', {1}, 'value', {0}) END"
_PAIR = (
    "CASE WHEN ({0}) IS NOT NULL AND ({1}) IS NOT NULL"
    f" THEN named_struct('x', CAST({{1}} AS DOUBLE), 'y', {_DOUBLE}) END"
)
_AVERAGED = {
    "avg": "{0}",
    "mean": "{0}",
    "try_avg": "{0}",
    "regr_avgx": "CASE WHEN ({0}) IS NOT NULL THEN {1} END",
    "regr_avgy": "CASE WHEN ({1}) IS NOT NULL THEN {0} END",
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")

# Of a bag {0}, which is never null:
_N = "aggregate({0}, 0L, (s, e) -> s + e.n)"
_TOTAL = "aggregate({0}, 0D, (s, e) -> s + e.v * CAST(e.n AS DOUBLE))"
_LIST = "flatten(transform({0}, e -> array_repeat(e.v, CAST(e.n AS INT))))"
_VALUES = "transform({0}, e -> e.v)"
_ONCE = "transform({0}, e -> named_struct('v', e.v, 'n', 1L))"
_FIRST, _LAST = "{0}[0].v", "{0}[size({0}) - 1].v"
_SIZE = "CAST(size({0}) AS BIGINT)"
MODE = (
    "CASE WHEN size({0}) > 0 THEN"
    " aggregate({0}, {0}[0], (s, e) -> CASE WHEN e.n > s.n THEN e ELSE s END).v END"
)
"""The value of a bag that is there most often; of several the least."""


def over_changes(
    name: str, known: Aggregate, asked: Asked, *, distinct: bool
) -> Aggregate | Refusal:
    """An aggregate, of which *known* is the one over rows that only come."""
    if not distinct:
        summed = _summed(name, known, asked)
        if summed is not None:
            return summed
    elif name == "try_sum":
        return Refusal("DISTINCT values are added up as sum does it", "Write sum(DISTINCT x)")
    merge = known.parts[0].merge
    if merge in ("hll_union", "kll_union") and name != "approx_count_distinct":
        return Refusal(
            "nothing can be taken out of a sketch again",
            "Use percentile(x, p) or count(DISTINCT x), which keep the values",
        )
    value = _value(name, merge, asked)
    kind = asked.type_of(value)
    refusal = unsorted(f"{kind}>")
    if refusal is not None:
        return refusal
    final = _final(name, known, asked, distinct=distinct)
    return final if isinstance(final, Refusal) else Aggregate((bag_of(value),), final)


def of_distinct(name: str, known: Aggregate, asked: Asked) -> Aggregate | Refusal:
    """An aggregate of DISTINCT values in a session: of a bag that has each value once.

    Two sessions may become one, so their values are kept with them, and become one as well.
    """
    made = over_changes(name, known, asked, distinct=True)
    if isinstance(made, Refusal):
        return made
    value = _value(name, known.parts[0].merge, asked)
    once = f"transform(collect_set({value}){{where}}, v -> named_struct('v', v, 'n', 1L))"
    return Aggregate((Part("bag", (once,)),), made.final)


OWN_DISTINCT = Refusal(
    "DISTINCT is not for aggregates of your own here", "Let partial() take each value once"
)


def bag_of(value: str) -> Part:
    """The bag of all values that are not null."""
    element = f"CASE WHEN ({value}) IS NOT NULL THEN named_struct('v', {value}, 'n', 1L) END"
    return Part("bag", (f"collect_list({element}){{where}}",))


def first_rows(bag: str, limit: int, *, descending: bool) -> str:
    """The first values of a bag, each as often as it is there."""
    ordered = f"slice({f'reverse({bag})' if descending else bag}, 1, {limit})"
    several = f"transform({ordered}, e -> array_repeat(e.v, CAST(least(e.n, {limit}) AS INT)))"
    return f"slice(flatten({several}), 1, {limit})"


def _summed(name: str, known: Aggregate, asked: Asked) -> Aggregate | None:
    """What is added to and taken from; None if that would not be exact."""
    if name in ("count", "count_if"):
        return known
    if name in ("sum", "try_sum") and asked.type_of("sum({all})") != "double":
        counted = Part("count", ("count({all})",))
        return Aggregate((*known.parts, counted), _if_any("{1}", known.final))
    if name not in _AVERAGED:
        return None
    of = _AVERAGED[name]
    if asked.type_of(f"avg({of})") != "double":
        return Aggregate(known.parts, _if_any("{1}", known.final))
    if asked.type_of(of) not in _WHOLE:
        return None
    total = Part("sum", (f"sum(CAST({of} AS DECIMAL(20, 0)))",))
    divided = _if_any("{1}", "CAST({0} AS DOUBLE) / CAST({1} AS DOUBLE)")
    return Aggregate((total, Part("count", (f"count({of})",))), divided)


def _if_any(count: str, value: str) -> str:
    return f"CASE WHEN {count} > 0 THEN {value} END"


def _value(name: str, merge: str, asked: Asked) -> str:
    """What is put into the bag, of one row."""
    is_double = merge == "list_append" and name not in _COLLECTED
    if is_double or (name in ("sum", "try_sum") and asked.type_of("sum({all})") == "double"):
        return _DOUBLE
    if name in _AVERAGED:
        of = _AVERAGED[name]
        return f"CAST({of} AS DOUBLE)" if asked.type_of(f"avg({of})") == "double" else of
    if name == "count" and len(asked.arguments) > 1:
        places = range(len(asked.arguments))
        there = " AND ".join(f"({{{i}}}) IS NOT NULL" for i in places)
        fields = ", ".join(f"'d{i}', {{{i}}}" for i in places)
        return f"CASE WHEN {there} THEN named_struct({fields}) END"
    return _OF_SEVERAL.get(merge) or _OF_SEVERAL.get(name, "{0}")


_COLLECTED = ("collect_list", "array_agg", "collect_set", "string_agg", "listagg")
_OF_SEVERAL = {"comoments": _PAIR, "moments": _DOUBLE, "min_by": _BY, "max_by": _BY}


def _final(name: str, known: Aggregate, asked: Asked, *, distinct: bool) -> str | Refusal:
    """What people see, of a bag."""
    merge = known.parts[0].merge
    bag = _ONCE if distinct else "{0}"
    if merge in ("moments", "comoments"):
        return _of_moments(known.final, bag, merge)
    if name in ("min_by", "max_by") and len(asked.arguments) == 3:
        limit = whole_number(asked.arguments[2]) or 0
        rows = first_rows("{0}", limit, descending=name == "max_by")
        return known.final.replace("{0}", rows)
    if merge == "list_append" or name in ("collect_list", "array_agg"):
        return known.final.replace("{0}", _VALUES if distinct else _LIST)
    if name == "sum" and distinct:
        return _distinct_sum(asked)
    if name in _AVERAGED:
        return _average(asked, _AVERAGED[name], bag)
    return _OF_BAG[name](bag)


_OF_BAG: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("sum", "try_sum"), lambda _: _if_any("size({0})", _TOTAL)),
    "mode": lambda bag: MODE.replace("{0}", bag),
    "count": lambda _: _SIZE,
    "count_if": lambda _: "CAST(size(filter({0}, e -> e.v)) AS BIGINT)",
    "approx_count_distinct": lambda _: _SIZE,
    "collect_set": lambda _: _VALUES,
    **dict.fromkeys(
        ("min", "any_value", "bool_and", "every"), lambda _: _if_any("size({0})", _FIRST)
    ),
    **dict.fromkeys(("max", "bool_or", "some", "any"), lambda _: _if_any("size({0})", _LAST)),
    "min_by": lambda _: _if_any("size({0})", f"{_FIRST}.value"),
    "max_by": lambda _: _if_any("size({0})", f"{_LAST}.value"),
    "bit_and": lambda _: _bits("{0}", "&"),
    "bit_or": lambda _: _bits("{0}", "|"),
    "bit_xor": lambda bag: _bits(f"filter({bag}, e -> e.n % 2 = 1)", "^", f"{_FIRST} ^ {_FIRST}"),
}


def _bits(bag: str, operator: str, least: str = _FIRST) -> str:
    return _if_any("size({0})", f"aggregate({bag}, {least}, (s, e) -> s {operator} e.v)")


def _distinct_sum(asked: Asked) -> str | Refusal:
    kind = asked.type_of("sum({all})")
    if kind.startswith("interval"):
        return Refusal("DISTINCT intervals cannot be added up over changes", "Leave out DISTINCT")
    added = f"aggregate({{0}}, CAST(0 AS {kind}), (s, e) -> CAST(s + e.v AS {kind}))"
    return _if_any("size({0})", added)


def _average(asked: Asked, of: str, bag: str) -> str | Refusal:
    kind = asked.type_of(f"avg({of})")
    if kind == "double":
        total, count = (each.replace("{0}", bag) for each in (_TOTAL, _N))
        return _if_any("size({0})", f"{total} / CAST({count} AS DOUBLE)")
    if not kind.startswith("decimal"):
        return Refusal("DISTINCT intervals have no average over changes", "Leave out DISTINCT")
    total = f"aggregate({{0}}, CAST(0 AS {asked.type_of(f'sum({of})')}), (s, e) -> "
    total += f"CAST(s + e.v AS {asked.type_of(f'sum({of})')}))"
    divided = decimal_average(kind, asked.type_of(f"sum({of})"))
    # An expression has no variables: a list of one element and a function stand in for them.
    both = f"named_struct('total', {total}, 'n', {_SIZE})"
    final = divided.replace("{0}", "both.total").replace("{1}", "both.n")
    return _if_any("size({0})", f"transform(array({both}), both -> {final})[0]")


def _deviation(*means: str) -> str:
    """The sum of products of deviations from the means, over all values of the bag."""
    product = " * ".join(f"(e.{field} - m.{mean})" for field, mean in map(str.split, means))
    return f"aggregate(m.bag, 0D, (s, e) -> s + CAST(e.n AS DOUBLE) * {product})"


_MOMENTS = {
    "m2": _deviation("v v", "v v"),
    "m3": _deviation("v v", "v v", "v v"),
    "m4": _deviation("v v", "v v", "v v", "v v"),
}
_COMOMENTS = {
    "c": _deviation("v.x x", "v.y y"),
    "m2x": _deviation("v.x x", "v.x x"),
    "m2y": _deviation("v.y y", "v.y y"),
}


def _of_moments(final: str, bag: str, merge: str) -> str:
    """A final over n, means and moments, computed of a bag."""
    means: tuple[str, ...] = ("v",) if merge == "moments" else ("x", "y")
    more = _MOMENTS if merge == "moments" else _COMOMENTS
    fields = [f"'bag', {bag}", f"'n', {_N.replace('{0}', bag)}"]
    for mean in means:
        field = "e.v" if mean == "v" else f"e.v.{mean}"
        total = _TOTAL.replace("{0}", bag).replace("e.v", field)
        fields.append(f"'{mean}', {total} / nullif(CAST({_N.replace('{0}', bag)} AS DOUBLE), 0D)")
    first = f"named_struct({', '.join(fields)})"
    passed = ["'n', m.n", *(f"'{mean}', m.{mean}" for mean in means)]
    passed += [f"'{each}', CASE WHEN m.n > 0 THEN {text} END" for each, text in more.items()]
    moments = f"transform(array({first}), m -> named_struct({', '.join(passed)}))"
    names = [f"m.{each}" for each in ("n", *means, *more)]
    return f"transform({moments}, m -> {final.format(*names)})[0]"
