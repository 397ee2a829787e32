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

from lamina.connectors.changes.folding import NEVER
from lamina.connectors.changes.journal import JournalWriter
from lamina.connectors.changes.remembered import RememberedRows, memory_schema
from lamina.connectors.changes.source import JournalSource
from lamina.connectors.kinds import SourceContext
from lamina.connectors.postgres.opening import server_of
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres_cdc.decoding import Decoder
from lamina.connectors.postgres_cdc.kind import MAX_CHANGES, REMEMBER_ROWS, slot_of
from lamina.connectors.postgres_cdc.lsn import Position, SeenTransactions, lsn_of, lsn_text
from lamina.connectors.postgres_cdc.slot import Slots
from lamina.connectors.postgres_cdc.slot_note import SlotNote
from lamina.connectors.postgres_cdc.table import (
    ANEW,
    ReadTable,
    Seen,
    Wanted,
    look,
    select_rows,
    types_of,
    types_text,
)
from lamina.connectors.postgres_cdc.values import ReadColumn
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits
from lamina.errors import Refused
from lamina.state.schema import StateSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_BYTES = 16 << 20
"""Of log without a change of ours: an epoch without rows, so that the slot lets go of it."""
OTHER_CLUSTER = (
    "If this one has taken its place, write another slot: the table is then compared with the rows "
    "that are remembered"
)


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
            remembers=given.switch(REMEMBER_ROWS),
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
        self._timeline = ""  # of the server, when it was last looked at

    @property
    def memory(self) -> StateSchema | None:
        return memory_schema(self._schema, self._keys) if self._wanted.remembers else None

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
        if at is None or not self._slots.is_reading:
            return
        if (at.slot, at.timeline) == (self._wanted.slot, self._timeline):
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
        self._timeline = seen.row["timeline"]
        self._forget_files()
        rows = self._rows()
        at = Position.read(start, self._where)
        if at is None:
            return self._snapshot(seen, start, self._own_slot(seen), rows)
        self._check_kept(at, seen)
        lost = self._lost(seen, at)
        if lost is not None and rows is None:
            raise lost
        if lost is not None:
            return self._compared(seen, start, at, rows, lost)
        ours = self._context.given.number(MAX_CHANGES)
        try:
            return self._changes(seen, start, at, min(ours, limits.rows or ours), rows)
        except Refused as refused:
            if rows is None:
                raise
            self._slots.claim()  # what is refused ends the connection
            return self._compared(self._look(), start, at, rows, refused)

    def _rows(self) -> RememberedRows | None:
        if self._memory is None:
            return None
        return RememberedRows(self._memory, self._schema, self._keys, self._where)

    def _look(self) -> Seen:
        return look(self._session, self._wanted, [column.type for column in self._columns])

    def _check_kept(self, at: Position, seen: Seen) -> None:
        """Refused if what the pipeline says is not about what was read so far."""
        if self._wanted.remembers and not at.remembers:
            raise Refused(
                f"the source {self.name!r} is to remember rows, and has read some without that",
                where=self._where,
                advice=f"Leave {REMEMBER_ROWS} out. {ANEW}",
            )
        if at.slot == self._wanted.slot:
            self._slots.check_cluster(seen, at, OTHER_CLUSTER if at.remembers else ANEW)
        elif not self._wanted.remembers:
            raise Refused(
                f"the source {self.name!r} has read from the replication slot {at.slot!r}, and is "
                f"now told to read from {self._wanted.slot!r}",
                where=self._where,
                advice=f"Write slot '{at.slot}'. (Its default name follows from the names of "
                "pipeline and source)",
            )

    def _lost(self, seen: Seen, at: Position) -> Refused | None:
        """Why the log cannot be read on from *at*, and the table must be read again."""
        if at.slot != self._wanted.slot:
            return Refused(f"the replication slot was {at.slot!r} before")
        if self._wanted.remembers and not set(seen.types) <= set(types_of(at.columns)):
            return Refused("it has columns that were not declared before")
        return self._slots.lost(seen, at)

    # epochs that read the table

    def _compared(
        self,
        seen: Seen,
        start: Offset,
        at: Position,
        rows: RememberedRows | None,
        why: Refused,
    ) -> SourceRange:
        """What tells the table from the rows that are remembered: nothing is left out by it."""
        is_ours = at.slot == self._wanted.slot
        first = self._slots.renew(seen) if is_ours else self._own_slot(seen)
        # What was committed before the look has ended when the snapshot is taken: it has all that.
        planned = self._snapshot(seen, start, max(first, seen.wal), rows)
        note = (
            f"{why.message}. So the source {self.name!r} has read the table again and compared it "
            "with the rows that it remembers: nothing is missing"
        )
        return replace(planned, notes=(note,))

    def _snapshot(
        self, seen: Seen, start: Offset, first: int, rows: RememberedRows | None
    ) -> SourceRange:
        """All rows, as one transaction sees them, or what they differ in from those that are
        remembered; what the slot tells of the transactions it has seen is passed over later."""
        behind = self._slots.next_transaction()
        journal = self._journal(f"snapshot-{lsn_text(first).replace('/', '-')}")
        versions = self._versions()
        taken: list[SeenTransactions] = []

        def read(visible: str, wal: int) -> None:
            taken.append(SeenTransactions(visible, wal))
            self._session.read(
                "read the table", select_rows(seen, self._wanted), self._read_rows(take)
            )

        def take(table: pa.Table) -> None:
            if start and rows is not None:
                versions.add(rows.entries(table, is_new=True))
            else:
                journal.insert(table)

        for each in rows.scan() if start and rows is not None else ():
            versions.add(each)
        self._slots.snapshot(behind, read)
        self._slots.read_anew()
        versions.fold_into(journal)
        end = Position(
            lsn=first,
            slot=self._wanted.slot,
            system=seen.row["system"],
            timeline=seen.row["timeline"],
            table=seen.row["oid"],
            columns=types_text(seen.types),
            seen=taken[0],
            published=seen.row["published_as"],
        )
        return self._range(start, end, journal, rows)

    def _own_slot(self, seen: Seen) -> int:
        """A slot that nothing was committed of: a new one, or what a killed start has left.

        That it was this pipeline which made it is written down before: a slot that is another's
        must not be read.
        """
        name, system = self._wanted.slot, seen.row["system"]
        note = SlotNote(self._context.notes, self.name)
        if seen.slot is None:
            note.write(name, system)
            return self._slots.create()
        if not note.says(name, system):
            raise Refused(
                f"the source {self.name!r}: there is a replication slot {name!r} already, and "
                "this pipeline has not made it",
                where=self._where,
                advice="If another pipeline reads from it, choose another name with the option "
                f"slot. If nobody does: SELECT pg_drop_replication_slot('{name}')",
            )
        self._slots.check_usable(seen)
        return lsn_of(seen.slot["confirmed_flush_lsn"])

    def _read_rows(self, take: Callable[[pa.Table], None]) -> Callable[[pa.RecordBatch], None]:
        def read(batch: pa.RecordBatch) -> None:
            arrays = [
                column.read(texts, self._where)
                for column, texts in zip(self._columns, batch.columns, strict=True)
            ]
            take(pa.table(arrays, schema=self._schema))

        return read

    # later epochs

    def _changes(
        self, seen: Seen, start: Offset, at: Position, rows_max: int, rows: RememberedRows | None
    ) -> SourceRange:
        known = types_of(at.columns)
        types = {name: known.get(name, now) for name, now in seen.types.items()}
        decoder = self._decoder(seen, at, types)
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
        if rows is None:
            versions.fold_into(journal)
        elif decoder.cleared_at == NEVER:
            versions.fold_into(journal, rows.before)
        else:
            for each in rows.scan():
                versions.add(each)
            versions.fold_into(journal, rows.filled, decoder.cleared_at)
        still = at.seen if at.seen is not None and end < at.seen.until else None
        after = replace(at, lsn=end, columns=types_text(types), seen=still)
        return self._range(start, after, journal, rows)

    def _decoder(self, seen: Seen, at: Position, types: dict[str, tuple[int, int]]) -> Decoder:
        table = ReadTable(
            source=self.name,
            schema=self._wanted.schema,
            name=self._wanted.table,
            oid=at.table,
            where=self._where,
            spelled=seen.spelled,
            types=types,
        )
        keys = {seen.spelled[key] for key in self._keys} if self._wanted.remembers else ()
        return Decoder(table, self._columns, at.lsn, at.seen, frozenset(keys))

    def _range(
        self, start: Offset, end: Position, writer: JournalWriter, rows: RememberedRows | None
    ) -> SourceRange:
        journal = writer.close()
        learned = rows.learned(journal) if rows is not None else None
        offset = replace(end, remembers=rows is not None).written()
        return SourceRange(self.name, start, offset, journal, learned)
