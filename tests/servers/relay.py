"""A proxy on loopback that passes bytes on, and can go away and come back."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay(socketserver.ThreadingTCPServer):
    """Forwards each connection to *target_port*; while it is `down` it cuts them all."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, target_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target_port = target_port
        self.port: int = self.server_address[1]
        self.is_down = False
        self.open_sockets: set[socket.socket] = set()

    @contextmanager
    def down(self) -> Iterator[None]:
        self.is_down = True
        for each in list(self.open_sockets):
            _cut(each)
        try:
            yield
        finally:
            self.is_down = False


class _Connection(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        if self.server.is_down:
            return
        with socket.create_connection(("127.0.0.1", self.server.target_port)) as target:
            both = {self.request, target}
            self.server.open_sockets |= both
            back = threading.Thread(target=_pump, args=(target, self.request), daemon=True)
            back.start()
            _pump(self.request, target)
            back.join()
            self.server.open_sockets -= both


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        _cut(each)


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(target_port: int) -> Iterator[Relay]:
    with Relay(target_port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
