"""Approximate aggregates, through sketches of Apache DataSketches that Spark and we both merge.

Spark's own approx_count_distinct and percentile_approx keep buffers that it does not show. A sketch
of the same accuracy takes their place: numbers differ from Spark's within that accuracy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal, Row

_RSD = 0.05  # Spark's default
_LG_K_MIN, _LG_K_MAX = 4, 21
_ACCURACY = 10_000  # Spark's default
_K_MIN, _K_MAX = 8, 65_535
_NUMBER = re.compile(r"\d*\.?\d+(e-?\d+)?d?", re.IGNORECASE)
_PLAIN = re.compile(r"tinyint|smallint|int|float|double|decimal\(([1-9]|1[0-5]),.*\)")


def _one(sql: str, merge: str) -> Row:
    aggregate = Aggregate((Part(merge, (sql,)),), "{0}")
    return Row(lambda _: aggregate)


def _distinct(asked: Asked) -> Aggregate | Refusal:
    if len(asked.arguments) > 2:
        return Refusal("it takes a value and a deviation", "Write approx_count_distinct(x, 0.01)")
    asked.type_of("approx_count_distinct({0})")  # a small deviation takes all of Spark's memory
    error = _number(asked, 1, _RSD)
    if error is None:
        return Refusal("the deviation is not a number", "Write it as one: 0.01")
    # Hashed as Spark's function does: so any type will do.
    hashed = f"CASE WHEN ({{0}}) IS NOT NULL THEN xxhash64({{0}}) END, {lg_k(error)}"
    part = Part("hll_union", (f"hll_sketch_agg({hashed})",))
    return Aggregate((part,), "coalesce(hll_sketch_estimate({0}), 0L)")


def lg_k(deviation: float) -> int:
    """The size of an HLL sketch whose relative standard deviation is at most this."""
    return min(max(math.ceil(2 * math.log2(1.04 / deviation)), _LG_K_MIN), _LG_K_MAX)


def _percentile(asked: Asked) -> Aggregate | Refusal:
    kind = asked.type_of("percentile_approx({all})")
    accuracy = _number(asked, 2, _ACCURACY)
    if accuracy is None:
        return Refusal("the accuracy is not a number", "Write it as one: 1000")
    several = kind.startswith("array<")
    ways = _ways(kind.removeprefix("array<").removesuffix(">"))
    if ways is None:
        return Refusal(f"percentiles of type {kind} have no sketch", "CAST it to DOUBLE")
    there, back = ways
    part = Part("kll_union", (f"kll_sketch_agg_double({there}, {kll_k(accuracy)})",))
    asked_for = asked.arguments[1].replace("{", "{{").replace("}", "}}")
    ranks = f"CAST({asked_for} AS {'ARRAY<DOUBLE>' if several else 'DOUBLE'})"
    found = f"kll_sketch_get_quantile_double({{0}}, {ranks})"
    if several:
        found = f"transform({found}, quantile -> {back.format('quantile')})"
    else:
        found = back.format(found)
    return Aggregate((part,), f"CASE WHEN kll_sketch_get_n_double({{0}}) > 0 THEN {found} END")


def kll_k(accuracy: float) -> int:
    """The size of a KLL sketch whose rank error is about 1 / accuracy, of all values."""
    k = math.ceil(math.pow(2.296 * accuracy, 1 / 0.9021))  # DataSketches' own fit
    return min(max(k, _K_MIN), _K_MAX)


def _ways(kind: str) -> tuple[str, str] | None:
    """From a type to doubles and back; None if there is no way."""
    if _PLAIN.fullmatch(kind):
        return "CAST({0} AS DOUBLE)", f"CAST({{}} AS {kind})"
    if kind == "bigint":  # the greatest double that is one, because 2^63 is not
        return "CAST({0} AS DOUBLE)", f"CAST(least({{}}, {float(2**63 - 1024)!r}D) AS BIGINT)"
    if kind == "timestamp":
        return "CAST(unix_micros({0}) AS DOUBLE)", "timestamp_micros(CAST({} AS BIGINT))"
    if kind == "date":
        return "CAST(unix_date({0}) AS DOUBLE)", "date_from_unix_date(CAST({} AS INT))"
    return None


def _number(asked: Asked, index: int, default: float) -> float | None:
    """A number among the arguments; None if something else stands there."""
    if len(asked.arguments) <= index:
        return default
    written = asked.arguments[index]
    number = float(written.rstrip("dD")) if _NUMBER.fullmatch(written) else 0.0
    return number or None


SKETCHES: Mapping[str, Row] = {
    "approx_count_distinct": Row(_distinct),
    **dict.fromkeys(("percentile_approx", "approx_percentile"), Row(_percentile)),
    "hll_sketch_agg": _one("hll_sketch_agg({all})", "hll_union"),
    "kll_sketch_agg_double": _one("kll_sketch_agg_double({all})", "kll_union"),
}
