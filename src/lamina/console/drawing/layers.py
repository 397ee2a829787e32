"""A graph in layers: who is read stands left of who reads. Pure, small and the same every time.

A node's layer is the longest way to it; edges over several layers get a place in each of them. In
a few sweeps every node moves to the middle of its neighbours, so that few edges cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 8
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    """Layers from left to right, each from top to bottom; and each edge as the nodes it passes."""

    layers: tuple[tuple[str, ...], ...]
    routes: Mapping[Edge, tuple[str, ...]]

    def is_bend(self, node: str) -> bool:
        """Whether it is only a place that an edge passes."""
        return node.startswith(_BEND)


_BEND = "\0"


def place(nodes: Sequence[str], edges: Sequence[Edge], *, last: Sequence[str] = ()) -> Placed:
    """Edges to unknown nodes, to themselves and in circles are left out; *last* stand rightmost."""
    known = set(nodes)
    kept = list(dict.fromkeys(e for e in edges if e[0] in known and e[1] in known and e[0] != e[1]))
    kept = _without_circles(nodes, kept)
    depth = _depths(nodes, kept)
    depth |= dict.fromkeys(last, max(depth.values(), default=0))
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    routes: dict[Edge, tuple[str, ...]] = {}
    links: list[Edge] = []
    for edge in kept:
        routes[edge] = _route(edge, depth, layers)
        links += zip(routes[edge], routes[edge][1:], strict=False)
    _order(layers, links)
    return Placed(tuple(map(tuple, layers)), routes)


def _depths(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    depth = dict.fromkeys(nodes, 0)
    for _ in nodes:
        before = dict(depth)
        for source, target in edges:
            depth[target] = max(depth[target], depth[source] + 1)
        if depth == before:
            break
    return depth


def _without_circles(nodes: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    after: dict[str, list[str]] = {node: [] for node in nodes}
    kept = []
    for source, target in edges:
        if not _leads(after, target, source):
            after[source].append(target)
            kept.append((source, target))
    return kept


def _leads(after: Mapping[str, Sequence[str]], start: str, goal: str) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node == goal:
            return True
        waiting += [each for each in after[node] if each not in seen]
        seen.update(after[node])
    return False


def _route(edge: Edge, depth: Mapping[str, int], layers: list[list[str]]) -> tuple[str, ...]:
    source, target = edge
    bends = []
    for layer in range(depth[source] + 1, depth[target]):
        bend = f"{_BEND}{source}{_BEND}{target}{_BEND}{layer}"
        layers[layer].append(bend)
        bends.append(bend)
    return (source, *bends, target)


def _order(layers: list[list[str]], links: Sequence[Edge]) -> None:
    """Each sweep sorts by the middle of the neighbours on one side; ties stay as they are."""
    left: dict[str, list[str]] = {}
    right: dict[str, list[str]] = {}
    for source, target in links:
        left.setdefault(target, []).append(source)
        right.setdefault(source, []).append(target)
    for sweep in range(SWEEPS):
        beside = left if sweep % 2 == 0 else right
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            at = _heights(layers)
            wanted = {node: _middle(beside.get(node, ()), at, at[node]) for node in layer}
            layer.sort(key=wanted.__getitem__)


def _heights(layers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Where each stands, with every layer centred."""
    return {
        node: number - (len(layer) - 1) / 2 for layer in layers for number, node in enumerate(layer)
    }


def _middle(neighbours: Sequence[str], at: Mapping[str, float], own: float) -> float:
    return sum(at[each] for each in neighbours) / len(neighbours) if neighbours else own
