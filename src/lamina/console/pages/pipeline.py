"""One pipeline: what it is and does now, its graph, its sinks, its text."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console, Watched
from lamina.console.drawing.graph import draw_graph
from lamina.console.reading.epochs import Recent
from lamina.console.reading.look import Look
from lamina.console.render import Pages, address
from lamina.console.views.epochs import errors_of, plots_of, rates_of, timeline_of
from lamina.console.views.glance import Glance, glance_of
from lamina.console.views.graph import describe, flow_of_look, graph_of
from lamina.console.views.listing import newest_first
from lamina.errors import LaminaError
from lamina.format.epoch_row import EpochRow
from lamina.format.manifest import CheckpointManifest
from lamina.protocol.history import EMPTY

TRIES = 5


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def show(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        recent = watched.epochs.recent() if watched.subject.home else Recent()
        glance = glance_of(look, recent.last)
        manifest = newest_manifest(watched, look)
        return pages.page(
            "pipeline.html",
            title=glance.name,
            watched=watched,
            tab="",
            live=True,
            look=look,
            glance=glance,
            graph=_graph(look, glance, manifest, recent.rows),
            recent=recent,
            timeline=timeline_of(recent.rows, lambda row: _epoch_address(watched, row)),
            plots=plots_of(recent.rows),
            sink_errors=errors_of(recent.rows),
            offsets=_offsets(look, manifest),
        )

    return [Route("/p/{key}", show)]


def newest_manifest(watched: Watched, look: Look) -> CheckpointManifest | None:
    """Of the newest checkpoint that can be read, for its state and its names."""
    if look.rehearsal is not None and look.rehearsal.state.manifest is not None:
        return look.rehearsal.state.manifest
    for each in newest_first(look.history or EMPTY)[:TRIES]:
        try:
            return watched.catalog.open(each).manifest
        except LaminaError:
            continue  # the list of checkpoints says what is wrong with it
    return None


def _epoch_address(watched: Watched, row: EpochRow) -> str:
    return address("p", watched.subject.key, "epochs", before=row.epoch + 1)


def _graph(
    look: Look,
    glance: Glance,
    manifest: CheckpointManifest | None,
    rows: Sequence[EpochRow],
) -> object:
    flow = flow_of_look(look, manifest)
    if flow is None or not flow.parts:
        return None
    rates = rates_of(rows) if look.is_running else {}
    nodes, edges = graph_of(flow, glance, manifest, rates)
    return {
        "picture": draw_graph(nodes, edges, describe(nodes, edges)),
        "is_guessed": flow.is_guessed,
    }


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
