"""What a person starts from the page: a verification; with --allow-actions also a stop,
a checkpoint and a savepoint."""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.checkpoint import Checkpointer, create_savepoint, verify
from lamina.checkpoint.progress import Report
from lamina.console.answers import read_form, see
from lamina.console.context import Console, Watched
from lamina.console.pages.checkpoints import find_committed
from lamina.console.render import Pages, address
from lamina.errors import NotFound, Refused
from lamina.ids import CheckpointId
from lamina.inspect import PipelineReport, verify_pipeline
from lamina.running.control import Ask, ask

Action = Callable[[Watched, dict[str, str]], str]


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    async def start_verify(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        form = await read_form(request, console.form_token)
        key, given = watched.subject.key, form.get("id", "")
        id = find_committed(watched.look(), given).id if given else None
        name = f"{key}/verify/{id}" if id else f"{key}/verify"
        what = f"verifying checkpoint {id}" if id else "verifying everything a start would read"

        def work(report: Report) -> PipelineReport:
            return _verify(watched, id, report)

        await run_in_threadpool(console.jobs.start, name, what, work)
        target = ("checkpoints", str(id)) if id else ("verify",)
        return see(address("p", key, *target))

    def show_verify(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        return pages.page(
            "verify.html",
            title=f"Verification of {watched.subject.name}",
            watched=watched,
            tab="recovery",
            live=False,
            job=console.jobs.find(f"{watched.subject.key}/verify"),
        )

    async def act(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        form = await read_form(request, console.form_token)
        if not console.access.allow_actions:
            raise Refused(
                "this page only shows", advice="Start it with --allow-actions to allow this"
            )
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise NotFound("there is no such action")
        target = await run_in_threadpool(action, watched, form)
        watched.reader.expire()
        return see(target)

    return [
        Route("/p/{key}/verify", show_verify, methods=["GET"]),
        Route("/p/{key}/verify", start_verify, methods=["POST"]),
        Route("/p/{key}/actions/{action}", act, methods=["POST"]),
    ]


def _verify(watched: Watched, id: CheckpointId | None, report: Report) -> PipelineReport:
    """One checkpoint; or home and store, as far as they are known."""
    subject = watched.subject
    checkpointer = None
    if subject.store:
        checkpointer = Checkpointer(subject.open_store(), subject.paths, vnode_count=None)
    if id is not None:
        assert checkpointer is not None, "it was found there"
        return PipelineReport(None, verify(checkpointer, (id,), report=report))
    if not subject.home:
        assert checkpointer is not None, "a pipeline has a home or a store"
        return PipelineReport(None, verify(checkpointer, report=report))
    with watched.reader.disk() as (disk, _):
        return verify_pipeline(disk, checkpointer, report=report)


def _ask(what: Ask) -> Action:
    def act(watched: Watched, _: dict[str, str]) -> str:
        look, folder = watched.look(), watched.subject.folder
        own = look.own_status
        if folder is None or own is None:
            raise NotFound("the pipeline is not running on this machine")
        ask(folder, what, own)
        return address("p", watched.subject.key)

    return act


def _savepoint(watched: Watched, form: dict[str, str]) -> str:
    subject = watched.subject
    id = find_committed(watched.look(), form.get("id", "")).id
    checkpointer = Checkpointer(subject.open_store(writable=True), subject.paths, vnode_count=None)
    create_savepoint(checkpointer, form.get("name", ""), id)
    return address("p", subject.key, "checkpoints", str(id))


ACTIONS: dict[str, Action] = {
    "stop": _ask(Ask.STOP),
    "checkpoint": _ask(Ask.CHECKPOINT),
    "savepoint": _savepoint,
}
