"""An Iceberg table as a sink: rows and mark in one commit of the catalog (R6).

    load      the table as it is now, with its mark
    judge     done already, another's, fenced, or now
    write     data files and manifests, which nobody sees yet
    commit    a new snapshot and the mark, if the table is still the one that was loaded

The catalog takes the commit only while the table's newest snapshot is the one that was loaded. A
claim adds a snapshot without rows, so a process from before it has nothing to commit on. Others may
append beside this sink: then it loads, judges and writes again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table, Transaction
from pyiceberg.types import NestedField

from lamina.connectors.iceberg import rows
from lamina.connectors.iceberg.catalog import Outdated, TableCatalog, discard
from lamina.connectors.iceberg.columns import (
    add_columns,
    check_keys,
    check_none_missing,
    check_partitions,
    check_upserts,
    missing_columns,
    partition_spec,
    table_schema,
)
from lamina.connectors.iceberg.mark import Mark, check_sink, decode_mark, encode_mark
from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.staged import without_stream
from lamina.engine.ports import Change, Output, Publication
from lamina.errors import LaminaError, NotFound, StoreError, StoreUnavailable
from lamina.format.pipeline_record import Owner
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner

TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class Layout:
    """What the options say about the table."""

    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False


class IcebergSink:
    """One table of a catalog."""

    delivery = "exactly once; an epoch becomes visible in one commit of the table"
    takes = frozenset(Change)

    def __init__(
        self,
        name: str,
        catalog: TableCatalog,
        *,
        output: Output | None = None,
        writing: Writing | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Without *output* it can be claimed and moved, and gets no rows."""
        self.name = name
        self._catalog = catalog
        self._output = output
        self._writing = writing or Writing(WriteMode.APPEND)
        self._layout = layout or Layout()
        self._where = str(catalog.address)

    def position(self) -> SinkPosition:
        """What the table says; columns that do not fit are found here, before any claim."""
        table = self._catalog.load()
        if self._output is not None:
            with self._catalog.typed():
                self._check(table)
        return self._mark(table).position

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        """The table is made if it is missing, and gets the columns that it lacks, if it may."""

        def claim(table: Table, transaction: Transaction) -> Mark:
            before = self._mark(table)
            check_sink(before, self.name, self._where)
            check_owner(before.position, pipeline)
            check_fence(before.position, generation)
            claimed = Mark(self.name, SinkPosition(pipeline, generation, before.position.point))
            missing = self._check(table)
            if claimed != before or missing:
                if missing:
                    add_columns(transaction, missing)
                words = encode_mark(claimed)
                rows.append_nothing(transaction, words)
                transaction.set_properties(words)
            return claimed

        return self._change(self._catalog.load() or self._create(), claim).position

    def publish(self, publication: Publication) -> None:
        wanted = Mark(self.name, publication.position)

        def write(table: Table, transaction: Transaction) -> Mark:
            before = self._mark(table)
            check_sink(before, self.name, self._where)
            if publication.judge(before.position) is Publish.DONE:
                return before
            check_none_missing(self._check(table), self._where)
            words = encode_mark(wanted)
            self._write(table, transaction, publication, words)
            transaction.set_properties(words)
            return wanted

        table = self._catalog.load()
        if table is None:
            message = "the table is gone: nothing is published before that is looked into"
            advice = "Restore it, or let the sink begin anew under another name"
            raise NotFound(message, where=self._where, advice=advice)
        self._change(table, write)

    def close(self) -> None:
        self._catalog.close()

    # steps

    def _create(self) -> Table:
        if self._output is None:
            raise without_stream(self.name)
        schema = table_schema(self._output.schema, self._where)
        spec = partition_spec(schema, self._layout.partition_by, self._where)
        return self._catalog.create(schema, spec)

    def _change(self, table: Table, change: Callable[[Table, Transaction], Mark]) -> Mark:
        """Change and commit, again and again if others commit in between."""
        for _ in range(TRIES_MAX):
            transaction = table.transaction()
            try:
                with self._catalog.typed():
                    wanted = change(table, transaction)
            except LaminaError:
                discard(table)
                raise
            snapshot_id = transaction.table_metadata.current_snapshot_id
            try:
                self._catalog.commit(table, transaction)
            except (Outdated, StoreError) as error:
                now = self._after(error)
                if self._mark(now) == wanted:
                    return wanted  # it was done, and only the answer was another one
                if not isinstance(error, Outdated):
                    raise  # it may still be on its way: its files stay
                if not self._may_count(now, wanted, snapshot_id):
                    discard(table)
                table = now
            else:
                return wanted
        message = f"other writers have changed the table {TRIES_MAX} times in a row"
        raise StoreUnavailable(message, where=self._where)

    def _may_count(self, now: Table, wanted: Mark, snapshot_id: int | None) -> bool:
        """Whether a refused commit may have been done, and others have gone on from there since.

        The refusal may be that of a second copy of the request. Files that are left behind take
        space; files that a snapshot names and that are gone make the table unreadable.
        """
        at, ours = self._mark(now).position, wanted.position
        is_past = at.generation >= ours.generation and _epoch(at) >= _epoch(ours)
        return is_past or self._catalog.has_snapshot(snapshot_id)

    def _after(self, error: Exception) -> Table:
        """The table after a commit whose outcome is not clear."""
        try:
            table = self._catalog.load()
        except StoreError as unreachable:
            raise (error if isinstance(error, StoreError) else unreachable) from None
        if table is None:
            raise NotFound("the table is gone", where=self._where) from error
        return table

    def _mark(self, table: Table | None) -> Mark:
        return decode_mark({} if table is None else table.properties, self._where)

    def _check(self, table: Table | None) -> list[NestedField]:
        """The columns that the table lacks and may get. Refused if others do not fit."""
        if self._output is None:
            return []
        columns = self._output.schema
        schema = table_schema(columns, self._where)
        check_keys(columns, self._writing.keys, self._where)
        if self._writing.mode is WriteMode.UPSERT:
            check_upserts(schema if table is None else table.schema(), self._where)
        if table is None:
            partition_spec(schema, self._layout.partition_by, self._where)
            return []
        check_partitions(table, self._layout.partition_by, self._where)
        missing = missing_columns(columns, table.schema(), self._where)
        if not self._layout.merge_schema:
            check_none_missing(missing, self._where)
        return missing

    def _write(
        self,
        table: Table,
        transaction: Transaction,
        publication: Publication,
        words: dict[str, str],
    ) -> None:
        if not publication.files:
            rows.append_nothing(transaction, words)
        elif self._output is None:
            raise without_stream(self.name)
        elif self._writing.mode is WriteMode.APPEND:
            rows.append(transaction, table, publication, words)
        else:
            rows.upsert(transaction, table, publication, words, writing=self._writing)


def _epoch(position: SinkPosition) -> int:
    return -1 if position.point is None else position.point.epoch
