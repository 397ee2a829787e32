"""Starting, waiting for and ending one server process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lamina.clock import SystemClock

READY_SECONDS_MAX = 60.0
_FIRST_PORT = 20000
_PORTS = 2700


def binary(name: str) -> str:
    """A program that came with a package of the `dev` extra, beside this Python."""
    return str(Path(sys.executable).parent / name)


def free_port() -> int:
    """A port that is free, and the one 10000 above it, which SeaweedFS takes for gRPC.

    Both lie below the range from which Linux takes the ports of clients.
    """
    for step in range(_PORTS):
        port = _FIRST_PORT + (os.getpid() * 37 + next(_steps) + step) % _PORTS
        if _is_free(port) and _is_free(port + 10000):
            return port
    raise RuntimeError("no free port for a test server")


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 11


_steps = _count()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server:
    """A process that is started, waited for, and killed by its id."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        ready: Callable[[], bool],
        *,
        env: dict[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        """Returns when it is *ready*; as another *user*, for those that do not run as root."""
        self._command, self._folder, self._ready = command, folder, ready
        self._env, self._user = {**os.environ, **(env or {})}, user
        self.start()

    def start(self) -> None:
        """Again, after a kill: with the files it had."""
        log = self._folder / "server.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self._user,
            )
        try:
            _wait_until(self._ready, self.process, log)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL, and the child is reaped: nothing else listens where it did."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running(
    command: Sequence[str],
    *,
    folder: Path,
    ready: Callable[[], bool],
    env: dict[str, str] | None = None,
) -> Iterator[Server]:
    """The server while the block runs. SIGKILL at the end: nothing in it is worth keeping."""
    server = Server(command, folder, ready, env=env)
    try:
        yield server
    finally:
        server.kill()


def _wait_until(ready: Callable[[], bool], server: subprocess.Popen[bytes], log: Path) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    while not ready():
        if server.poll() is not None or clock.monotonic() - started > READY_SECONDS_MAX:
            raise RuntimeError(f"{server.args!r} is not ready: {log.read_text()[-2000:]}")
        clock.wait(0.05)
