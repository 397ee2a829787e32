"""An HTTP proxy on loopback that loses answers: the server has done it, the client cannot know."""

from __future__ import annotations

import http.client
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Trouble = Literal["pass", "cut after", "503 after", "cut before", "503 before", "twice"]


@dataclass(slots=True)
class FaultProxy:
    """Troubles strike the next PUTs of a key that ends as asked, one each, in order.

    `twice` is what a gateway does that got no answer: it asks again, and gives the second answer.
    """

    port: int
    target_port: int
    key_end: str = ""
    troubles: deque[Trouble] = field(default_factory=deque)
    puts: int = 0
    method: str = "PUT"
    look: Callable[[Message], bytes | None] = lambda _: None
    """Sees the headers of every request, and may change them; what it gives is a refusal's body."""

    def plan(self, key_end: str, *troubles: Trouble, method: str = "PUT") -> None:
        self.key_end, self.puts, self.method = key_end, 0, method
        self.troubles = deque(troubles)

    def next_trouble(self, method: str, path: str) -> Trouble:
        if method != self.method or not path.split("?", maxsplit=1)[0].endswith(self.key_end):
            return "pass"
        self.puts += 1
        return self.troubles.popleft() if self.troubles else "pass"


@contextmanager
def fault_proxy(target_port: int) -> Iterator[FaultProxy]:
    """The proxy while the block runs; it forwards to *target_port* on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = FaultProxy(server.server_address[1], target_port)
    server.RequestHandlerClass.proxy = proxy  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True  # the client went away: that is what some tests want

    def _forward(self) -> None:
        trouble = self.proxy.next_trouble(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (refusal := self.proxy.look(self.headers)) is not None:
            return self._answer(400, [], refusal)
        if trouble.endswith("before"):
            return self._fail(trouble)
        status, headers, answer = self._ask(body)
        if trouble.endswith("after"):
            return self._fail(trouble)
        if trouble == "twice":
            status, headers, answer = self._ask(body)
        return self._answer(status, headers, answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.target_port, timeout=30)
        try:
            connection.request(self.command, self.path, body=body, headers=dict(self.headers))
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _fail(self, trouble: Trouble) -> None:
        if trouble.startswith("cut"):
            self.close_connection = True  # no byte of an answer
        else:
            self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        size = {n.lower(): v for n, v in headers}.get("content-length", str(len(body)))
        self.send_header("Content-Length", size if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def log_message(self, *args: object) -> None:
        """Quiet."""
