"""A TCP proxy on loopback that loses answers, or delays them.

The server has done it, and the client cannot know.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class TcpProxy:
    """Connections that can be cut, all of them or the one that waits for a certain answer."""

    target_port: int
    listener: socket.socket
    lost: bytes | None = None  # the answer that has these bytes does not arrive
    is_closed: bool = False  # new connections are refused
    muted_from: bytes | None = None  # from the answer on that has these bytes, none arrives
    delay_s: float = 0.0  # that each piece of an answer is kept back
    connect: Callable[[], socket.socket] | None = None  # to the server, if it is not on loopback
    _open: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # the end
            if self.is_closed:
                client.close()
                continue
            try:
                server = self._connect()
            except OSError:  # the server is down, and so are we
                client.close()
                continue
            self._open += [client, server]
            for ways in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=ways, daemon=True).start()

    def _connect(self) -> socket.socket:
        if self.connect is not None:
            return self.connect()
        return socket.create_connection(("127.0.0.1", self.target_port))

    def lose_answer(self, part: bytes) -> None:
        """Once: the server has done it, and then the connection is gone."""
        self.lost = part

    def mute(self, part: bytes) -> None:
        """Connections stay open, and nothing comes any more from an answer with *part* on."""
        self.muted_from = part

    def cut(self) -> None:
        """All connections, now."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        is_muted = False
        with suppress(OSError):
            while data := source.recv(65_536):
                if is_answer and self.lost is not None and self.lost in data:
                    self.lost = None
                    break
                is_muted = is_muted or (
                    is_answer and bool(self.muted_from) and self.muted_from in data
                )
                if is_answer and self.delay_s:
                    time.sleep(self.delay_s)
                if not is_muted:
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def tcp_proxy(
    target_port: int, connect: Callable[[], socket.socket] | None = None
) -> Iterator[TcpProxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = TcpProxy(target_port, listener, connect=connect)
        thread = threading.Thread(target=proxy.serve, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            proxy.cut()
    thread.join()
