"""A table of PostgreSQL as a source of changes: what the driver plans, and how Spark reads it.

The first epoch is a snapshot of the whole table, every later one a whole number of transactions.
The driver decodes them into a file, which the streams of the epoch read. Between a plan and its
COMMIT nothing of it must survive: PostgreSQL has it until the slot is advanced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lamina.connectors.changes.journal import JournalWriter
from lamina.connectors.changes.source import JournalSource
from lamina.connectors.kinds import SourceContext
from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.opening import server_of
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres_cdc.decoding import Decoder
from lamina.connectors.postgres_cdc.kind import MAX_CHANGES, slot_of
from lamina.connectors.postgres_cdc.lsn import Position, SeenTransactions, lsn_of, lsn_text
from lamina.connectors.postgres_cdc.slot import Slots
from lamina.connectors.postgres_cdc.table import (
    ReadTable,
    Seen,
    Wanted,
    look,
    types_of,
    types_text,
)
from lamina.connectors.postgres_cdc.values import ReadColumn
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits
from lamina.errors import Refused
from lamina.format.home_names import source_note_path
from lamina.format.source_note import decode_made, encode_made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_BYTES = 16 << 20
"""Of log without a change of ours: an epoch without rows, so that the slot lets go of it."""
# Their text is what the output function prints; of other types a cast may print something else.
_SAME_TEXT = {
    *("int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date"),
    *("timestamp", "timestamptz", "bytea", "uuid", "json", "jsonb"),
}


class PostgresChanges(JournalSource):
    """One table, by way of one replication slot."""

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        given, source = context.given, context.source
        self._wanted = Wanted(
            source=source.name,
            schema=given.text("schema") or "public",
            table=given.text("table"),
            publication=given.text("publication"),
            slot=slot_of(context),
            columns=source.columns,
            keys=given.columns("keys"),
        )
        self._columns = [ReadColumn(each.name, each.type) for each in self._schema]
        server = server_of(given)
        read_timeout_us = given.microseconds("read_timeout")
        if read_timeout_us is not None:
            server = replace(server, write_timeout_ms=-(-read_timeout_us // 1000))
        self._where = f"{server.url}, table {self._wanted.quoted}"
        self._session = Session(
            server, application=f"lamina {context.pipeline} {source.name}", where=self._where
        )
        patience_s = server.statement_timeout_ms / 1000
        self._slots = Slots(self._session, self._wanted, patience_s=patience_s)

    def probe(self, spark: SparkSession) -> None:
        """Whether the server answers, to us, and has the table as it is declared."""
        del spark
        try:
            self._look()
        finally:
            self._session.close()

    def acknowledge(self, offset: Offset) -> None:
        """The slot moves to where the oldest kept checkpoint is; later, if it is not ours now."""
        at = Position.read(offset, self._where)
        if at is not None and at.slot == self._wanted.slot and self._slots.is_reading:
            self._slots.advance(at.lsn)

    # steps

    @property
    def _is_reading(self) -> bool:
        return self._slots.is_reading

    def _disconnect(self) -> None:
        self._session.close()

    def _plan(self, start: Offset, limits: Limits) -> SourceRange:
        self._slots.claim()
        seen = self._look()
        self._forget_files()
        at = Position.read(start, self._where)
        if at is None:
            return self._snapshot(seen, start)
        self._check_slot_name(at)
        self._slots.check(seen, at)
        ours = self._context.given.number(MAX_CHANGES)
        return self._changes(seen, start, at, min(ours, limits.rows or ours))

    def _look(self) -> Seen:
        return look(self._session, self._wanted, [column.type for column in self._columns])

    def _check_slot_name(self, at: Position) -> None:
        if at.slot != self._wanted.slot:
            raise Refused(
                f"the source {self.name!r} has read from the replication slot {at.slot!r}, and is "
                f"now told to read from {self._wanted.slot!r}",
                where=self._where,
                advice=f"Write slot '{at.slot}'. (Its default name follows from the names of "
                "pipeline and source)",
            )

    # the first epoch

    def _snapshot(self, seen: Seen, start: Offset) -> SourceRange:
        """All rows, as one transaction sees them; what the slot tells of those it has seen is
        passed over later."""
        first = self._own_slot(seen)
        behind = self._slots.next_transaction()
        journal = self._journal(f"snapshot-{lsn_text(first).replace('/', '-')}")
        taken: list[SeenTransactions] = []

        def read(visible: str, wal: int) -> None:
            taken.append(SeenTransactions(visible, wal))
            self._session.read("read the table", self._select(seen), self._inserted(journal))

        self._slots.snapshot(behind, read)
        end = Position(
            lsn=first,
            slot=self._wanted.slot,
            system=seen.row["system"],
            timeline=seen.row["timeline"],
            table=seen.row["oid"],
            columns=types_text(seen.types),
            seen=taken[0],
        )
        return SourceRange(self.name, start, end.written(), journal.close())

    def _own_slot(self, seen: Seen) -> int:
        """A slot that nothing was committed of: a new one, or what a killed start has left.

        That it was this pipeline which made it is written down before: a slot that is another's
        must not be read.
        """
        name, notes = self._wanted.slot, self._context.notes
        if seen.slot is not None:
            if not self._has_made(seen):
                raise Refused(
                    f"the source {self.name!r}: there is a replication slot {name!r} already, and "
                    "this pipeline has not made it",
                    where=self._where,
                    advice="If another pipeline reads from it, choose another name with the option "
                    f"slot. If nobody does: SELECT pg_drop_replication_slot('{name}')",
                )
            self._slots.check_usable(seen)
            return lsn_of(seen.slot["confirmed_flush_lsn"])
        if notes is not None:
            notes.write(source_note_path(self.name), encode_made(name, seen.row["system"]))
        return self._slots.create()

    def _has_made(self, seen: Seen) -> bool:
        notes = self._context.notes
        path = source_note_path(self.name)
        data = notes.read(path) if notes is not None else None
        if notes is None or data is None:
            return False
        return decode_made(data, notes.where(path)) == (self._wanted.slot, seen.row["system"])

    def _select(self, seen: Seen) -> str:
        texts = []
        for column in self._columns:
            name = seen.spelled[column.name]
            plain = seen.found[name].type in _SAME_TEXT and not seen.found[name].is_list
            printed = f"{quoted(name)}::text" if plain else f"format('%s', {quoted(name)})"
            texts.append(
                printed if plain else f"CASE WHEN {quoted(name)} IS NOT NULL THEN {printed} END"
            )
        return f"SELECT {', '.join(texts)} FROM ONLY {self._wanted.quoted}"

    def _inserted(self, journal: JournalWriter) -> Callable[[pa.RecordBatch], None]:
        def take(batch: pa.RecordBatch) -> None:
            arrays = [
                column.read(texts, self._where)
                for column, texts in zip(self._columns, batch.columns, strict=True)
            ]
            journal.insert(pa.table(arrays, schema=self._schema))

        return take

    # later epochs

    def _changes(self, seen: Seen, start: Offset, at: Position, rows_max: int) -> SourceRange:
        known = types_of(at.columns)
        types = {name: known.get(name, now) for name, now in seen.types.items()}
        table = ReadTable(
            source=self.name,
            schema=self._wanted.schema,
            name=self._wanted.table,
            oid=at.table,
            where=self._where,
            spelled=seen.spelled,
            types=types,
        )
        decoder = Decoder(table, self._columns, at.lsn, at.seen)
        versions = self._versions()

        def take(batch: pa.RecordBatch) -> None:
            for each in decoder.versions(batch):
                versions.add(each)

        read_to = self._slots.changes(at.lsn, rows_max, take)
        end = decoder.end or (read_to if read_to - at.lsn > QUIET_BYTES else at.lsn)
        if end == at.lsn:
            return SourceRange(self.name, start, start)
        self._slots.has_read(end)
        named = f"{lsn_text(at.lsn)}-{lsn_text(end)}".replace("/", "_")
        journal = self._journal(named)
        versions.fold_into(journal)
        still = at.seen if at.seen is not None and end < at.seen.until else None
        after = replace(at, lsn=end, columns=types_text(types), seen=still)
        return SourceRange(self.name, start, after.written(), journal.close())
