"""Checkpoints: the list with its lineage, and one of them with all that is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console, Watched
from lamina.console.drawing.heat import draw_heat
from lamina.console.reading.catalog import Facts, own_artifacts
from lamina.console.reading.heat import Heat, heat_of
from lamina.console.reading.look import Look, Trouble
from lamina.console.render import Pages
from lamina.console.views.listing import PER_PAGE, Pager, newest_first, rows_of, shown_of
from lamina.errors import LaminaError, NotFound
from lamina.format.log import Committed
from lamina.format.manifest import CheckpointManifest, SinkCommitStatus
from lamina.format.manifest import Failed as FailedStatus
from lamina.format.manifest import Pending as PendingStatus
from lamina.ids import CheckpointId
from lamina.protocol.history import EMPTY

FILES_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class OperatorLine:
    name: str
    partitions: int
    runs: int
    rows: int | None
    bytes: int
    is_keyed: bool
    hash: str = ""


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def listing(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        history = look.history or EMPTY
        checkpoints = newest_first(history)
        asked = request.query_params.get("page", "1")
        pager = Pager.of(asked, len(checkpoints), PER_PAGE)
        shown = shown_of(checkpoints, pager)
        facts: Mapping[CheckpointId, Facts] = {}
        trouble = None
        try:
            facts = watched.catalog.facts(shown)
        except LaminaError as error:  # no store at all
            shown, trouble = (), Trouble.of("store", error)
        return pages.page(
            "checkpoints.html",
            title=f"Checkpoints of {watched.subject.name}",
            watched=watched,
            tab="checkpoints",
            live=True,
            look=look,
            trouble=trouble,
            rows=rows_of(shown, facts, history),
            pager=pager,
            history=history,
            verify=console.jobs.find(f"{watched.subject.key}/verify"),
        )

    def show(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        committed = find_committed(look, request.path_params["id"])
        history = look.history or EMPTY
        opened, trouble = None, None
        try:
            opened = watched.catalog.open(committed)
        except LaminaError as error:
            trouble = Trouble.of("manifest", error)
        children = [c for c in history.checkpoints if c.entry.parent == committed.id]
        return pages.page(
            "checkpoint.html",
            title=f"Checkpoint of epoch {committed.epoch}",
            watched=watched,
            tab="checkpoints",
            live=False,
            checkpoint=committed,
            manifest=opened.manifest if opened else None,
            findings=opened.findings if opened else (),
            trouble=trouble,
            savepoints=history.pinned(committed.id),
            is_newest=history.newest is not None and history.newest.id == committed.id,
            parent=history.find(committed.entry.parent) if committed.entry.parent else None,
            children=children,
            others=newest_first(history)[:100],
            verify=console.jobs.find(f"{watched.subject.key}/verify/{committed.id}"),
            **_content(watched, opened.manifest if opened else None, request),
        )

    return [Route("/p/{key}/checkpoints", listing), Route("/p/{key}/checkpoints/{id}", show)]


def find_committed(look: Look, text: str) -> Committed:
    """A checkpoint by its id; NotFound for what is none, or none of this pipeline's."""
    try:
        id = CheckpointId.parse(text)
    except LaminaError:
        raise NotFound("this is not the id of a checkpoint", where=text[:80]) from None
    found = look.history.find(id) if look.history else None
    if found is None:
        message = "there is no such checkpoint"
        raise NotFound(message, where=str(id), advice="It may have been deleted since")
    return found


def _content(
    watched: Watched, manifest: CheckpointManifest | None, request: Request
) -> dict[str, Any]:
    """What the manifest says, as tables; and the heat map of one of its states."""
    if manifest is None:
        return {"operators": [], "files": [], "pager": None, "heat": None, "sinks": []}
    files = manifest.artifacts()
    own = {each.path for each in own_artifacts(manifest)}
    pager = Pager.of(request.query_params.get("files", "1"), len(files), FILES_PER_PAGE)
    start = (pager.page - 1) * FILES_PER_PAGE
    shown = [(each, each.path in own) for each in files[start : start + FILES_PER_PAGE]]
    operators = list(_operators(manifest))
    wanted = request.query_params.get("heat") or next((o.name for o in operators), "")
    return {
        "operators": operators,
        "files": shown,
        "pager": pager,
        "heat": _heat(watched, manifest, wanted),
        "sinks": list(_sinks(manifest)),
    }


def _operators(manifest: CheckpointManifest) -> Iterator[OperatorLine]:
    for name, operator in sorted(manifest.operators.items()):
        runs = [run for listed in operator.partitions.values() for run in listed]
        known = [run.rows for run in runs if run.rows is not None]
        yield OperatorLine(
            name=name,
            partitions=operator.keyed.partitions if operator.keyed else len(operator.partitions),
            runs=len(runs),
            rows=sum(known) if len(known) == len(runs) else None,
            bytes=operator.total_bytes,
            is_keyed=operator.keyed is not None,
            hash=operator.keyed.hash if operator.keyed else "",
        )


def _heat(
    watched: Watched, manifest: CheckpointManifest, operator: str
) -> tuple[str, Heat, Markup] | None:
    if operator not in manifest.operators:
        return None
    try:
        store = watched.catalog.store
        heat = heat_of(store, watched.subject.paths, manifest.operators[operator])
    except LaminaError:
        return None
    fullest = max(range(len(heat.rows)), key=heat.rows.__getitem__)
    label = f"Rows of {operator} by vnode: {heat.total:,} in all, most in vnode {fullest}"
    return operator, heat, draw_heat(heat.rows, label)


def _sinks(manifest: CheckpointManifest) -> Iterator[tuple[str, int | None, str, int, int]]:
    """Name, epoch, status, and the files and bytes that it has not published yet."""
    statuses, output = manifest.sink_commit_statuses, manifest.output
    names = {*manifest.sink_names, *manifest.sink_epochs, *statuses, *output}
    for name in sorted(names):
        files = output.get(name, ())
        waiting = sum(each.size for each in files)
        epoch = manifest.sink_epochs.get(name)
        yield name, epoch, _status(statuses.get(name)), len(files), waiting


def _status(status: SinkCommitStatus | None) -> str:
    match status:
        case FailedStatus(reason):
            return f"failed: {reason}"
        case PendingStatus():
            return "pending"
    return "—" if status is None else "committed"
