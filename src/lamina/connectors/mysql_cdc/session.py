"""Connections to the server, and what goes wrong with them as errors with names."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import DictCursor, SSCursor

from lamina.connectors.mysql_cdc.tls import ADVICE, Tls
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

ANEW = 'Read the table anew: docs/connectors.md, "MariaDB source"'
_DENIED = {
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    1698,  # no password for a user of a socket
}
_ABSENT = {ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}
_LOST_LOG = 1236
_TLS = {CR.CR_SSL_CONNECTION_ERROR}
_LOST = {CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR}


@dataclass(frozen=True, slots=True)
class MySqlServer:
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    connect_timeout_s: float = 10.0
    answer_timeout_s: float = 60.0
    read_timeout_s: float = 1800.0
    tls: Tls = field(default_factory=Tls)

    @property
    def url(self) -> str:
        return f"mysql://{self.host}:{self.port}"

    def settings(self, timeout_s: float) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "connect_timeout": max(1, round(self.connect_timeout_s)),
            "read_timeout": max(1, round(timeout_s)),
            "write_timeout": max(1, round(timeout_s)),
            **self.tls.settings(self.url),
        }

    def connect(self, **settings: Any) -> Any:
        """One connection, with `settings` and what goes beside them."""
        connection = pymysql.connect(**settings)
        self.tls.check(connection, self.url)
        return connection


@contextmanager
def server_errors(where: str, what: str) -> Iterator[None]:
    """What pymysql raises, as ours."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise typed(error, where, what) from error
    except OSError as error:
        raise StoreUnavailable(f"{what} failed: {error}", where=where) from error


def typed(error: pymysql.MySQLError, where: str, what: str) -> LaminaError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    cause = getattr(error, "original_exception", None) or error.__cause__
    if isinstance(cause, ssl.SSLError) or code in _TLS:
        message = f"no encrypted connection: {cause or error.args[-1]}"
        return AccessDenied(message, where=where, advice=ADVICE)
    said = f"{what} failed: {error.args[-1] if error.args else error} ({code})"
    if code in _DENIED:
        return AccessDenied(said, where=where, advice="Check user, password and rights")
    if code in _ABSENT:
        return NotFound(said, where=where, advice="Correct the options database and table")
    if code == _LOST_LOG:
        message = f"the server no longer has the log from where it was read: {error.args[-1]}"
        advice = f"Keep more of it (binlog_expire_logs_seconds). {ANEW}"
        return Refused(message, where=where, advice=advice)
    if code in _LOST or isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
        return StoreUnavailable(said, where=where, advice="Check host, port, and that it runs")
    return Refused(said, where=where, advice="See what the server says")


class Session:
    """One connection for look-ups and the snapshot; made when it is needed.

    While it is there nobody else of us reads the log with this id: of two readers with one id the
    server ends the connection of the one that came first, and so on in turns.
    """

    def __init__(self, server: MySqlServer, where: str, reader_id: int) -> None:
        self._server, self.where = server, where
        self._reader_id = reader_id
        self._connection: Any = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def query(self, what: str, sql: str, *values: Any) -> list[dict[str, Any]]:
        """All rows; the connection is given up after an error."""
        try:
            with server_errors(self.where, what), self._opened().cursor(DictCursor) as cursor:
                cursor.execute(sql, values or None)
                return [{k.lower(): v for k, v in row.items()} for row in cursor.fetchall()]
        except BaseException:
            self.close()
            raise

    def stream(self, what: str, sql: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """Rows as they come, *size* at a time."""
        try:
            with server_errors(self.where, what), self._opened().cursor(SSCursor) as cursor:
                cursor.execute(sql)
                while rows := cursor.fetchmany(size):
                    yield list(rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _opened(self) -> Any:
        if self._connection is None:
            settings = self._server.settings(self._server.read_timeout_s)
            self._connection = self._server.connect(**settings, autocommit=True)
            with self._connection.cursor() as cursor:
                cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
                self._claim_id(cursor)
        return self._connection

    def _claim_id(self, cursor: Any) -> None:
        lock = f"lamina reads with server_id {self._reader_id}"
        cursor.execute("SELECT GET_LOCK(%s, %s)", (lock, round(self._server.connect_timeout_s)))
        if cursor.fetchone()[0] == 1:
            return
        cursor.execute("SELECT IS_USED_LOCK(%s)", (lock,))
        (holder,) = cursor.fetchone()
        raise StoreUnavailable(
            f"another pipeline or process reads the log with the server_id {self._reader_id} "
            f"(connection {holder} of the server)",
            where=self.where,
            advice="Stop it, or give each source a server_id of its own. If its machine is lost: "
            f"KILL {holder}",
        )
