"""/metrics, /livez and /readyz of one pipeline, on one port; loopback unless a person says more.

/metrics   every metric, as Prometheus asks for them
/livez     200 as long as the process answers: one that cannot go on ends by itself
/readyz    200 if the pipeline runs or waits for input; 503 while it starts, is held or has ended
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Thread
from urllib.parse import urlsplit

from lamina.errors import UsageError
from lamina.running.metrics.collect import PipelineMetrics

HOST = "127.0.0.1"
_TIMEOUT_S = 10.0


@contextmanager
def served(metrics: PipelineMetrics, host: str, port: int) -> Iterator[str]:
    """Serve until the end; gives the address. UsageError if that cannot be."""
    if find_spec("prometheus_client") is None:
        raise UsageError(
            "metrics need prometheus_client, which is not installed",
            advice="pip install 'lamina[metrics]'",
        )
    server = _bind(metrics, host, port)
    thread = Thread(target=server.serve_forever, name="lamina-metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], family: int, metrics: PipelineMetrics) -> None:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  an extra

        self.address_family = family
        self.metrics = metrics
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(metrics)
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Who asks may go away at any time."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    server: _Server
    server_version, sys_version = "lamina", ""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            self._metrics()
        elif path == "/livez":
            self._say(200, {"alive": True})
        elif path == "/readyz":
            is_ready, why = self.server.metrics.ready
            self._say(200 if is_ready else 503, {"ready": is_ready, "state": why})
        else:
            self._say(404, {"error": "there are /metrics, /livez and /readyz"})

    def _metrics(self) -> None:
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  an extra

        encode, kind = choose_encoder(self.headers.get("Accept", ""))
        self._send(200, kind, encode(self.server.registry))

    def _say(self, status: int, body: object) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(
        self,
        format: str,  # noqa: A002
        *args: object,
    ) -> None:
        """Nobody wants to read of each scrape."""


def _bind(metrics: PipelineMetrics, host: str, port: int) -> _Server:
    try:
        [*_, (family, _, _, _, _)] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _Server((host, port), family, metrics)
    except (OSError, UnicodeError, OverflowError) as error:
        raise UsageError(
            f"metrics cannot be served there: {error}",
            where=f"{host}:{port}",
            advice="Give another --metrics-port, or a --metrics-host of this machine",
        ) from error
