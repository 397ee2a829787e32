"""Aggregates that are computed of moments: variances, correlations, regressions.

Formulas, and what comes of no value, of one and of equal ones, are those of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Row

_DOUBLE = "CAST({all} AS DOUBLE)"
_MOMENTS = Part("moments", ("count({all})", f"avg({_DOUBLE})", f"regr_sxx({_DOUBLE}, {_DOUBLE})"))
_N, _M2 = f"count({_DOUBLE}){{where}}", f"regr_sxx({_DOUBLE}, {_DOUBLE}){{where}}"
# Spark shows no third and fourth moment, but what it makes of them: taken back to them again.
_M3 = (
    f"coalesce(skewness({_DOUBLE}){{where}}, 0D) * sqrt({_M2} * {_M2} * {_M2})"
    f" / sqrt(CAST(nullif({_N}, 0) AS DOUBLE))"
)
_M4 = (
    f"(coalesce(kurtosis({_DOUBLE}){{where}}, 0D) + 3D) * {_M2} * {_M2}"
    f" / CAST(nullif({_N}, 0) AS DOUBLE)"
)
_FOUR_MOMENTS = Part("moments", (*_MOMENTS.columns, _M3, _M4))
_PAIR = "CAST({0} AS DOUBLE), CAST({1} AS DOUBLE)"
_PAIRS = Part(
    "comoments",
    tuple(
        f"{name}({_PAIR})"
        for name in ("regr_count", "regr_avgx", "regr_avgy", "regr_sxy", "regr_sxx", "regr_syy")
    ),
)
"""The first argument is y, as in Spark's regr_: n, mean of x, mean of y, c, m2 of x, m2 of y."""


def _over(part: Part, name: str, final: str, arguments: int | None = None) -> Row:
    aggregate = Aggregate((part,), final)

    def made(asked: Asked) -> Aggregate:
        asked.type_of(f"{name}({{all}})")  # a cast takes more than the function does
        return aggregate

    return Row(made, arguments)


_VAR_POP = "CASE WHEN {0} > 0 THEN {2} / CAST({0} AS DOUBLE) END"
_VAR_SAMP = "CASE WHEN {0} > 1 THEN {2} / CAST({0} - 1 AS DOUBLE) END"
_OF_MOMENTS = {
    "var_pop": _VAR_POP,
    "var_samp": _VAR_SAMP,
    "variance": _VAR_SAMP,
    "stddev_pop": f"sqrt({_VAR_POP})",
    "stddev_samp": f"sqrt({_VAR_SAMP})",
    "stddev": f"sqrt({_VAR_SAMP})",
    "std": f"sqrt({_VAR_SAMP})",
}
_OF_FOUR_MOMENTS = {
    "skewness": "CASE WHEN {2} <> 0"
    " THEN sqrt(CAST({0} AS DOUBLE)) * {3} / sqrt({2} * {2} * {2}) END",
    "kurtosis": "CASE WHEN {2} <> 0 THEN CAST({0} AS DOUBLE) * {4} / ({2} * {2}) - 3D END",
}
_CORR = "{3} / nullif(sqrt({4} * {5}), 0D)"
_OF_PAIRS = {
    "covar_pop": "CASE WHEN {0} > 0 THEN {3} / CAST({0} AS DOUBLE) END",
    "covar_samp": "CASE WHEN {0} > 1 THEN {3} / CAST({0} - 1 AS DOUBLE) END",
    "corr": f"CASE WHEN {{0}} > 1 THEN {_CORR} END",
    "regr_count": "{0}",
    "regr_sxy": "{3}",
    "regr_sxx": "{4}",
    "regr_syy": "{5}",
    "regr_r2": "CASE WHEN {4} = 0 THEN NULL WHEN {5} = 0 THEN 1D"
    f" ELSE ({_CORR}) * ({_CORR}) END",
    "regr_slope": "{3} / nullif({4}, 0D)",
    "regr_intercept": "{2} - {3} / nullif({4}, 0D) * {1}",
}
STATISTICS: Mapping[str, Row] = {
    **{name: _over(_MOMENTS, name, final) for name, final in _OF_MOMENTS.items()},
    **{name: _over(_FOUR_MOMENTS, name, final) for name, final in _OF_FOUR_MOMENTS.items()},
    **{name: _over(_PAIRS, name, final, arguments=2) for name, final in _OF_PAIRS.items()},
}
