"""Window functions of a stream: over whole windows, or ranks of which a few rows are kept."""

from __future__ import annotations

from lamina.pipeline.blocks import calls_aggregate
from lamina.pipeline.ranks import ADVICE, Ranked
from lamina.pipeline.select import Select

TOP_MAX = 10_000
"""Rows of a key that may be kept: they are one value of the state, written as a whole (R10)."""


def check_overs(select: Select) -> None:
    """BadPipeline if they look at rows of other epochs (whole_windows.py) and are not kept."""
    if not select.overs or select.is_whole or select.ranked is not None:
        return
    if select.not_ranked is not None:
        raise select.not_ranked
    raise select.script.bad("row_number() inside an expression", select.overs[0].at, ADVICE)


def check_ranked(select: Select, ranked: Ranked, top: int | None) -> None:
    """*top* is how many rows of a key those that read it let through."""
    script = select.script
    if select.keys or select.having or calls_aggregate(select):
        message = "row_number() beside GROUP BY or aggregates"
        raise script.bad(message, ranked.at, "Group in a subquery: FROM (SELECT ... GROUP BY)")
    limit = top if ranked.limit is None else ranked.limit
    if limit is None:
        message = "row_number() without a limit would keep every row for ever"
        raise script.bad(message, ranked.at, ADVICE)
    if not 1 <= limit <= TOP_MAX:
        message = f"row_number() <= {limit}: between 1 and {TOP_MAX} rows of a key can be kept"
        advice = f"Write a number up to {TOP_MAX}. Of closed windows all rows can be ranked"
        raise script.bad(message, ranked.at, advice)
