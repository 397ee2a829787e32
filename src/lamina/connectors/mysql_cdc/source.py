"""A table of MariaDB as a source of changes: what the driver plans.

The first epoch is a snapshot of the whole table, every later one a whole number of transactions of
the binary log. The server keeps the log by rules of its own; what is gone is named.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from lamina.connectors.changes.source import JournalSource
from lamina.connectors.kinds import Given, SourceContext
from lamina.connectors.mysql_cdc.binlog import BATCH_ROWS, Binlog
from lamina.connectors.mysql_cdc.gtid import (
    Position,
    gtids_of,
    gtids_text,
    has_reached,
    types_of,
    types_text,
)
from lamina.connectors.mysql_cdc.kind import MAX_CHANGES, SERVER_ID
from lamina.connectors.mysql_cdc.session import ANEW, MySqlServer, Session
from lamina.connectors.mysql_cdc.table import Seen, Wanted, look
from lamina.connectors.mysql_cdc.tls import PREFERRED, VERIFY_IDENTITY, Tls
from lamina.connectors.mysql_cdc.values import ReadColumn
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits
from lamina.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_TRANSACTIONS = 10_000
"""Without a change of ours: an epoch without rows, so that a restart need not read them again."""


def server_of(given: Given) -> MySqlServer:
    seconds = {
        name: us / 1e6
        for name in ("connect_timeout", "answer_timeout", "read_timeout")
        if (us := given.microseconds(name)) is not None
    }
    return MySqlServer(
        given.text("host"),
        given.number("port"),
        given.text("user"),
        given.text("password"),
        **{f"{name}_s": value for name, value in seconds.items()},
        tls=_tls_of(given),
    )


def _tls_of(given: Given) -> Tls:
    ca, cert, key = (given.text(name) for name in ("ssl_ca", "ssl_cert", "ssl_key"))
    return Tls(given.text("ssl_mode") or (VERIFY_IDENTITY if ca else PREFERRED), ca, cert, key)


class MySqlChanges(JournalSource):
    """One table, by way of the binary log."""

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        given, source = context.given, context.source
        self._wanted = Wanted(
            source=source.name,
            database=given.text("database"),
            table=given.text("table"),
            columns=source.columns,
            keys=given.columns("keys"),
        )
        self._server = server_of(given)
        self._where = f"{self._server.url}, table {self._wanted.quoted}"
        self._session = Session(self._server, self._where, self._reader_id)
        self._binlog: Binlog | None = None
        self._left_at = ""  # what it was read up to, but for transactions without a change of ours
        self._quiet = 0  # of these

    def probe(self, spark: SparkSession) -> None:
        """Whether the server answers, to us, and has the table as it is declared."""
        del spark
        try:
            self._look()
        finally:
            self._session.close()

    def acknowledge(self, offset: Offset) -> None:
        """The server deletes its log by rules of its own."""

    # steps

    @property
    def _is_reading(self) -> bool:
        return self._session.is_open

    def _disconnect(self) -> None:
        self._session.close()
        self._close_binlog()

    def _close_binlog(self) -> None:
        if self._binlog is not None:
            self._binlog.close()
        self._binlog = None

    def _look(self) -> Seen:
        return look(self._session, self._wanted, [field.type for field in self._schema])

    def _plan(self, start: Offset, limits: Limits) -> SourceRange:
        if not self._session.is_open:
            self._close_binlog()  # the server may have been restarted
        seen = self._look()
        self._forget_files()
        at = Position.read(start, self._where)
        if at is None:
            return self._snapshot(seen, start)
        self._check_same(seen, at)
        ours = self._context.given.number(MAX_CHANGES)
        return self._changes(seen, start, at, min(ours, limits.rows or ours))

    def _columns(self, seen: Seen) -> list[ReadColumn]:
        return [ReadColumn(each.name, each.type, seen.columns[each.name]) for each in self._schema]

    # the first epoch

    def _snapshot(self, seen: Seen, start: Offset) -> SourceRange:
        """All rows as one transaction sees them, and the GTIDs of all that it sees."""
        columns, query = self._columns(seen), self._session.query
        query("set how it is read", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        query("take a snapshot", "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = {
            row["variable_name"].lower(): row["value"]
            for row in query("ask where the log is", "SHOW STATUS LIKE 'binlog_snapshot_%'")
        }
        place = status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
        (found,) = query("ask for the GTID", "SELECT BINLOG_GTID_POS(%s, %s) AS gtid", *place)
        gtid = gtids_text(gtids_of(found["gtid"] or ""))
        journal = self._journal(f"snapshot-{gtid.replace(',', '_')}")
        listed = ", ".join(column.select for column in columns)
        sql = f"SELECT {listed} FROM {self._wanted.quoted}"  # noqa: S608  names are quoted
        for rows in self._session.stream("read the table", sql, BATCH_ROWS):
            arrays = [
                column.read(values, self._where)
                for column, values in zip(columns, zip(*rows, strict=True), strict=True)
            ]
            journal.insert(pa.table(arrays, schema=self._schema))
        query("end the snapshot", "COMMIT")
        end = Position(
            gtid, seen.settings.get("server_uid", ""), self._wanted.quoted, types_text(seen.types)
        )
        return SourceRange(self.name, start, end.written(), journal.close())

    # later epochs

    def _check_same(self, seen: Seen, at: Position) -> None:
        """Refused unless server, table and columns are those that were read."""
        now = seen.settings.get("server_uid", "")
        if now != at.server:
            raise self._refused(
                f"this is another server than the one that was read (its server_uid is {now!r}, "
                f"and was {at.server!r})"
            )
        if self._wanted.quoted != at.table:
            raise self._refused(f"it has read the table {at.table} before")
        known = types_of(at.columns)
        for name, shown in seen.types.items():
            if known.get(name, shown) != shown:
                raise self._refused(
                    f"the column {name!r} was {known[name]}, and is {shown}: rows that were read "
                    "before cannot be told from those that are there now"
                )
        target = gtids_of(seen.settings["gtid_binlog_pos"])
        if not has_reached(target, gtids_of(at.gtid)):
            raise self._refused(
                f"the log of the server ends at {gtids_text(target) or 'its beginning'}, and it "
                f"was read up to {at.gtid}: was it reset, or restored from a backup?"
            )

    def _changes(self, seen: Seen, start: Offset, at: Position, rows_max: int) -> SourceRange:
        target = gtids_of(seen.settings["gtid_binlog_pos"])
        if has_reached(gtids_of(at.gtid), target):
            return SourceRange(self.name, start, start)
        binlog = self._opened(seen, at)
        versions, rows = self._versions(), 0
        while rows < rows_max and not has_reached(binlog.gtids, target):
            for part in binlog.transaction():
                rows += part.num_rows
                versions.add(part)
            self._quiet += 1
        if not rows and self._quiet < QUIET_TRANSACTIONS:
            return SourceRange(self.name, start, start)
        self._left_at, self._quiet = binlog.at, 0
        journal = self._journal(f"{at.gtid}--{binlog.at}".replace(",", "_"))
        versions.fold_into(journal)
        known = types_of(at.columns)
        types = {name: known.get(name, now) for name, now in seen.types.items()}
        end = Position(binlog.at, at.server, at.table, types_text(types))
        return SourceRange(self.name, start, end.written(), journal.close())

    def _opened(self, seen: Seen, at: Position) -> Binlog:
        """The log from *at* on: as it is if that is where it was left, or if only transactions
        without a change of ours lie between."""
        if self._binlog is None or self._left_at != at.gtid or not self._binlog.is_open:
            self._close_binlog()
            self._binlog = Binlog(self._server, self._wanted, self._columns(seen), self._where)
            self._binlog.open(at.gtid, self._reader_id)
            self._left_at, self._quiet = at.gtid, 0
        return self._binlog

    @property
    def _reader_id(self) -> int:
        """What this reader is called among the replicas of the server."""
        given = self._context.given
        if SERVER_ID in given.declared:
            return given.number(SERVER_ID)
        named = f"{self._context.pipeline}/{self.name}".encode()
        return int.from_bytes(hashlib.sha256(named).digest()[:4], "big") >> 1 | 1 << 30

    def _refused(self, message: str) -> Refused:
        return Refused(f"the source {self.name!r}: {message}", where=self._where, advice=ANEW)
