"""One connection to a PostgreSQL server, made again when it was lost.

Every call is told to a hook before and after it. Whatever goes wrong closes the connection: then
the server rolls back, and the next call starts over. No call waits without end: the server is told
to give up in time, and if it says nothing at all, so does the client, a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi

from lamina.connectors.postgres.errors import typed_error
from lamina.connectors.postgres.patience import Call, Progress
from lamina.errors import StoreUnavailable

T = TypeVar("T")
Hook = Callable[[str], None]
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_MS = 30_000
ANSWER_TIMEOUT_MS = 60_000
WRITE_TIMEOUT_MS = 1_800_000
GRACE_S = 5.0
"""How much longer than the server the client waits: an answer that says why is better than none."""
PIECE_ROWS = 10_000
"""Of a batch that is copied at once: progress is seen by the piece."""
_IDLE_MS = 300_000

# A role may have other defaults. READ COMMITTED: who waited for the mark sees the newest one.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

# The epoch is forgotten once the server said that it has it: so the commit must be on disk.
# A client that vanished must not hold the mark for the two hours of TCP.
_GREETING = """
SELECT set_config('TimeZone', 'UTC', false),
       set_config('lock_timeout', $1, false),
       set_config('idle_in_transaction_session_timeout', $2, false),
       set_config('statement_timeout', $3, false),
       set_config('tcp_keepalives_idle', '30', false),
       set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""
_MAY_TAKE = "SELECT set_config('statement_timeout', $1, true)"


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and how to log in."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    ssl: Mapping[str, str] = field(default_factory=dict)
    connect_timeout_s: int = CONNECT_TIMEOUT_S
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    answer_timeout_ms: int = ANSWER_TIMEOUT_MS
    write_timeout_ms: int = WRITE_TIMEOUT_MS
    grace_s: float = GRACE_S

    @property
    def statement_timeout_ms(self) -> int:
        """Of a statement that does little, and may wait for a lock before."""
        return self.lock_timeout_ms + self.answer_timeout_ms

    @property
    def url(self) -> str:
        """For people: without the password."""
        return f"postgresql://{self.user}@{self.host}:{self.port}/{self.database}"

    def conninfo(self, application: str) -> str:
        parts = {
            "host": self.host,
            "port": str(self.port),
            "dbname": self.database,
            "user": self.user,
            "password": self.password,
            "connect_timeout": str(self.connect_timeout_s),
            "application_name": application,
            "client_encoding": "UTF8",  # what Arrow has; else that of the database would be assumed
            "keepalives_idle": "30",
            "keepalives_interval": "10",
            "keepalives_count": "3",
            "tcp_user_timeout": "60000",
            "target_session_attrs": "read-write" if "," in self.host else "any",
            **self.ssl,
        }
        return " ".join(f"{name}={_quoted(value)}" for name, value in parts.items() if value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Line:
    """A connection, or what will become one."""

    def __init__(self) -> None:
        self._connection: Any = None

    def open(self, conninfo: str, settings: tuple[str, ...]) -> None:
        self._connection = dbapi.connect(conninfo, autocommit=True)
        with self._connection.cursor() as cursor:
            cursor.execute(_GREETING, settings)
            cursor.fetchall()

    def ask(self, work: Callable[[Any], T]) -> T:
        with self._connection.cursor() as cursor:
            return work(cursor)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(adbc_driver_manager.Error):  # it may be lost: then it is closed
                connection.close()


class Session:
    """Statements of one sink or source, one after the other."""

    def __init__(
        self, server: Server, *, application: str, where: str, hook: Hook | None = None
    ) -> None:
        self._line: Line | None = None
        self._server = server
        self._application = application
        self.where = where
        self._hook = hook or (lambda _: None)

    def query(
        self, call: str, sql: str, *values: object, writes: bool = False
    ) -> list[dict[str, Any]]:
        """The rows of a SELECT; if it *writes*, or reads all of an epoch, it may take longer."""

        def ask(cursor: Any) -> list[dict[str, Any]]:
            cursor.execute(sql, values or None)
            rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
            return rows

        return self._call(call, ask, limit_s=self._limit_s(writes=writes))

    def look(self, call: str, sql: str, *values: object) -> list[dict[str, Any]]:
        """`query` outside of a transaction: on a new connection, if the old one is lost."""
        return self._afresh(lambda: self.query(call, sql, *values))

    def run(self, call: str, sql: str, *values: object, writes: bool = False) -> None:
        def execute(cursor: Any) -> bool:
            cursor.execute(sql, values or None)
            return True

        self._call(call, execute, limit_s=self._limit_s(writes=writes))

    def read(self, call: str, sql: str, take: Callable[[pa.RecordBatch], None]) -> None:
        """Give *take* the rows of a SELECT as they come: a batch at a time is in memory.

        Without parameters, which would make the driver hold all of them.
        """

        def ask(cursor: Any) -> bool:
            cursor.execute(sql)
            for batch in self._batches(cursor.fetch_record_batch()):
                take(batch)
            return True

        self._call(call, ask, limit_s=self._limit_s(writes=True))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """What goes wrong between two batches is Arrow's error, not the driver's."""
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                raise StoreUnavailable(
                    f"the connection was lost while rows were read: {error}",
                    where=self.where,
                    advice="It is tried again",
                ) from error
            yield batch

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as anybody knows."""
        return self._line is not None

    def begin_to_write(self) -> None:
        """In a transaction: what follows may take as long as the rows of an epoch do."""
        self.query("begin to write", _MAY_TAKE, f"{self._server.write_timeout_ms}ms")

    def copy(
        self, call: str, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> None:
        """Put rows into a temporary table that is there; an error of *batches* comes through."""
        failed: list[BaseException] = []
        progress = Progress()

        def pull() -> Iterator[pa.RecordBatch]:
            # The driver would make a text of what is raised here, and call it its own error.
            try:
                yield from progress.pulled(_pieces(batches))
            except BaseException as error:
                failed.append(error)
                raise

        def ingest(cursor: Any) -> bool:
            reader = pa.RecordBatchReader.from_batches(schema, pull())
            try:
                cursor.adbc_ingest(table, reader, mode="append", temporary=True)
            except adbc_driver_manager.Error:
                if failed:
                    raise failed[0] from None
                raise
            return True

        self._call(call, ingest, limit_s=self._limit_s(), progress=progress)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Rolled back unless the block ends with `commit`."""
        self._afresh(lambda: self.run("begin a transaction", _BEGIN))
        try:
            yield
        except BaseException:
            self.close()
            raise

    def commit(self) -> None:
        """StoreUnavailable if nobody knows whether it happened."""
        self.run("commit", "COMMIT")

    def roll_back(self) -> None:
        self.run("roll back", "ROLLBACK")

    def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def __del__(self) -> None:
        """A sink that nobody has closed holds no connection longer than it lives."""
        self.close()

    def _afresh(self, first: Callable[[], T]) -> T:
        """Nothing has been done yet: a connection that was lost meanwhile is made again, once."""
        was_open = self._line is not None
        try:
            return first()
        except StoreUnavailable:
            if not was_open:
                raise
            return first()

    def _call(
        self,
        call: str,
        work: Callable[[Any], T],
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> T:
        try:
            line = self._line or self._connected()
            self._hook(call)
            done = self._answer(call, line, lambda: line.ask(work), limit_s, progress)
            self._hook(f"{call}: done")
        except adbc_driver_manager.Error as error:
            self.close()
            raise typed_error(error, self.where, call=call) from self._shown(error)
        except BaseException:
            self.close()
            raise
        return done

    def _connected(self) -> Line:
        self._hook("connect")
        server, line = self._server, Line()
        timeouts = (server.lock_timeout_ms, _IDLE_MS, server.statement_timeout_ms)

        def connect() -> bool:
            conninfo = server.conninfo(self._application)
            line.open(conninfo, tuple(f"{each}ms" for each in timeouts))
            return True

        hosts = server.host.count(",") + 1
        limit_s = hosts * server.connect_timeout_s + self._limit_s()
        self._line = line
        self._answer("connect", line, connect, limit_s)
        self._hook("connect: done")
        return line

    def _answer(
        self,
        call: str,
        line: Line,
        work: Callable[[], T],
        limit_s: float,
        progress: Progress | None = None,
    ) -> T:
        asked = Call(work, let_go=line.close, progress=progress)
        try:
            answer = asked.answer(limit_s)
        finally:
            if asked.is_given_up:
                self._line = None  # the call has it, and closes it
        if answer is None:
            raise StoreUnavailable(
                f"PostgreSQL has said nothing for {limit_s:.0f} seconds when asked to {call}",
                where=self.where,
                advice="Is the server, or a proxy before it, stopped or overloaded? If it only "
                "takes long, raise answer_timeout or write_timeout. It is tried again",
            )
        return answer

    def _limit_s(self, *, writes: bool = False) -> float:
        server = self._server
        limit_ms = server.write_timeout_ms if writes else server.statement_timeout_ms
        return limit_ms / 1000 + server.grace_s

    def _shown(self, error: BaseException) -> BaseException | None:
        """The cause of an error, for tracebacks; not if it should ever quote the password."""
        password = self._server.password
        return None if password and password in str(error) else error


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS):
            yield batch.slice(start, PIECE_ROWS)
