"""A way to a server on loopback that can be shut: then nobody answers, and connections break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 1 << 16


class Gate:
    """Bytes go through as they are; the port stays the same when it is shut and opened again."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open: list[socket.socket] = []
        self._bytes_left: int | None = None
        self.is_shut = False
        self.port = 0
        self.open()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self.is_shut, self._bytes_left = False, None
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        self.is_shut = True
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def close_after(self, answered_bytes: int) -> None:
        """When the server has answered so many bytes more."""
        self._bytes_left = answered_bytes

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.close()
        try:
            yield
        finally:
            self.open()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target_port))
                except OSError:  # the server is down
                    client.close()
                    continue
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open.append(each)
                for ways in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._copy, args=ways, daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := one.recv(PIECE_BYTES):
                if is_answer and self._bytes_left is not None:
                    self._bytes_left -= len(piece)
                    if self._bytes_left < 0:
                        self.close()
                        return
                other.sendall(piece)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
