"""Reads a Delta table through deltalake: one version of it, to its last row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lamina.connectors.delta.errors import TableErrors, is_missing
from lamina.connectors.delta.place import LocalPlace, RemotePlace
from lamina.connectors.kinds import TableContext
from lamina.connectors.store_options import store_options
from lamina.connectors.tables.rows import write_rows
from lamina.connectors.tables.spooled import Identity
from lamina.errors import NotFound, StoreUnavailable

VERSION = "version"


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """Of one table: another one at the same place has another id."""

    id: str
    version: int


class DeltaReader:
    """The versions of a Delta table."""

    def __init__(self, context: TableContext) -> None:
        assert context.columns is not None
        self._name = context.table.name
        self._columns = context.columns
        at = context.given.place("path")
        self._place = (
            LocalPlace(at, lambda _: None)
            if isinstance(at, Path)
            else RemotePlace(at, lambda _: None, store_options(context.given))
        )
        self._errors = TableErrors(self._place.where, self._place.remote)

    def look(self) -> DeltaVersion:
        table = self._load()
        return DeltaVersion(str(table.metadata().id), table.version())

    def is_settled(self, look: DeltaVersion) -> bool:
        del look  # a version never changes
        return True

    def identity(self, look: DeltaVersion) -> Identity:
        return Identity({VERSION: str(look.version), "id": look.id}, rises=VERSION)

    def spool(self, look: DeltaVersion, folder: Path) -> Identity:
        try:
            with self._errors.typed():
                table = self._load(look.version)
                rows = table.to_pyarrow_dataset()
                write_rows(self._name, rows.to_batches(), rows.schema, self._columns, folder)
        except NotFound as error:  # the next look finds a newer version, or none
            message = f"a file of the Delta table {self._name!r} was removed while it was read"
            raise StoreUnavailable(f"{message}: {error.message}", where=error.where) from error
        return self.identity(DeltaVersion(str(table.metadata().id), table.version()))

    def close(self) -> None:
        """Nothing is held between two looks."""

    def _load(self, version: int | None = None) -> DeltaTable:
        with self._errors.typed():
            try:
                return DeltaTable(
                    self._place.uri, version=version, storage_options=self._place.options or None
                )
            except TableNotFoundError as error:
                if not is_missing(error):
                    raise
        message = f"there is no Delta table for {self._name!r}"
        raise StoreUnavailable(message, where=self._place.where, advice="Make it, or see its path")
