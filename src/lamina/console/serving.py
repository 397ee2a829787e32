"""Serves the page until it is interrupted."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

import uvicorn

from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.console.app import make_app
from lamina.console.context import Console
from lamina.console.live import Streams
from lamina.console.settings import PORT, TOKEN_CHARACTERS_MIN, Access
from lamina.console.subjects import Subject
from lamina.errors import UsageError

BACKLOG = 2048
CLOSE_WITHIN_S = 1


def serve(
    subjects: Sequence[Subject],
    access: Access,
    *,
    port: int | None = None,
    told: Callable[[Access], None],
    clock: Clock | None = None,
) -> None:
    """Bind, say where (*told*), serve. Without a *port* the usual one, or any that is free."""
    clock = clock or SystemClock()
    listening = _bind(access.host, port)
    try:
        bound = with_token(replace(access, port=listening.getsockname()[1]), clock)
        streams = Streams()
        app = make_app(Console(subjects, bound, clock), streams)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=CLOSE_WITHIN_S,
        )
        told(bound)
        _Server(config, streams).run(sockets=[listening])
    finally:
        listening.close()


def with_token(access: Access, clock: Clock) -> Access:
    """Whoever can be reached from elsewhere asks for a token; a given one must not be guessable."""
    if access.token:
        if len(access.token) < TOKEN_CHARACTERS_MIN:
            message = f"a token has {TOKEN_CHARACTERS_MIN} characters or more"
            raise UsageError(message, advice="Leave it out: then one is made")
        return access
    return access if access.is_loopback else replace(access, token=new_writer_id(clock))


class _Server(uvicorn.Server):
    """Open streams end when it ends: a browser would hold them for ever."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.is_closing = True
        await super().shutdown(sockets)


def _bind(host: str, port: int | None) -> socket.socket:
    wanted = (PORT, 0) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
        except (OSError, OverflowError) as error:
            listening.close()
            failure = error
            continue
        listening.listen(BACKLOG)
        return listening
    raise UsageError(
        f"cannot listen on {host}, port {wanted[-1]}: {failure}",
        advice="Give another --port or --host",
    )


def address_of(access: Access) -> str:
    """What a person opens."""
    host = f"[{access.host}]" if ":" in access.host else access.host
    shown = {"0.0.0.0": socket.gethostname(), "[::]": socket.gethostname()}.get(host, host)  # noqa: S104
    token = f"?token={access.token}" if access.token else ""
    return f"http://{shown}:{access.port}/{token}"
