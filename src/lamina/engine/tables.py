"""Tables of an epoch: one version of each is chosen when it is planned, and named by its COMMIT.

A committed epoch is never computed again: its state and its output are in the log. So nobody needs
the rows of an old version, and they are not kept. What a COMMIT says of a table is for people, and
for noticing that a table has gone back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.engine.model import TableVersion
from lamina.engine.ports import Table
from lamina.format.manifest_model import CONNECTOR_TYPE, ConnectorCheckpoint


class Tables:
    """The tables of a pipeline, and which version of each the last epoch had."""

    def __init__(
        self, tables: Mapping[str, Table], committed: Mapping[str, ConnectorCheckpoint]
    ) -> None:
        """*committed* also names tables that are not in the pipeline now: they may come back."""
        self._tables = tables
        self.committed = committed

    def plan(self) -> dict[str, TableVersion]:
        """The version of each table that the next epoch reads, which is there to be read."""
        return {name: self._noted(table.version()) for name, table in sorted(self._tables.items())}

    def confirm(self, versions: Mapping[str, TableVersion]) -> None:
        """Before COMMIT: what tasks have read is what was planned; raises what has changed."""
        for name, version in versions.items():
            self._tables[name].confirm(version)

    def offsets(
        self, versions: Mapping[str, TableVersion], epoch: int
    ) -> dict[str, ConnectorCheckpoint]:
        """What COMMIT says: of each table its version, and since which epoch it has been read."""
        found = {name: self._offset(each, epoch) for name, each in versions.items()}
        return {**self.committed, **found}

    def close(self) -> None:
        for table in self._tables.values():
            table.close()

    # steps

    def _offset(self, version: TableVersion, epoch: int) -> ConnectorCheckpoint:
        last = self.committed.get(version.table)
        if last is not None and dict(last.offsets) == dict(version.identity):
            epoch = last.epoch
        metadata = {CONNECTOR_TYPE: version.format, **version.metadata}
        return ConnectorCheckpoint(dict(version.identity), epoch, metadata)

    def _noted(self, version: TableVersion) -> TableVersion:
        last = self.committed.get(version.table)
        if last is None or dict(last.offsets) == dict(version.identity):
            return version
        said = ", ".join(f"{key} {value}" for key, value in version.identity.items())
        note = f"the table {version.table!r} has changed: {version.rows} rows ({said[:200]})"
        old = {**last.metadata, **last.offsets}
        new = {**version.metadata, **version.identity}
        if _has_gone_back(old.get(version.rises), new.get(version.rises)):
            note = f"the table {version.table!r} has gone back: it was at {version.rises} "
            note += f"{old[version.rises]}, and is at {new[version.rises]}"
        return replace(version, notes=(*version.notes, note))


def _has_gone_back(old: str | None, new: str | None) -> bool:
    """Whether a number that only rises has fallen: the table was restored, or is another one."""
    return old is not None and new is not None and place_of(new) < place_of(old)


def place_of(text: str) -> int:
    """A version as a number; that of a PostgreSQL log is 16/B374D848, in two halves."""
    high, slash, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16) if slash else int(text)
