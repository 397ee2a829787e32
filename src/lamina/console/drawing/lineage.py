"""Which checkpoint builds on which, drawn line by line beside their list, newest first.

Each line of development has a lane. A checkpoint that is not built on the one before it (after a
rewind, or in a line that was abandoned) begins a lane of its own, and an edge leads to its parent.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lamina.console.drawing.svg import join, tag

LANE, ROW = 14, 34
LANES_MAX = 8


@dataclass(frozen=True, slots=True)
class Link:
    """A checkpoint and what it builds on; None: on nothing, or on what is gone."""

    id: Hashable
    parent: Hashable | None


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint's part of the picture: lanes that pass, its own, and where edges go."""

    lane: int
    above: tuple[int, ...]  # lanes that come from above
    below: tuple[int, ...]  # lanes that go on below
    joins: tuple[int, ...]  # lanes from above that end here, other than its own
    has_parent: bool


def lanes(links: Sequence[Link]) -> tuple[Row, ...]:
    """*links* newest first. A lane waits for one parent; several may wait for the same."""
    waiting: list[Hashable | None] = []
    rows = []
    for link in links:
        above = tuple(number for number, id in enumerate(waiting) if id is not None)
        mine = [number for number, id in enumerate(waiting) if id == link.id]
        lane = mine[0] if mine else _free(waiting)
        for number in mine:
            waiting[number] = None
        has_parent = link.parent is not None
        if has_parent:
            waiting[lane] = link.parent
        below = tuple(number for number, id in enumerate(waiting) if id is not None)
        rows.append(Row(lane, above, below, tuple(mine[1:]), has_parent))
    return tuple(rows)


def draw_row(row: Row, *, kind: str, width: int) -> Markup:
    """*kind* is a class: full, delta, newest, damaged."""
    middle = ROW / 2
    x = _x(row.lane)
    parts = []
    for number in row.above:
        if number in row.joins:
            path = f"M{_x(number)} 0C{_x(number)} {middle} {x} 0 {x} {middle}"
            parts.append(tag("path", d=path))
        elif number == row.lane or number in row.below:
            end = middle if number == row.lane else ROW
            parts.append(tag("path", d=f"M{_x(number)} 0V{end}"))
    if row.lane in row.below:
        parts.append(tag("path", d=f"M{x} {middle}V{ROW}"))
    parts.append(tag("circle", cx=x, cy=middle, r=4.5, class_=kind))
    return tag(
        "svg",
        join(parts),
        width=width,
        height=ROW,
        viewBox=f"0 0 {width} {ROW}",
        class_="lane",
        aria_hidden="true",
    )


def width_of(rows: Sequence[Row]) -> int:
    most = max((max((row.lane, *row.above, *row.below)) for row in rows), default=0)
    return (min(most, LANES_MAX) + 1) * LANE


def _x(lane: int) -> float:
    return min(lane, LANES_MAX) * LANE + LANE / 2


def _free(waiting: list[Hashable | None]) -> int:
    if None in waiting:
        return waiting.index(None)
    waiting.append(None)
    return len(waiting) - 1
