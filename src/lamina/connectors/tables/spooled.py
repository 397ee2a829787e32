"""A table that is copied into the home, version by version: what an epoch reads never changes.

look      what can be seen of the table in a moment; the same look, the same rows
identity  what COMMIT says of a version
spool     all of its rows as Parquet files, in a folder of the home that tasks see

Whoever replaces the table while an epoch runs does not disturb it. If the table changes while it is
copied, the copy is thrown away and made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pyarrow.parquet as pq

from lamina.clock import Clock, SystemClock
from lamina.connectors.kinds import TableContext
from lamina.connectors.tables.options import REFRESH, check_keys
from lamina.connectors.tables.unique import check_unique
from lamina.engine.model import TableVersion
from lamina.errors import StoreUnavailable
from lamina.os_errors import typed_errors

TRIES = 3
"""How often a table is copied that changes in the meantime, before somebody has to wait."""

Look = TypeVar("Look")


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells a version from others."""

    offsets: Mapping[str, str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    rises: str = ""


class Reader(Protocol[Look]):
    """How one kind of table is read."""

    def look(self) -> Look:
        """StoreUnavailable if the table is not there."""
        ...

    def is_settled(self, look: Look) -> bool:
        """Whether the same look, again, says that nothing has changed."""
        ...

    def identity(self, look: Look) -> Identity | None:
        """Of the version that was looked at; None if only a copy of its rows can tell."""
        ...

    def spool(self, look: Look, folder: Path) -> Identity:
        """Write all rows as Parquet files into an empty folder; the identity of what was read."""
        ...

    def close(self) -> None: ...


class SpooledTable(Generic[Look]):
    """A table of the pipeline: the versions that a reader finds."""

    def __init__(
        self,
        context: TableContext,
        reader: Reader[Look],
        *,
        clock: Clock | None = None,
        refresh_us: int = 0,
    ) -> None:
        """*refresh_us* counts if the pipeline says nothing of it."""
        assert context.scratch is not None, "a table is opened in a home"
        self._table = context.table
        self._keys = check_keys(context)
        self._refresh_s = (context.given.microseconds(REFRESH.name) or refresh_us) / 1e6
        self._folder = context.scratch
        self._reader = reader
        self._clock = clock or SystemClock()
        self._looked: Look | None = None
        self._next_look = 0.0
        self._version: TableVersion | None = None
        self._sizes: dict[str, int] = {}
        self._kept: Path | None = None  # the copy of this version
        self._copies = 0
        with typed_errors(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)  # of a process that is gone

    def version(self) -> TableVersion:
        """The newest one that may be looked for; it is copied if it is new."""
        if self._version is not None and self._clock.monotonic() < self._next_look:
            return self._version
        look = self._reader.look()
        known = self._looked
        if self._version is None or look != known or not self._reader.is_settled(look):
            self._version = self._changed(look)
        self._next_look = self._clock.monotonic() + self._refresh_s
        return self._version

    def confirm(self, version: TableVersion) -> None:
        """The copy that tasks have read is there as it was written."""
        for file in version.files:
            path = Path(file)
            if not path.exists() or path.stat().st_size != self._sizes.get(file):
                self._version = None
                raise StoreUnavailable(
                    f"the copy of the table {version.table!r} is not as it was written",
                    where=file,
                    advice="It is made again; nothing but Lamina should write into the home",
                )

    def close(self) -> None:
        self._reader.close()

    # steps

    def _changed(self, look: Look) -> TableVersion:
        """The version that was looked at: the one that is here, if its rows are the same."""
        for _ in range(TRIES):
            identity = self._reader.identity(look)
            if identity is not None and self._is_here(identity):
                self._looked = look
                assert self._version is not None
                return self._version
            found = self._copied(look, identity)
            if found is not None:
                self._looked = look
                return found
            look = self._reader.look()
        raise StoreUnavailable(
            f"the table {self._table.name!r} changes while it is read",
            advice="Replace it in one step: write beside it, and rename",
        )

    def _is_here(self, identity: Identity) -> bool:
        return self._version is not None and dict(self._version.identity) == dict(identity.offsets)

    def _copied(self, look: Look, identity: Identity | None) -> TableVersion | None:
        """None if the rows that were copied are not those that were looked at."""
        folder = self._folder / str(self._copies)
        self._copies += 1
        with typed_errors(folder):
            folder.mkdir(parents=True)
        kept = self._kept  # the epoch that has read it is decided, or thrown away
        try:
            read = self._reader.spool(look, folder)
            if identity is not None and dict(read.offsets) != dict(identity.offsets):
                return None
            if self._is_here(read):
                return self._version
            files = sorted(folder.rglob("*.parquet"))
            check_unique(self._table.name, files, self._keys)
            version = _version(self._table.name, self._table.format, read, files)
            self._sizes = {str(file): file.stat().st_size for file in files}
            self._kept = folder
            return version
        finally:
            for each in (folder, kept):
                if each is not None and each != self._kept:
                    shutil.rmtree(each, ignore_errors=True)


def _version(table: str, kind: str, read: Identity, files: Sequence[Path]) -> TableVersion:
    footers = [pq.read_metadata(file) for file in files]
    return TableVersion(
        table,
        kind,
        read.offsets,
        rows=sum(footer.num_rows for footer in footers),
        size=sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups)),
        files=tuple(map(str, files)),
        metadata={**read.metadata, "rows": str(sum(footer.num_rows for footer in footers))},
        rises=read.rises,
    )
