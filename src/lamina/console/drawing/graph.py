"""The graph of a pipeline: boxes with what they are and hold, edges with what flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lamina.console.drawing.layers import Placed, place
from lamina.console.drawing.svg import cut, join, picture, tag, titled

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 172, 60, 66, 22, 10
BEND_HEIGHT = 18
FITS = 1300
"""What is not wider may be drawn a little smaller; what is wider is scrolled."""
NAME_MAX, SAID_MAX = 20, 24


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    kind: str  # a class of the style sheet
    name: str
    said: str = ""  # the second line
    holds: str = ""  # the third: state, lag
    is_last: bool = False  # it stands at the right end, whoever it reads


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    label: str = ""
    is_busy: bool = False
    is_last: bool = False  # the label stands at its end, not where it begins


def draw_graph(nodes: Sequence[Node], edges: Sequence[Edge], label: str) -> Markup:
    """From left to right; the picture is as large as it must be, and its frame scrolls."""
    last = [node.id for node in nodes if node.is_last]
    placed = place([node.id for node in nodes], [(e.source, e.target) for e in edges], last=last)
    tall = {node.id: HEIGHT if node.holds else HEIGHT - 15 for node in nodes}
    height = max((_height(placed, layer, tall) for layer in placed.layers), default=0)
    centres = _centres(placed, tall, height)
    width = len(placed.layers) * (WIDTH + GAP_X) - GAP_X
    lines = [
        _edge(edge, placed.routes[edge.source, edge.target], centres)
        for edge in edges
        if (edge.source, edge.target) in placed.routes
    ]
    boxes = [_node(node, centres[node.id], tall[node.id]) for node in nodes]
    size = width + 2 * MARGIN, height + 2 * MARGIN
    fits = "graph fits" if size[0] <= FITS else "graph"
    return picture(*size, label, join(lines), join(boxes), class_=fits)


def _height(placed: Placed, layer: Sequence[str], tall: Mapping[str, int]) -> float:
    sizes = [BEND_HEIGHT if placed.is_bend(node) else tall[node] for node in layer]
    return sum(sizes) + GAP_Y * (len(sizes) - 1)


def _centres(
    placed: Placed, tall: Mapping[str, int], height: float
) -> dict[str, tuple[float, float]]:
    centres: dict[str, tuple[float, float]] = {}
    for number, layer in enumerate(placed.layers):
        x = MARGIN + number * (WIDTH + GAP_X)
        y = MARGIN + (height - _height(placed, layer, tall)) / 2
        for node in layer:
            size = BEND_HEIGHT if placed.is_bend(node) else tall[node]
            centres[node] = (x, y + size / 2)
            y += size + GAP_Y
    return centres


def _edge(edge: Edge, route: Sequence[str], at: Mapping[str, tuple[float, float]]) -> Markup:
    x, y = at[route[0]]
    x += WIDTH
    path = f"M{x:.1f} {y:.1f}"
    for step, node in enumerate(route[1:], 1):
        to_x, to_y = at[node]
        half = (to_x - x) / 2
        path += f"C{x + half:.1f} {y:.1f} {to_x - half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
        if step < len(route) - 1:
            x += WIDTH
            path += f"L{x:.1f} {y:.1f}"
    line = tag("path", d=path, class_=f"edge{' busy' if edge.is_busy else ''}")
    if not edge.label:
        return line
    start_x, start_y = at[route[0]]
    x, y, anchor = start_x + WIDTH + 7, start_y - 6, "start"
    if edge.is_last:
        end_x, end_y = at[route[-1]]
        x, y, anchor = end_x - 7, end_y - 6, "end"
    return join([line, tag("text", edge.label, x=x, y=y, class_="flow", text_anchor=anchor)])


def _node(node: Node, at: tuple[float, float], tall: int) -> Markup:
    x, y = at[0], at[1] - tall / 2
    parts = [
        titled(": ".join(part for part in (node.name[:200], node.said, node.holds) if part)),
        tag("rect", x=x, y=y, width=WIDTH, height=tall, rx=7),
        tag("rect", x=x, y=y + 8, width=3, height=tall - 16, rx=1.5, class_="mark"),
        tag("text", cut(node.name, NAME_MAX), x=x + 14, y=y + 19, class_="name"),
        tag("text", cut(node.said, SAID_MAX), x=x + 14, y=y + 35, class_="said"),
    ]
    if node.holds:
        parts.append(tag("text", cut(node.holds, SAID_MAX), x=x + 14, y=y + 51, class_="holds"))
    return tag("g", *parts, class_=f"node {node.kind}")
