"""The 256 vnodes of a state as 16 by 16 fields: a busy key is a dark field."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from lamina.console.drawing.svg import join, picture, tag, titled

SIDE, FIELD, GAP = 16, 17, 2
SHADES = 8


def draw_heat(rows: Sequence[int], label: str) -> Markup:
    """*rows* of each vnode; the fullest has the darkest shade, an empty one none."""
    most = max(rows, default=0)
    fields = [_field(vnode, count, most) for vnode, count in enumerate(rows)]
    size = SIDE * (FIELD + GAP)
    return picture(size, size, label, join(fields), class_="heat")


def shade(rows: int, most: int) -> int:
    """From 0 (none) to SHADES (the fullest)."""
    return 0 if rows <= 0 or most <= 0 else 1 + (SHADES - 1) * rows // most


def _field(vnode: int, rows: int, most: int) -> Markup:
    return tag(
        "rect",
        titled(f"vnode {vnode}: {rows:,} rows"),
        x=vnode % SIDE * (FIELD + GAP),
        y=vnode // SIDE * (FIELD + GAP),
        width=FIELD,
        height=FIELD,
        rx=3,
        class_=f"h{shade(rows, most)}",
    )
