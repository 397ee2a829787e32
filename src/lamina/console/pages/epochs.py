"""Epochs: one by one, and the whole history as plots."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.answers import read_form, see
from lamina.console.context import Console
from lamina.console.reading.look import Trouble
from lamina.console.render import Pages, address
from lamina.console.views.epochs import phases_of, plots_of
from lamina.errors import LaminaError
from lamina.front.history import HistoryPage

WHOLE = "history"


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def listing(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        before = _epoch(request.query_params.get("before", ""))
        page, trouble = HistoryPage(), None
        try:
            page = watched.epochs.page(before)
        except LaminaError as error:
            trouble = Trouble.of("home", error)
        job = console.jobs.find(f"{watched.subject.key}/{WHOLE}")
        whole = job.result if job is not None else None
        return pages.page(
            "epochs.html",
            title=f"Epochs of {watched.subject.name}",
            watched=watched,
            tab="epochs",
            live=before is None,
            rows=[(row, phases_of(row)) for row in page.rows],
            longest=max((row.took_us for row in page.rows), default=1) or 1,
            page=page,
            before=before,
            trouble=trouble,
            job=job,
            whole=whole,
            plots=plots_of(whole.rows) if whole is not None else [],
        )

    async def read_whole(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        await read_form(request, console.form_token)
        name, what = f"{watched.subject.key}/{WHOLE}", "reading the whole history"
        await run_in_threadpool(console.jobs.start, name, what, watched.epochs.whole)
        return see(address("p", watched.subject.key, "epochs"))

    return [
        Route("/p/{key}/epochs", listing, methods=["GET"]),
        Route("/p/{key}/epochs", read_whole, methods=["POST"]),
    ]


def _epoch(text: str) -> int | None:
    """What is not a number asks for the newest."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
