"""The catalog of an Iceberg sink, and handles of its table.

A handle is for one look and one commit. pyiceberg would commit again by itself on top of what
others have done, without looking at their mark: a process that was replaced would get through. So
a handle is told not to try again, and not in the table's own properties: those are for all writers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate
from requests import Session
from requests.adapters import HTTPAdapter
from sqlalchemy import event, inspect
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from lamina.connectors.iceberg.errors import typed_errors
from lamina.connectors.iceberg.files import IMPLEMENTATION, HandleFiles, Hook, unheard
from lamina.disk.files import LocalFiles, make_folder
from lamina.disk.folders import sync_folder
from lamina.errors import NotFound

ANSWER_SECONDS_MAX = 60
OLDEST_KEPT = 5
NEW_TABLE = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}
"""A table gets a commit for each epoch: without these its metadata files and manifests pile up."""

_SQL_TABLES = ("iceberg_tables", "iceberg_namespace_properties")


class Outdated(Exception):
    """Somebody else has changed the table since the handle was loaded: look again."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table is. Properties are pyiceberg's own, with secrets in some of them."""

    kind: str  # sql or rest
    catalog: str
    properties: Mapping[str, Any] = field(repr=False)
    table: tuple[str, ...]  # namespace and name
    sqlite: Path | None = None  # the file of an SQL catalog that is one
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """For messages."""
        return f"the Iceberg table {'.'.join(self.table)}"


@dataclass(frozen=True, slots=True)
class History:
    """What a handle needs of the history that it goes without."""

    snapshot_ids: frozenset[int] = frozenset()
    newest_ms: int = 0


class TableCatalog:
    """One table of a catalog; opened when it is first asked for something."""

    def __init__(self, address: TableAddress, hook: Hook = unheard) -> None:
        self.address = address
        self._hook = hook
        self._opened: Catalog | None = None
        self._history = History()  # of the handle that was loaded last

    def load(self) -> Table | None:
        """A handle; None if there is no such table. Nothing is made."""
        with self._call("load"):
            catalog = self._open()
            if catalog is None:
                return None
            try:
                table = catalog.load_table(self.address.table)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            self._history = history_of(table.metadata)
            table.metadata = _slim(table.metadata)
            table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            table.io = HandleFiles(table.io, self._hook)
            return table

    def create(self, schema: Schema, spec: PartitionSpec) -> Table:
        """A handle of the table, made with all that it needs unless somebody else was faster."""
        with self._call("create"):
            catalog = self._open_or_make()
            namespace = self.address.table[:-1]
            for depth in range(1, len(namespace) + 1):
                with suppress(IntegrityError):  # made by another process at the same time
                    catalog.create_namespace_if_not_exists(namespace[:depth])
            with suppress(TableAlreadyExistsError):
                catalog.create_table(
                    self.address.table, schema, partition_spec=spec, properties=NEW_TABLE
                )
        table = self.load()
        if table is None:
            message = "the table is gone that was made a moment ago"
            raise NotFound(message, where=str(self.address))
        return table

    def has_snapshot(self, snapshot_id: int | None) -> bool:
        """Whether the table had it when it was loaded last, newest or not."""
        return snapshot_id in self._history.snapshot_ids

    def commit(self, table: Table, transaction: Transaction) -> None:
        """All of a transaction, or nothing: then Outdated, or what is wrong.

        Any other error leaves open whether it was done: the mark in the table tells.
        """
        with self._call("commit"):
            not_before(transaction, self._history.newest_ms + 1)
            try:
                transaction.commit_transaction()
            except CommitFailedException as error:
                raise Outdated(str(error)) from error
            except OSError:
                if self.address.kind == "sql":
                    discard(table)  # a file could not be written, so the database was not asked
                raise
        files_of(table).committed()

    @contextmanager
    def typed(self) -> Iterator[None]:
        """What goes wrong in the block, as an error of our tree."""
        with typed_errors(str(self.address), self.address.secrets):
            yield

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        with self.typed():
            self._hook(name)
            yield
            self._hook(f"{name} done")

    # open

    def _open(self) -> Catalog | None:
        """The catalog; None if there is none yet."""
        if self._opened is None and self.address.kind == "rest":
            self._opened = _open_rest(self.address)
        elif self._opened is None:
            if self.address.sqlite is not None and not self.address.sqlite.exists():
                return None  # SQLite would make it
            catalog = _open_sql(self.address)
            if _has_tables(catalog):
                self._opened = catalog
            else:
                catalog.close()
        return self._opened

    def _open_or_make(self) -> Catalog:
        opened = self._open()
        if opened is not None:
            return opened
        sqlite = self.address.sqlite
        if sqlite is not None:
            make_folder(LocalFiles(), sqlite.parent)
        self._opened = catalog = _open_sql(self.address)
        try:
            catalog.create_tables()
        except (OperationalError, ProgrammingError, IntegrityError):
            if not _has_tables(catalog):  # else another process was faster
                self.close()
                raise
        if sqlite is not None:
            sync_folder(sqlite.parent)
        return catalog


def history_of(metadata: TableMetadata) -> History:
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    times += [entry.timestamp_ms for entry in metadata.snapshot_log]
    ids = frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots)
    return History(ids, max([metadata.last_updated_ms, *times]))


def not_before(transaction: Transaction, time_ms: int) -> None:
    """Date new snapshots at *time_ms* at the earliest.

    pyiceberg takes the time of the clock, which may have gone back; Java's readers refuse a whole
    table whose history goes back by more than a minute.
    """
    transaction._updates = tuple(  # noqa: SLF001
        update.model_copy(update={"snapshot": _dated(update.snapshot, time_ms)})
        if isinstance(update, AddSnapshotUpdate)
        else update
        for update in transaction._updates  # noqa: SLF001
    )


def _dated(snapshot: Snapshot, time_ms: int) -> Snapshot:
    return snapshot.model_copy(update={"timestamp_ms": max(snapshot.timestamp_ms, time_ms)})


def _slim(metadata: TableMetadata) -> TableMetadata:
    """Without the history, which commits have nothing to do with.

    pyiceberg copies all of it twenty times for each: it would take longer from epoch to epoch.
    """
    needed = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    kept = [each for each in metadata.snapshots if each.snapshot_id in needed]
    oldest = metadata.metadata_log[:OLDEST_KEPT]  # which may be deleted after the commit
    changed = {"snapshots": kept, "snapshot_log": [], "metadata_log": oldest}
    return metadata.model_copy(update=changed)


def files_of(table: Table) -> HandleFiles:
    assert isinstance(table.io, HandleFiles), "it was loaded by a TableCatalog"
    return table.io


def discard(table: Table) -> None:
    """Remove what was written for a commit that does not count."""
    files_of(table).refused()


def _open_sql(address: TableAddress) -> SqlCatalog:
    properties = {**address.properties, "init_catalog_tables": "false", PY_IO_IMPL: IMPLEMENTATION}
    if address.sqlite is None:
        properties.setdefault("pool_pre_ping", "true")  # a server that was started again
    catalog = SqlCatalog(address.catalog, **properties)
    if address.sqlite is not None:
        event.listen(catalog.engine, "connect", _keep_commits)
        catalog.engine.dispose()  # connections from before that
    return catalog


def _keep_commits(connection: Any, _: object) -> None:
    """A power cut can bring SQLite's journal back, and undo a commit; not with EXTRA."""
    connection.execute("PRAGMA synchronous = EXTRA")


def _has_tables(catalog: SqlCatalog) -> bool:
    try:
        known = inspect(catalog.engine)
        return all(known.has_table(name) for name in _SQL_TABLES)
    except BaseException:
        catalog.close()
        raise


def _open_rest(address: TableAddress) -> RestCatalog:
    return _ImpatientCatalog(address.catalog, **address.properties, **{PY_IO_IMPL: IMPLEMENTATION})


class _ImpatientCatalog(RestCatalog):
    """pyiceberg waits for an answer for ever; who waits too long must say so."""

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Impatient())
        return session


class _Impatient(HTTPAdapter):
    def send(self, *args: Any, **given: Any) -> Any:
        given["timeout"] = given.get("timeout") or ANSWER_SECONDS_MAX
        return super().send(*args, **given)
