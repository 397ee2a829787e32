"""A real MariaDB: Debian's `mariadb-server-core` and `mariadb-client-core`, or another mariadbd.

It does not run as root: there it becomes another user, in a folder which that user can reach.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.servers.process import free_port

ROOT = "root"
STARTS_S = 60.0
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "0",  # the machine does not lose power, and processes do not need it
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "character-set-server": "utf8mb4",
    "skip-name-resolve": "1",
    "performance-schema": "0",
}


def mariadb_missing() -> str:
    """Why no server can run here, or the empty text."""
    if not all(map(_program, ("mariadbd", "mariadb-install-db", "my_print_defaults"))):
        return "no MariaDB: apt-get install mariadb-server-core mariadb-client-core"
    return ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _user() -> str | None:
    """Whom to run it as; None: oneself."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("mysql", "nobody") if name in names), None)


@dataclass
class MariaServer:
    """A server that can be killed and started again, on the same port with the same data."""

    folder: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _names: Iterator[int] = field(default_factory=count)

    def init(self) -> None:
        """Once, before the first start."""
        program = _program("mariadb-install-db")
        assert program is not None, "ask mariadb_missing first"
        (self.folder / "data").mkdir()
        if user := _user():
            for path in (self.folder, self.folder / "data"):
                shutil.chown(path, user)
        command = [program, "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", f"--tmpdir={self.folder}"]
        command += [f"--user={_user()}"] if _user() else []
        subprocess.run(command, cwd="/", check=True, capture_output=True)

    def start(self) -> None:
        program = _program("mariadbd")
        assert program is not None
        given = {**_SETTINGS, "log-bin": str(self.folder / "data" / "bin"), **self.settings}
        command = [program, "--no-defaults", f"--datadir={self.folder / 'data'}"]
        command += [f"--port={self.port}", f"--socket={self.folder / 's'}"]
        command += [f"--pid-file={self.folder / 'pid'}", f"--tmpdir={self.folder}"]
        command += [f"--user={_user()}"] if _user() else []
        command += [f"--{name}={value}" for name, value in given.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        import pymysql  # noqa: PLC0415  an extra

        deadline = time.monotonic() + STARTS_S
        while True:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                self.execute("SELECT 1")
            except pymysql.MySQLError:
                assert time.monotonic() < deadline, "it does not start"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """As kill -9 does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def connect(self, **given: Any) -> Any:
        import pymysql  # noqa: PLC0415  an extra

        settings = {"host": "127.0.0.1", "port": self.port, "user": ROOT, "charset": "utf8mb4"}
        return pymysql.connect(**{**settings, "autocommit": True, **given})

    def execute(self, *statements: str, **given: Any) -> list[tuple[Any, ...]]:
        """One after another over one connection; the rows of the last one."""
        connection = self.connect(**given)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def new_database(self) -> str:
        name = f"db{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return name


@contextmanager
def mariadb(**settings: str) -> Iterator[MariaServer]:
    with tempfile.TemporaryDirectory(prefix="lamina-mariadb-") as folder:
        Path(folder).chmod(0o755)
        server = MariaServer(Path(folder), settings=settings)
        server.init()
        server.start()
        try:
            yield server
        finally:
            server.stop()
