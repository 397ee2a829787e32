"""The replication slot of a source, and a copy of it that is read.

slot     kept by PostgreSQL: it holds the log back to what the oldest kept checkpoint has read
reader   a temporary copy that ends with the connection: it moves with every epoch, so that none
         decodes what an earlier one has

An advisory lock keeps two processes from one slot, whatever their pipelines are called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres_cdc.lsn import Position, lsn_of, lsn_text
from lamina.connectors.postgres_cdc.table import ANEW, Seen, Wanted
from lamina.errors import Refused, StoreUnavailable

# What values look like; and a server that decodes for a client that is gone notices it.
_PINNED = """
SELECT set_config('DateStyle', 'ISO, YMD', false), set_config('IntervalStyle', 'postgres', false),
       set_config('extra_float_digits', '1', false), set_config('bytea_output', 'hex', false),
       set_config('search_path', 'pg_catalog', false),
       set_config('client_connection_check_interval', '5s', false)
"""
_HOLDER = """
SELECT l.pid::int AS pid, a.application_name::text AS application, a.client_addr::text AS address
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted
   AND l.classid = ($1 >> 32 & 4294967295)::oid AND l.objid = ($1 & 4294967295)::oid
"""
_CREATE = "SELECT lsn::text AS lsn FROM pg_create_logical_replication_slot($1, 'pgoutput')"
_COPY = "SELECT lsn::text AS lsn FROM pg_copy_logical_replication_slot($1, $2, true)"
_ADVANCE = "SELECT end_lsn::text AS lsn FROM pg_replication_slot_advance($1, $2::text::pg_lsn)"
_AT = """
SELECT confirmed_flush_lsn::text AS lsn FROM pg_replication_slots
 WHERE slot_name = $1 AND wal_status <> 'lost'
"""
LOOK_AGAIN_S = 0.05
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Slots:
    """The slot *wanted.slot* of one source, over a session that is its own."""

    def __init__(self, session: Session, wanted: Wanted, *, patience_s: float) -> None:
        """*patience_s* is how long it waits for transactions of others to end."""
        self._session = session
        self._wanted = wanted
        self._patience_s = patience_s
        self._reader = ""  # of this connection
        self._reader_at = 0

    @property
    def is_reading(self) -> bool:
        return bool(self._reader) and self._session.is_open

    def claim(self) -> None:
        """From now on nobody else reads from the slot; Refused if somebody does."""
        if self._session.is_open:
            return
        self._reader = ""
        self._session.query("set how values look", _PINNED)
        try:
            self._session.query("claim the slot", "SELECT pg_advisory_lock($1)::text", self._lock)
        except StoreUnavailable as error:
            if "55P03" not in error.message:  # it waited as long as lock_timeout says
                raise
            raise self._in_use() from error

    def create(self) -> int:
        """Make the slot: everything that is committed later, at the point that it returns or
        behind it, can be read."""
        (made,) = self._session.query("create the slot", _CREATE, self._wanted.slot, writes=True)
        return lsn_of(made["lsn"])

    def check_cluster(self, seen: Seen, at: Position, advice: str) -> None:
        """Refused if this is not the database cluster that was read, whatever has become of it."""
        if seen.row["system"] != at.system:
            raise self._refused(
                "this is another database cluster than the one that was read (its system "
                f"identifier is {seen.row['system']}, and was {at.system})",
                f"Connect to the server that was read. {advice}",
            )

    def lost(self, seen: Seen, at: Position) -> Refused | None:
        """Why what lies behind *at* cannot be read any more; None if it can."""
        return next(self._losses(seen, at), None)

    def _losses(self, seen: Seen, at: Position) -> Iterator[Refused]:
        row, slot, name = seen.row, seen.slot, self._wanted.slot
        if row["timeline"] != at.timeline:
            yield self._refused(
                "another server has taken over since the table was read, or it was restored (the "
                f"timeline is {row['timeline']}, and was {at.timeline}): what it has may differ "
                "from what was read",
                ANEW,
            )
        if seen.wal < at.lsn:
            yield self._refused(
                f"the log of the server ends at {row['wal']}, and it was read up to "
                f"{lsn_text(at.lsn)}: was it restored from a backup?",
                ANEW,
            )
        if slot is None:
            yield self._refused(f"the replication slot {name!r} is gone", ANEW)
        elif _is_given_up(slot):
            yield self._given_up()
        elif lsn_of(slot["confirmed_flush_lsn"]) > at.lsn:
            yield self._refused(
                f"the replication slot {name!r} is at {slot['confirmed_flush_lsn']}, "
                f"and this pipeline at {lsn_text(at.lsn)}: what lies between can no longer be read",
                "Somebody else has read from the slot, or made it anew; or the pipeline has gone "
                f"back to a savepoint that is older than its kept checkpoints. {ANEW}",
            )
        if row["oid"] != at.table:
            yield self._refused("the table was dropped, and another one has its name", ANEW)
        if at.published and at.published != row["published_as"]:
            yield self._refused(
                f"the publication {self._wanted.publication!r} was changed or made anew since the "
                "table was read: changes that it did not have are not in the log",
                ANEW,
            )

    def renew(self, seen: Seen) -> int:
        """A slot to begin again with, in the place of one of ours: all behind it can be read."""
        slot = seen.slot
        if slot is not None and not _is_given_up(slot):
            self.check_usable(seen)
            return lsn_of(slot["confirmed_flush_lsn"])
        if slot is not None:
            self._session.query("drop the slot that is lost", _DROP, self._wanted.slot)
        return self.create()

    def check_usable(self, seen: Seen) -> None:
        """Refused if the slot is not one that changes of this database can be read from."""
        slot, name = seen.slot, self._wanted.slot
        assert slot is not None
        if slot["plugin"] != "pgoutput" or slot["database"] != seen.row["database"]:
            message = f"the replication slot {name!r} is of another plugin or database"
            raise self._refused(message, "Use another name: the option slot")
        if _is_given_up(slot):
            raise self._given_up()
        if slot["active_pid"] is not None:
            raise self._refused(
                f"the replication slot {name!r} is used by the process {slot['active_pid']}",
                "Stop it: `SELECT * FROM pg_stat_activity` shows what it is",
            )

    def _given_up(self) -> Refused:
        return self._refused(
            f"PostgreSQL has given up the replication slot {self._wanted.slot!r}, and deleted the "
            "log that it held",
            "The pipeline was behind for too long: raise max_slot_wal_keep_size (and "
            f"idle_replication_slot_timeout). Then drop the slot. {ANEW}",
        )

    def changes(self, at: int, rows_max: int, take: Callable[[pa.RecordBatch], None]) -> int:
        """Messages about transactions behind *at*, until there are *rows_max*; up to where they go.

        Once they are taken the reader is behind them.
        """
        self._read_from(at)
        plugin = "'proto_version', '1', 'publication_names', " + _literal(
            '"' + self._wanted.publication.replace('"', '""') + '"'
        )
        sql = (
            "SELECT data FROM pg_logical_slot_get_binary_changes("
            f"{_literal(self._reader)}, NULL, {rows_max}, {plugin})"
        )
        with self._at_length():
            self._session.read("read changes", sql, take)
        (found,) = self._session.query("ask how far it has read", _AT, self._reader)
        return lsn_of(found["lsn"])

    def read_anew(self) -> None:
        """The next epoch begins with another copy of the slot."""
        self._reader_at = -1

    def has_read(self, end: int) -> None:
        """What the next epoch begins with, if it is not *at* again."""
        self._reader_at = end

    def snapshot(self, behind: int, read: Callable[[str, int], None]) -> None:
        """Call *read* in a transaction that sees the end of all that are numbered before *behind*;
        with what it sees, and the end of the log then."""
        self._wait_for_end(behind)
        with self._at_length():
            (found,) = self._session.query("take a snapshot", _SNAPSHOT)
            assert int(found["first"]) >= behind, "what has ended does not begin again"
            read(found["seen"], lsn_of(found["wal"]))

    def _wait_for_end(self, behind: int) -> None:
        """A transaction may be committed in the log and not be visible yet, while it waits for a
        standby: then the slot, if it is younger, does not tell of it, and no snapshot has it."""
        clock, waited_s = SystemClock(), 0.0
        while True:
            (found,) = self._session.query("look for old transactions", _SNAPSHOT)
            if int(found["first"]) >= behind:
                return
            if waited_s >= self._patience_s:
                raise StoreUnavailable(
                    f"the transaction {found['first']} was there before the slot, and still runs",
                    where=self._session.where,
                    advice="Commit it, or roll it back: `SELECT * FROM pg_stat_activity WHERE "
                    "backend_xid IS NOT NULL` shows it. It is tried again",
                )
            clock.wait(LOOK_AGAIN_S)
            waited_s += LOOK_AGAIN_S

    def next_transaction(self) -> int:
        """A number that is higher than those of all that run. (The end of a snapshot is not: it is
        behind those that have ended.)"""
        (found,) = self._session.query("number transactions", _NEXT)
        return int(found["next"])

    def advance(self, end: int) -> None:
        """Let PostgreSQL drop the log before *end*; the next plan names a slot that is gone."""
        found = self._session.query("ask where the slot is", _AT, self._wanted.slot)
        if found and lsn_of(found[0]["lsn"]) < end:
            values = (self._wanted.slot, lsn_text(end))
            self._session.query("advance the slot", _ADVANCE, *values, writes=True)

    # steps

    def _read_from(self, at: int) -> None:
        if self._reader and self._reader_at == at:
            return
        if self._reader:
            self._session.query("drop the reader", _DROP, self._reader)
        self._reader = f"{self._wanted.slot[:45]}_{new_writer_id(SystemClock())[:16]}"
        (made,) = self._session.query("copy the slot", _COPY, self._wanted.slot, self._reader)
        if lsn_of(made["lsn"]) < at:
            self._session.query(
                "go to the start", _ADVANCE, self._reader, lsn_text(at), writes=True
            )
        self._reader_at = at

    @contextmanager
    def _at_length(self) -> Iterator[None]:
        """A transaction that may take as long as an epoch does, on this very connection."""
        self._session.run("begin a transaction", _BEGIN)
        try:
            self._session.begin_to_write()
            yield
            self._session.commit()
        except BaseException:
            self._session.close()
            raise

    @property
    def _lock(self) -> int:
        digest = hashlib.sha256(f"lamina slot {self._wanted.slot}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _in_use(self) -> Refused:
        holders = self._session.look("ask who has the slot", _HOLDER, self._lock)
        self._session.close()
        who = ", ".join(
            f"{each['application']} (process {each['pid']} of the server, from {each['address']})"
            for each in holders
        )
        return self._refused(
            f"another pipeline or process reads from the replication slot {self._wanted.slot!r}"
            + (f": {who}" if who else ""),
            "Stop it, or give each pipeline a slot of its own: the option slot",
        )

    def _refused(self, message: str, advice: str) -> Refused:
        return Refused(
            f"the source {self._wanted.source!r}: {message}",
            where=self._session.where,
            advice=advice,
        )


_SNAPSHOT = """
SELECT pg_current_snapshot()::text AS seen,
       pg_snapshot_xmin(pg_current_snapshot())::text AS first,
       pg_current_wal_insert_lsn()::text AS wal
"""
_NEXT = "SELECT pg_current_xact_id()::text AS next"
_DROP = "SELECT pg_drop_replication_slot($1)::text"


def _is_given_up(slot: Mapping[str, Any]) -> bool:
    return slot["wal_status"] == "lost" or bool(slot.get("invalidation_reason"))


def _literal(text: str) -> str:
    """A text in a statement, whatever standard_conforming_strings is."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
