"""The graph of a pipeline with what is known of each part: rows, state, positions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lamina.console.drawing.graph import Edge, Node
from lamina.console.reading.look import Look
from lamina.console.views.glance import Glance
from lamina.console.views.words import short
from lamina.format.manifest import CheckpointManifest
from lamina.front.flow import SINK, SOURCE, Flow, Part, of_names
from lamina.front.words import size


def flow_of_look(look: Look, manifest: CheckpointManifest | None) -> Flow | None:
    """From the file; or from the names that the last start, or a checkpoint, has recorded."""
    if look.definition.flow is not None:
        return look.definition.flow
    record = look.history.pipeline if look.history else None
    if record is not None and (record.streams or record.sources):
        return of_names(record.sources, record.streams, record.sinks)
    if manifest is None:
        return None
    sources = {*manifest.source_names, *manifest.source_offsets}
    return of_names(sources, manifest.operators, {*manifest.sink_names, *manifest.sink_epochs})


def graph_of(
    flow: Flow,
    glance: Glance,
    manifest: CheckpointManifest | None,
    rates: Mapping[str, float],
) -> tuple[list[Node], list[Edge]]:
    """*rates* are rows a second, by id of a part: what a source reads or a sink gets."""
    held = _state_of(flow, manifest)
    sinks = {sink.name: sink for sink in glance.sinks}
    nodes = []
    for part in flow.parts:
        holds = held.get(part.id, "")
        if part.kind == SINK and part.name in sinks:
            at = sinks[part.name]
            behind = f", {at.behind} behind" if at.behind else ""
            holds = f"epoch {at.epoch}{behind}"
        said = part.said or part.kind
        is_last = part.kind == SINK
        nodes.append(Node(part.id, part.kind, part.name, said, holds, is_last))
    labelled: set[str] = set()
    edges = [_edge(source, part, rates, labelled) for part in flow.parts for source in part.inputs]
    return nodes, edges


def _edge(source: str, part: Part, rates: Mapping[str, float], labelled: set[str]) -> Edge:
    """Of edges from a source and to a sink it is known how much flows; each rate is said once."""
    known = source if source.startswith(f"{SOURCE}:") else part.id if part.kind == SINK else ""
    rate = rates.get(known)
    if rate is None:
        return Edge(source, part.id)
    label = "" if known in labelled else f"{short(rate)}/s"
    labelled.add(known)
    return Edge(source, part.id, label, rate > 0, is_last=known == part.id)


def _state_of(flow: Flow, manifest: CheckpointManifest | None) -> dict[str, str]:
    if manifest is None:
        return {}
    total: dict[str, int] = {}
    for name, operator in manifest.operators.items():
        part = flow.owner_of(name)
        if part is not None:
            total[part.id] = total.get(part.id, 0) + operator.total_bytes
    return {id: f"{size(count)} of state" for id, count in total.items()}


def describe(nodes: Iterable[Node], edges: Iterable[Edge]) -> str:
    """The graph in a sentence, for those who do not see it."""
    names = {node.id: node.name for node in nodes}
    pairs = [f"{names[e.source]} to {names[e.target]}" for e in edges if e.source in names]
    return f"Graph of the pipeline: {', '.join(pairs[:40]) or 'parts without connections'}"
