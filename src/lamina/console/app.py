"""The application: pages behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lamina.console import live
from lamina.console.answers import status_of
from lamina.console.context import Console
from lamina.console.guard import Guard
from lamina.console.live import Streams
from lamina.console.pages import (
    actions,
    checkpoints,
    difference,
    epochs,
    logs,
    overview,
    pipeline,
    state,
)
from lamina.console.render import Pages
from lamina.errors import LaminaError

STATIC = Path(__file__).parent / "static"


def make_app(console: Console, streams: Streams | None = None) -> ASGIApp:
    """Everything, behind the guard."""
    pages = Pages(console)
    opened = streams or Streams()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            opened.is_closing = True
            console.close()

    app = Starlette(
        routes=[
            *overview.routes(console, pages),
            *live.routes(console, opened),
            *pipeline.routes(console, pages),
            *epochs.routes(console, pages),
            *checkpoints.routes(console, pages),
            *state.routes(console, pages),
            *difference.routes(console, pages),
            *logs.routes(console, pages),
            *actions.routes(console, pages),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        exception_handlers={
            LaminaError: _answer_error(pages),
            HTTPException: _answer_http(pages),
        },
        lifespan=lifespan,
    )
    return Guard(app, console.access)


def _answer_error(pages: Pages) -> Callable[[Request, Exception], Response]:
    def answer(_: Request, error: Exception) -> Response:
        assert isinstance(error, LaminaError)
        status = status_of(error)
        return pages.page("error.html", title=status.phrase, status=status, error=error, live=False)

    return answer


def _answer_http(pages: Pages) -> Callable[[Request, Exception], Response]:
    def answer(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        return pages.page("error.html", title=status.phrase, status=status, error=None, live=False)

    return answer
