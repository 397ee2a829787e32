"""The last epochs side by side: how long each took, and what for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lamina.console.drawing.svg import join, picture, tag, titled

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 960, 150, 54, 8, 18, 2
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Bar:
    """An epoch: microseconds by phase, in the order they run."""

    epoch: int
    phases: Mapping[str, int]
    href: str
    said: str

    @property
    def total(self) -> int:
        return sum(self.phases.values())


def draw_timeline(bars: Sequence[Bar], label: str, *, said: Callable[[float], str]) -> Markup:
    """*said* puts seconds into words."""
    top = max((bar.total for bar in bars), default=0) or 1
    width = (WIDTH - LEFT) / max(len(bars), 24)
    floor = HEIGHT - BOTTOM
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = floor - (floor - TOP) * share
        parts.append(tag("line", x1=LEFT, x2=WIDTH, y1=y, y2=y, class_="grid"))
        text = said(top * share / 1e6)
        parts.append(tag("text", text, x=LEFT - 7, y=y + 4, text_anchor="end"))
    for number, bar in enumerate(bars):
        parts.append(_bar(bar, LEFT + number * width, width, top, floor))
    if bars:
        last = LEFT + len(bars) * width
        parts.append(tag("text", f"epoch {bars[0].epoch:,}", x=LEFT, y=HEIGHT - 4))
        if len(bars) > 8:
            end = f"{bars[-1].epoch:,}"
            parts.append(tag("text", end, x=last, y=HEIGHT - 4, text_anchor="end"))
    return picture(WIDTH, HEIGHT, label, join(parts), class_="timeline")


def _bar(bar: Bar, x: float, width: float, top: int, floor: int) -> Markup:
    parts = [titled(bar.said)]
    y = float(floor)
    for name, spent in bar.phases.items():
        height = (floor - TOP) * spent / top
        y -= height
        if height >= 0.2:
            thin = max(width - GAP, 1.0)
            parts.append(tag("rect", x=x, y=y, width=thin, height=height, class_=f"phase {name}"))
    area = tag("rect", x=x, y=TOP, width=width, height=floor - TOP, class_="target")
    return tag("a", *parts, area, href=bar.href, tabindex=-1)
