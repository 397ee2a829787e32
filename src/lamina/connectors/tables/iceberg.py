"""Reads an Iceberg table through pyiceberg: one snapshot of it, with deletes applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.table import Table

from lamina.connectors.iceberg.catalog import TableCatalog
from lamina.connectors.iceberg.kind import address_of
from lamina.connectors.kinds import TableContext
from lamina.connectors.tables.rows import write_rows
from lamina.connectors.tables.spooled import Identity
from lamina.errors import NotFound, StoreUnavailable

SEQUENCE = "sequence_number"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of one table: another one of the same name has another id."""

    table: str
    id: int | None  # None: nothing was ever written
    sequence: int
    handle: Table = field(compare=False, repr=False)


class IcebergReader:
    """The snapshots of an Iceberg table."""

    def __init__(self, context: TableContext) -> None:
        assert context.columns is not None
        self._name = context.table.name
        self._columns = context.columns
        self._catalog = TableCatalog(address_of(context.table, context.given))

    def look(self) -> Snapshot:
        table = self._catalog.load()
        if table is None:
            message = f"there is no Iceberg table for {self._name!r}"
            raise StoreUnavailable(message, where=str(self._catalog.address), advice="Make it")
        snapshot = table.current_snapshot()
        if snapshot is None:
            return Snapshot(str(table.metadata.table_uuid), None, 0, table)
        sequence = snapshot.sequence_number or 0
        return Snapshot(str(table.metadata.table_uuid), snapshot.snapshot_id, sequence, table)

    def is_settled(self, look: Snapshot) -> bool:
        del look  # a snapshot never changes
        return True

    def identity(self, look: Snapshot) -> Identity:
        shown = "none" if look.id is None else str(look.id)
        offsets = {"snapshot_id": shown, SEQUENCE: str(look.sequence), "table_uuid": look.table}
        return Identity(offsets, rises=SEQUENCE)

    def spool(self, look: Snapshot, folder: Path) -> Identity:
        try:
            with self._catalog.typed():
                rows = look.handle.scan().to_arrow_batch_reader()
                write_rows(self._name, rows, rows.schema, self._columns, folder)
        except NotFound as error:  # its files were expired: the next look finds a newer one
            message = f"a file of the Iceberg table {self._name!r} was removed while it was read"
            raise StoreUnavailable(f"{message}: {error.message}", where=error.where) from error
        return self.identity(look)

    def close(self) -> None:
        self._catalog.close()
