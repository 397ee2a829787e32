"""What an aggregate is made of: the table that the compiler looks in. A new one is a row here.

partial   what Spark computes of an epoch's rows: one column of the state each
merge     how old and new values of some of these columns become one (lamina.state.merge)
final     the value that people see, as an expression over the columns {0}, {1}, ...

In partials {0} is the first argument of the call, {1} the second, {all} all of them with commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Partial columns that are merged together."""

    merge: str
    columns: tuple[str, ...]  # in the order of the merge; a FILTER comes behind each


@dataclass(frozen=True, slots=True)
class Aggregate:
    parts: tuple[Part, ...]
    final: str


TypeOf = Callable[[str], str]
"""The type that Spark gives a partial, in lower case; it refuses arguments that do not fit."""


@dataclass(frozen=True, slots=True)
class Row:
    """An aggregate of the table: what it is made of may depend on types."""

    made: Callable[[TypeOf], Aggregate]
    arguments: int | None = None  # how many; None: Spark is asked


def _one(sql: str, merge: str) -> Row:
    aggregate = Aggregate((Part(merge, (sql,)),), "{0}")
    return Row(lambda _: aggregate)


def _by(name: str, extreme: str, merge: str) -> Row:
    """The value of the row with the least or greatest second argument; of equals, any."""
    columns = (f"{name}({{0}}, {{1}})", f"{extreme}({{1}})")
    aggregate = Aggregate((Part(merge, columns),), "{0}")
    return Row(lambda _: aggregate, arguments=2)


def _moments(name: str, final: str) -> Row:
    """What comes of n, mean and m2, the sum of the squared distances to the mean."""
    double = "CAST({all} AS DOUBLE)"
    columns = ("count({all})", f"avg({double})", f"regr_sxx({double}, {double})")
    aggregate = Aggregate((Part("moments", columns),), final)

    def made(type_of: TypeOf) -> Aggregate:
        type_of(f"{name}({{all}})")  # a cast takes more than the function does
        return aggregate

    return Row(made)


def _average(type_of: TypeOf) -> Aggregate:
    """Sum over count, in the type of Spark's avg."""
    kind, count = type_of("avg({all})"), Part("count", ("count({all})",))
    if not kind.startswith(("decimal", "interval")):
        total = Part("sum", ("sum(CAST({all} AS DOUBLE))",))
        return Aggregate((total, count), "{0} / CAST({1} AS DOUBLE)")
    total = Part("sum", ("sum({all})",))
    is_decimal = kind.startswith("decimal")
    final = _decimal_average(kind, type_of("sum({all})")) if is_decimal else "{0} / {1}"
    return Aggregate((total, count), final)


_VAR_POP = "CASE WHEN {0} > 0 THEN {2} / CAST({0} AS DOUBLE) END"
_VAR_SAMP = "CASE WHEN {0} > 1 THEN {2} / CAST({0} - 1 AS DOUBLE) END"
AGGREGATES: Mapping[str, Row] = {
    "sum": _one("sum({all})", "sum"),
    "count": _one("count({all})", "count"),
    "count_if": _one("count_if({all})", "count"),
    "min": _one("min({all})", "min"),
    "max": _one("max({all})", "max"),
    "bool_and": _one("bool_and({all})", "all"),
    "bool_or": _one("bool_or({all})", "any"),
    "avg": Row(_average),
    "mean": Row(_average),
    "min_by": _by("min_by", "min", "first_by"),
    "max_by": _by("max_by", "max", "last_by"),
    "var_pop": _moments("var_pop", _VAR_POP),
    **{name: _moments(name, _VAR_SAMP) for name in ("var_samp", "variance")},
    "stddev_pop": _moments("stddev_pop", f"sqrt({_VAR_POP})"),
    **{name: _moments(name, f"sqrt({_VAR_SAMP})") for name in ("stddev_samp", "stddev", "std")},
}
"""By name in lower case."""

_SAME = ("sum({all})", "min({all})", "max({all})", "bool_and({all})", "bool_or({all})")


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


_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DIGITS_MAX = 38
_ROUNDED_AT = 38  # decimals, in Spark's avg, before it rounds to the digits of the result
_LIMB, _LIMBS = 19, 3  # digits at a time, and how often, in a long division
_SURE = 12  # decimals more than the result: rounded twice, a sum over 10^12 rows is still right
_FEW = 9  # the same for sums over 10^9 rows


def _decimal_average(kind: str, total: str) -> str:
    """As Spark's avg: divided with 38 decimals, then rounded to the digits of the result.

    Spark's `/` has only as many decimals as fit beside the whole digits of its operands. Where
    those are enough it is used; where they are not, digits are divided as on paper.
    """
    _, scale = _digits(kind)
    precision, total_scale = _digits(total)
    count = "CAST({1} AS DECIMAL(20, 0))"
    if _DIGITS_MAX - (precision - total_scale) - scale >= _SURE:
        return f"CAST({{0}} / {count} AS {kind})"
    divided = _long_division(kind, total)
    whole = _DIGITS_MAX - _FEW - scale  # digits that a sum may have for `/` to do
    if whole < 1:
        return f"CASE WHEN {{0}} IS NOT NULL THEN {divided} END"
    small = f"{{1}} < {10**_FEW} AND {{0}} > -{10**whole}BD AND {{0}} < {10**whole}BD"
    narrow = f"CAST({{0}} AS DECIMAL({whole + total_scale}, {total_scale}))"
    quick = f"CAST({narrow} / {count} AS {kind})"
    return f"CASE WHEN {{0}} IS NULL THEN NULL WHEN {small} THEN {quick} ELSE {divided} END"


def _long_division(kind: str, total: str) -> str:
    """The digits of the sum, a limb at a time, over the count; the rest decides how to round."""
    _, scale = _digits(kind)
    _, total_scale = _digits(total)
    count, limb = f"CAST({{1}} AS DECIMAL({_LIMB}, 0))", f"{10**_LIMB}BD"
    zeros = "0" * (scale - total_scale)
    # Not abs(): Spark's has 34 digits, and so has its unary minus.
    digits = f"translate(CAST({{0}} AS STRING), '.-', '') || '{zeros}'"
    padded = f"lpad({digits}, {_LIMB * _LIMBS}, '0')"
    limbs = ", ".join(
        f"CAST(substr({padded}, {1 + _LIMB * i}, {_LIMB}) AS DECIMAL({_LIMB}, 0))"
        for i in range(_LIMBS)
    )
    start = f"named_struct('q', CAST(0 AS DECIMAL(38, 0)), 'r', CAST(0 AS DECIMAL({_LIMB}, 0)))"
    ahead = f"CAST(done.r * {limb} + part AS DECIMAL(38, 0))"
    quotient = f"CAST(({ahead} - {ahead} % {count}) / {count} AS DECIMAL({_LIMB}, 0))"
    step = (
        f"named_struct('q', CAST(done.q * {limb} + {quotient} AS DECIMAL(38, 0)), "
        f"'r', CAST({ahead} % {count} AS DECIMAL({_LIMB}, 0)))"
    )
    # Up from a half; and from nearly a half, if it is one with 38 decimals.
    nearly = 10 ** min(_ROUNDED_AT - scale, _LIMB)
    least = count if scale < _ROUNDED_AT else "0"
    up = f"IF(({count} - done.r * 2) * {nearly}BD <= {least}, 1, 0)"
    rounded = f"CAST(done.q + {up} AS DECIMAL(38, 0))"
    sign = "IF(startswith(CAST({0} AS STRING), '-'), '-', '')"
    value = f"CAST({sign} || CAST({rounded} AS STRING) || 'E-{scale}' AS {kind})"
    return f"aggregate(array({limbs}), {start}, (done, part) -> {step}, done -> {value})"


def _digits(kind: str) -> tuple[int, int]:
    found = _DECIMAL.fullmatch(kind)
    assert found is not None, f"{kind} is no decimal"
    return int(found[1]), int(found[2])
