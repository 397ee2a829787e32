"""Lines over time, drawn on the server: few hundred points however long the history is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lamina.console.drawing.svg import join, picture, tag, titled

WIDTH, HEIGHT = 460, 128
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 10, 20
POINTS_MAX = 120


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """Several points as one: their mean, and how far they reach."""

    at: float
    low: float
    mean: float
    high: float


def buckets(points: Sequence[Point], count: int = POINTS_MAX) -> tuple[Bucket, ...]:
    """At most *count*, by number and not by time, in the order of *points*."""
    size = max(1, -(-len(points) // count))
    found = []
    for start in range(0, len(points), size):
        values = [point.value for point in points[start : start + size]]
        middle = points[min(start + size // 2, len(points) - 1)].at
        found.append(Bucket(middle, min(values), sum(values) / len(values), max(values)))
    return tuple(found)


def draw_plot(
    points: Sequence[Point],
    label: str,
    *,
    said: Callable[[float], str],
    when: Callable[[float], str],
    kind: str,
) -> Markup:
    """*said* and *when* put values and places into words."""
    shown = buckets(points)
    top = _round_up(max((each.high for each in shown), default=0.0))
    xs = _positions(shown)
    floor = HEIGHT - BOTTOM

    def y(value: float) -> float:
        return floor - (floor - TOP) * max(value, 0.0) / top

    line = " ".join(f"{x:.1f},{y(b.mean):.1f}" for x, b in zip(xs, shown, strict=True))
    upper = [f"{x:.1f},{y(b.high):.1f}" for x, b in zip(xs, shown, strict=True)]
    lower = [f"{x:.1f},{y(b.low):.1f}" for x, b in zip(xs, shown, strict=True)]
    parts = [*_grid(top, y, said)]
    if len(shown) > 1:
        area = f"{xs[0]:.1f},{floor} {line} {xs[-1]:.1f},{floor}"
        parts.append(tag("polygon", points=area, class_="area"))
        parts.append(tag("polygon", points=" ".join([*upper, *reversed(lower)]), class_="range"))
        parts.append(tag("polyline", points=line, class_="line"))
    elif shown:
        parts.append(tag("circle", cx=xs[0], cy=y(shown[0].mean), r=3, class_="dot"))
    if shown:
        parts += _ends(shown, when)
        parts += _targets(shown, xs, said, when)
    return picture(WIDTH, HEIGHT, label, join(parts), class_=f"plot {kind}")


def _positions(shown: Sequence[Bucket]) -> list[float]:
    """By time; all at one place if time stands still or runs backwards."""
    first, last = shown[0].at if shown else 0.0, shown[-1].at if shown else 0.0
    width = WIDTH - LEFT - RIGHT
    if last <= first:
        step = width / max(len(shown) - 1, 1)
        return [LEFT + step * number for number in range(len(shown))]
    return [LEFT + width * min(max((b.at - first) / (last - first), 0.0), 1.0) for b in shown]


def _grid(top: float, y: Callable[[float], float], said: Callable[[float], str]) -> list[Markup]:
    parts = []
    for share in (0.0, 0.5, 1.0):
        at = y(top * share)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        text = tag("text", said(top * share), x=LEFT - 7, y=at + 4, text_anchor="end")
        parts.append(text)
    return parts


def _ends(shown: Sequence[Bucket], when: Callable[[float], str]) -> list[Markup]:
    y = HEIGHT - 5
    return [
        tag("text", when(shown[0].at), x=LEFT, y=y),
        tag("text", when(shown[-1].at), x=WIDTH - RIGHT, y=y, text_anchor="end"),
    ]


def _targets(
    shown: Sequence[Bucket],
    xs: Sequence[float],
    said: Callable[[float], str],
    when: Callable[[float], str],
) -> list[Markup]:
    """Invisible strips that say what is there."""
    width = (WIDTH - LEFT - RIGHT) / max(len(shown), 1)
    return [
        tag(
            "rect",
            titled(f"{when(b.at)}: {said(b.mean)}" + _reach(b, said)),
            x=x - width / 2,
            y=TOP,
            width=width,
            height=HEIGHT - TOP - BOTTOM,
            class_="target",
        )
        for x, b in zip(xs, shown, strict=True)
    ]


def _reach(bucket: Bucket, said: Callable[[float], str]) -> str:
    return f" ({said(bucket.low)} to {said(bucket.high)})" if bucket.low < bucket.high else ""


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1)
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
