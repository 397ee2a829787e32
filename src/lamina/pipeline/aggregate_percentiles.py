"""Exact percentiles: all values of a window are kept, and interpolated as Spark does."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.pipeline.aggregate_model import Aggregate, Asked, Part, Refusal, Row

WITHIN_GROUP = ("percentile_cont", "percentile_disc")
"""Those with the values in ORDER BY: here the values come first, then the percentages."""
_LOW, _HIGH = "CAST(floor(at) AS INT)", "CAST(ceil(at) AS INT)"
_BETWEEN = (
    f"CASE WHEN sorted[{_LOW}] = sorted[{_HIGH}] THEN sorted[{_LOW}] ELSE"
    f" ({_HIGH} - at) * sorted[{_LOW}] + (at - {_LOW}) * sorted[{_HIGH}] END"
)
_PLACE_BETWEEN = "(size(sorted) - 1) * share"
_AT = f"sorted[{_LOW}]"
_PLACE_AT = "CAST(greatest(ceil(size(sorted) * share), 1) - 1 AS DOUBLE)"


def _percentile(name: str, template: str, *, place: str, value: str, share: str = "{1}") -> Row:
    def made(asked: Asked) -> Aggregate | Refusal:
        descending = " DESC" if asked.descending else ""
        kind = asked.type_of(template.replace("{order}", descending))
        several = kind.startswith("array<")
        if kind not in ("double", "array<double>"):
            return Refusal(f"percentiles of type {kind}", "CAST the values to DOUBLE")
        if not asked.has_window:
            return Refusal(
                "without a window it would keep every value for ever",
                "Group by a window, or use percentile_approx(x, 0.5), which keeps a sketch",
            )
        given = asked.arguments[1] if share == "{1}" else share
        shares = given.replace("{", "{{").replace("}", "}}")
        shares = f"CAST({shares if several else f'array({shares})'} AS ARRAY<DOUBLE>)"
        ordered = f"array(sort_array({{0}}{', false' if asked.descending else ''}))"
        # An expression has no variables: a list of one element and a function stand in for them.
        each = f"transform(array({place}), at -> {value})[0]"
        found = f"transform({ordered}, sorted -> transform({shares}, share -> {each}))[0]"
        part = Part("list_append", ("collect_list(CAST({0} AS DOUBLE))",))
        final = f"CASE WHEN size({{0}}) > 0 THEN {found}{'' if several else '[0]'} END"
        return Aggregate((part,), final)

    return Row(made, arguments=1 if name == "median" else 2)


_CONT = {"place": _PLACE_BETWEEN, "value": _BETWEEN}
_DISC = {"place": _PLACE_AT, "value": _AT}
PERCENTILES: Mapping[str, Row] = {
    "percentile": _percentile("percentile", "percentile({0}, {1})", **_CONT),
    "median": _percentile("median", "median({0})", **_CONT, share="0.5D"),
    "percentile_cont": _percentile(
        "percentile_cont", "percentile_cont({1}) WITHIN GROUP (ORDER BY {0}{order})", **_CONT
    ),
    "percentile_disc": _percentile(
        "percentile_disc", "percentile_disc({1}) WITHIN GROUP (ORDER BY {0}{order})", **_DISC
    ),
}
