"""One pipeline: what it is and does now, its graph, its sinks, its text."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console, Watched
from lamina.console.drawing.graph import draw_graph
from lamina.console.reading.look import Look
from lamina.console.render import Pages
from lamina.console.views.glance import Glance, glance_of
from lamina.console.views.graph import describe, flow_of_look, graph_of
from lamina.errors import LaminaError
from lamina.format.manifest import CheckpointManifest


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def show(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        glance = glance_of(look)
        manifest = newest_manifest(watched, look)
        return pages.page(
            "pipeline.html",
            title=glance.name,
            watched=watched,
            tab="",
            live=True,
            look=look,
            glance=glance,
            graph=_graph(look, glance, manifest),
            offsets=_offsets(look, manifest),
        )

    return [Route("/p/{key}", show)]


def newest_manifest(watched: Watched, look: Look) -> CheckpointManifest | None:
    """Of the newest checkpoint that can be read, for its state and its names."""
    if look.rehearsal is not None and look.rehearsal.state.manifest is not None:
        return look.rehearsal.state.manifest
    newest = look.history.newest if look.history else None
    if newest is None:
        return None
    try:
        return watched.catalog.open(newest).manifest
    except LaminaError:
        return None


def _graph(look: Look, glance: Glance, manifest: CheckpointManifest | None) -> object:
    flow = flow_of_look(look, manifest)
    if flow is None or not flow.parts:
        return None
    nodes, edges = graph_of(flow, glance, manifest, rates_of(look))
    return {
        "picture": draw_graph(nodes, edges, describe(nodes, edges)),
        "is_guessed": flow.is_guessed,
    }


def rates_of(look: Look) -> dict[str, float]:
    """Rows a second, as far as the process says: of a pipeline with one source."""
    own, state = look.own_status, look.rehearsal.state if look.rehearsal else None
    if own is None or state is None or len(state.source_offsets) != 1:
        return {}
    return {f"source:{name}": float(own.rows_per_s) for name in state.source_offsets}


def _offsets(
    look: Look, manifest: CheckpointManifest | None
) -> list[tuple[str, str, dict[str, str], int | None]]:
    """Kind, name, where it stands, its watermark."""
    state = look.rehearsal.state if look.rehearsal else None
    sources = state.source_offsets if state else manifest.source_offsets if manifest else {}
    tables = state.table_offsets if state else manifest.table_offsets if manifest else {}
    marks = state.source_watermarks if state else manifest.source_watermarks if manifest else {}
    found: list[tuple[str, str, dict[str, str], int | None]] = [
        ("source", name, dict(sorted(each.offsets.items())), marks.get(name))
        for name, each in sorted(sources.items())
    ]
    found += [
        ("table", name, dict(sorted(each.offsets.items())), None)
        for name, each in sorted(tables.items())
    ]
    return found
