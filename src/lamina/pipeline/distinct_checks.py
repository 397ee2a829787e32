"""Checks of SELECT DISTINCT and DISTINCT ON, as far as they need no Spark."""

from __future__ import annotations

from collections.abc import Iterable

from lamina.pipeline.blocks import calls_aggregate
from lamina.pipeline.distinct_on import DistinctOn
from lamina.pipeline.keys import is_window
from lamina.pipeline.model import DeclaredSource, Emit
from lamina.pipeline.python_checks import NO_WATERMARK
from lamina.pipeline.shapes import Shape

FOR_EVER = (
    "SELECT DISTINCT keeps its rows for ever, without a watermark; a keyed function in Python can "
    "forget them"
)


def check_distinct(shape: Shape, changing: str | None, sources: Iterable[DeclaredSource]) -> None:
    """BadPipeline at what cannot stand beside DISTINCT; *changing* is a stream of changes it reads.

    *sources* are those that its rows come from.
    """
    select, emit = shape.select, shape.stream.emit
    assert select.distinct is not None
    if select.overs:
        message = "DISTINCT with a window function"
        raise select.script.bad(message, select.overs[0].at, "Put one of them into a subquery")
    if select.on is not None:
        _check_on(shape, select.on, changing, sources)
    if emit is not None and (changing is None or emit is not Emit.CHANGES):
        said = f"EMIT {emit.value.upper()}"
        advice = "Leave it out: a row comes out when it is new, and never changes"
        raise select.script.bad(f"{said} with SELECT DISTINCT", select.distinct, advice)


def _check_on(
    shape: Shape, on: DistinctOn, changing: str | None, sources: Iterable[DeclaredSource]
) -> None:
    select, bad = shape.select, shape.select.script.bad
    if select.keys or select.having or calls_aggregate(select):
        raise bad("DISTINCT ON with GROUP BY or aggregates", on.at, "Put one into a stream before")
    for key in on.keys:
        if is_window(key):
            advice = "Write date_trunc('minute', time), or any other expression"
            raise bad("a window in DISTINCT ON", key[0], advice)
    if changing is not None:
        raise bad(
            f"DISTINCT ON over the changes of {changing!r}: a row that is taken back may have been "
            "the first",
            on.at,
            "Write QUALIFY row_number() OVER (PARTITION BY keys ORDER BY x) = 1 EMIT CHANGES",
        )
    for source in sources:
        if source.watermark is None:
            raise bad(
                f"DISTINCT ON over {source.name!r}, which has no watermark: no key could ever be "
                "forgotten",
                on.at,
                f"{NO_WATERMARK}. {FOR_EVER}",
            )
