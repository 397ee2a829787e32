"""What tells open pages that something has changed: server-sent events.

An event says only that, and which version is there now; the page then asks for itself again. So a
thousand open pages cost one look a second, and what they show comes through the same template.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console, Watched
from lamina.console.jobs import Job
from lamina.errors import NotFound

POLL_S = 1.0
JOB_POLL_S = 0.2
BEAT_S = 15.0  # proxies close what says nothing
RETRY_MS = 3000
STREAMS_MAX = 2000


class Streams:
    """Counts those that are open: a limit keeps the process from running out of sockets."""

    def __init__(self) -> None:
        self.open = 0
        self.is_closing = False


def routes(console: Console, streams: Streams) -> list[BaseRoute]:
    async def of_all(_: Request) -> Response:
        return await _changes(streams, list(console.pipelines.values()))

    async def of_one(request: Request) -> Response:
        return await _changes(streams, [console.find(request.path_params["key"])])

    async def of_job(request: Request) -> Response:
        name = (
            f"{console.find(request.path_params['key']).subject.key}/{request.path_params['name']}"
        )
        if console.jobs.find(name) is None:
            raise NotFound("there is no such job")
        return _stream(streams, _job_events(lambda: console.jobs.find(name)))

    return [
        Route("/events", of_all),
        Route("/p/{key}/events", of_one),
        Route("/p/{key}/jobs/{name:path}", of_job),
    ]


async def _changes(streams: Streams, watched: list[Watched]) -> Response:
    for each in watched:
        await run_in_threadpool(each.look)
    return _stream(streams, _change_events(streams, watched))


async def _change_events(streams: Streams, watched: list[Watched]) -> AsyncIterator[str]:
    last, silent_s = "", 0.0
    while not streams.is_closing:
        looks = [each.reader.glimpse() for each in watched]
        version = "-".join(look.version for look in looks if look is not None)
        if version != last:
            yield _event("change", {"version": version, "at": [k.at_ms for k in looks if k]})
            last, silent_s = version, 0.0
        elif silent_s >= BEAT_S:
            yield ": still here\n\n"
            silent_s = 0.0
        await anyio.sleep(POLL_S)
        silent_s += POLL_S


async def _job_events(find: Callable[[], Job | None]) -> AsyncIterator[str]:
    while (job := find()) is not None:
        yield _event("progress", {"share": round(job.share, 4), "over": job.is_over})
        if job.is_over:
            return
        await anyio.sleep(JOB_POLL_S)


def _stream(streams: Streams, events: AsyncIterator[str]) -> Response:
    if streams.open >= STREAMS_MAX:
        return Response("too many open pages\n", 503, {"Retry-After": "10"})
    return StreamingResponse(_counted(streams, events), media_type="text/event-stream")


async def _counted(streams: Streams, events: AsyncIterator[str]) -> AsyncIterator[str]:
    streams.open += 1
    try:
        yield f"retry: {RETRY_MS}\n\n"
        async for event in events:
            yield event
    finally:
        streams.open -= 1


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
