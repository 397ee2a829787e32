"""The binary log from a GTID on, transaction by transaction, as versions of rows of one table.

The library reconnects by itself when a connection is lost, and would begin again where it began
first: it is given one connection of each kind, and an error instead of another one.

A transaction ends with its Xid, with COMMIT (tables without transactions), or, if it is a statement
that stands for itself, with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants.NONE_SOURCE import NULL
from pymysqlreplication.event import (
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from lamina.connectors.changes.folding import IS_NEW, SEQUENCE
from lamina.connectors.mysql_cdc.gtid import Gtids, gtids_of, gtids_text
from lamina.connectors.mysql_cdc.session import ANEW, MySqlServer, server_errors
from lamina.connectors.mysql_cdc.statements import ends_transaction, problem
from lamina.connectors.mysql_cdc.table import Wanted
from lamina.connectors.mysql_cdc.values import ReadColumn
from lamina.errors import Refused

_EVENTS = (
    *(MariadbGtidEvent, QueryEvent, XidEvent, XAPrepareEvent, HeartbeatLogEvent),
    *(WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, NotImplementedEvent),
)
_STANDALONE, _PREPARED = 0x01, 0x40  # of a GTID: one statement; the first half of XA
_COMPRESSED = range(165, 172)  # statements and rows that the library does not read
HEARTBEAT_S, HEARTBEATS_MAX = 5, 12
BATCH_ROWS = 10_000
Change = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""A row before and after; None where there is none."""


@dataclass(slots=True)
class Transaction:
    """What was read of one so far: its changes, unless they were handed on."""

    gtid: str
    flags: int
    changes: list[Change] = field(default_factory=list)


class Binlog:
    """The log behind *gtid*, over a connection of its own."""

    def __init__(
        self, server: MySqlServer, wanted: Wanted, columns: Sequence[ReadColumn], where: str
    ) -> None:
        self._server, self._wanted, self._columns = server, wanted, columns
        self._where = where
        self._reader: Any = None
        self._read: Gtids = {}  # what whole transactions have brought it to
        self._sequence = 0

    @property
    def is_open(self) -> bool:
        return self._reader is not None

    @property
    def at(self) -> str:
        """The end of the last whole transaction that was read."""
        return gtids_text(self._read)

    @property
    def gtids(self) -> Gtids:
        return self._read

    def open(self, gtid: str, reader_id: int) -> None:
        self.close()
        left = [2]

        def connect(**settings: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise pymysql.err.InterfaceError(0, "the connection to the log was lost")
            named = {{"db": "database"}.get(name, name): value for name, value in settings.items()}
            return self._server.connect(**named)  # the library has old names for settings

        self._reader = BinLogStreamReader(
            connection_settings=self._server.settings(self._server.answer_timeout_s),
            server_id=reader_id,
            is_mariadb=True,
            auto_position=gtid,
            blocking=True,
            slave_heartbeat=HEARTBEAT_S,
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            only_schemas=[self._wanted.database],
            only_tables=[self._wanted.table],
            pymysql_wrapper=connect,
            enable_logging=False,
        )
        self._read, self._sequence = gtids_of(gtid), 0

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def transaction(self) -> Iterator[pa.Table]:
        """The versions of rows of the next one, in parts; when all are taken, *at* is behind it."""
        opened: Transaction | None = None
        try:
            while True:
                event = self._event()
                if isinstance(event, MariadbGtidEvent):
                    opened = Transaction(event.gtid, event.flags)
                elif opened is not None:
                    if self._is_end(opened, event):
                        break
                    if len(opened.changes) >= BATCH_ROWS:
                        yield self._versions(opened)
            if opened.changes:
                yield self._versions(opened)
        except BaseException:
            self.close()
            raise
        self._read[int(opened.gtid.split("-")[0])] = opened.gtid

    # steps

    def _event(self) -> Any:
        """The next one. The log has one, so a server that is only heard to live is not well."""
        with server_errors(self._where, "read the log"):
            for _ in range(HEARTBEATS_MAX):
                try:
                    event = self._reader.fetchone()
                except (UnicodeDecodeError, RuntimeError) as error:  # a type that is not known
                    message = f"a row of the log cannot be read: {error}"
                    raise Refused(message, where=self._where, advice=ANEW) from error
                if event is None:
                    raise pymysql.err.InterfaceError(0, "the log has ended")
                if not isinstance(event, HeartbeatLogEvent):
                    return event
            raise pymysql.err.InterfaceError(0, "the server says nothing of what its log has")

    def _is_end(self, opened: Transaction, event: Any) -> bool:
        """Take an event in; whether it is the last of its transaction."""
        match event:
            case XidEvent() | XAPrepareEvent():
                return True
            case QueryEvent():
                if ends_transaction(event.query):
                    return True
                self._check_statement(opened, event)
                return bool(opened.flags & _STANDALONE)
            case NotImplementedEvent() if event.event_type in _COMPRESSED:
                message = "the log is compressed (log_bin_compress): it was switched on for a while"
                raise self._refused(opened, message)
            case WriteRowsEvent() | UpdateRowsEvent() | DeleteRowsEvent():
                self._check_prepared(opened)
                opened.changes += [self._change(opened, event, row) for row in event.rows]
        return False

    def _check_statement(self, opened: Transaction, event: Any) -> None:
        used = event.schema.decode(errors="replace")
        said = problem(event.query, used, self._wanted.database, self._wanted.table)
        if said:
            raise self._refused(opened, said)

    def _check_prepared(self, opened: Transaction) -> None:
        if opened.flags & _PREPARED:
            message = "rows were changed by XA: the log has them before they are committed"
            raise self._refused(opened, message)

    def _change(self, opened: Transaction, event: Any, row: dict[str, Any]) -> Change:
        if isinstance(event, UpdateRowsEvent):
            old = self._values(opened, row["before_values"], row["before_none_sources"])
            return old, self._values(opened, row["after_values"], row["after_none_sources"])
        values = self._values(opened, row["values"], row["none_sources"])
        return (None, values) if isinstance(event, WriteRowsEvent) else (values, None)

    def _values(
        self, opened: Transaction, values: dict[str, Any], nothing: dict[str, str]
    ) -> dict[str, Any]:
        for column in self._columns:
            name = column.column.name
            if name not in values:
                message = f"a row has no column {name!r}: binlog_row_metadata was not FULL, or the "
                raise self._refused(opened, f"{message}column was dropped or renamed")
            if nothing.get(name, NULL) != NULL:
                message = f"the column {name!r} has a value that cannot be read ({nothing[name]}): "
                message += "a zero date, or binlog_row_image was not FULL"
                raise self._refused(opened, message)
        return values

    def _versions(self, opened: Transaction) -> pa.Table:
        """What the changes take back and put there, each with its place in the order."""
        old = [(2 * n, before) for n, (before, _) in enumerate(opened.changes) if before]
        new = [(2 * n + 1, after) for n, (_, after) in enumerate(opened.changes) if after]
        rows = [row for _, row in (*old, *new)]
        numbers = [self._sequence + n for n, _ in (*old, *new)]
        arrays = [
            column.read([row[column.column.name] for row in rows], self._where)
            for column in self._columns
        ]
        self._sequence += 2 * len(opened.changes)
        opened.changes = []
        is_new = [False] * len(old) + [True] * len(new)
        names = [*(column.name for column in self._columns), SEQUENCE, IS_NEW]
        return pa.table([*arrays, pa.array(numbers, pa.int64()), pa.array(is_new)], names)

    def _refused(self, opened: Transaction, message: str) -> Refused:
        return Refused(
            f"the source {self._wanted.source!r}: {message} (transaction {opened.gtid})",
            where=self._where,
            advice=ANEW,
        )
