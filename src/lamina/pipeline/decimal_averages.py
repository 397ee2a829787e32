"""The average of decimals, over their sum {0} and count {1}, to Spark's digits."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_DIGITS_MAX = 38
_ROUNDED_AT = 38  # decimals, in Spark's avg, before it rounds to the digits of the result
_LIMB, _LIMBS = 19, 3  # digits at a time, and how often, in a long division
_SURE = 12  # decimals more than the result: rounded twice, a sum over 10^12 rows is still right
_FEW = 9  # the same for sums over 10^9 rows


def decimal_average(kind: str, total: str) -> str:
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
