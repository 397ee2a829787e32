"""Files of a folder as a table: all of them together are a version.

A version is known by the contents of its files: one that is written again with the same bytes is no
new version. Spark reads them, by the same rules as the files of a source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.clock import Clock, SystemClock
from lamina.connectors.file_status import FileStatus, look
from lamina.connectors.files import FileRange
from lamina.connectors.folder import is_ignored
from lamina.connectors.kinds import TableContext
from lamina.connectors.partitions import chain_of
from lamina.connectors.tables.spooled import Identity
from lamina.errors import Refused, StoreUnavailable
from lamina.format.canonical import digest_of
from lamina.os_errors import typed_errors
from lamina.pipeline.model import DeclaredSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = "path"
QUIET_MS = 5_000
"""A file that was written less than this ago may be written again at the same time stamp."""
LISTED_MAX = 20
"""So many files are named one by one in COMMIT; of more, one digest stands for all."""
FILE_BYTES = 64 << 20
"""Of a copy, before another file is begun."""
_WRITING = "_temporary"
"""The folder that Spark and Hadoop have in a folder while they write there."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a table as they were found, by path."""

    folder: Path
    files: tuple[FileStatus, ...]
    at_ms: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Files) and self.files == other.files

    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def find_files(name: str, path: Path, clock: Clock) -> Files:
    """StoreUnavailable if there are none: an empty folder is not a table without rows."""
    path, at_ms = path.resolve(), clock.now_ms()
    with typed_errors(path):
        if path.is_file():
            folder, paths = path.parent, [path.name]
        elif path.is_dir():
            folder, paths = path, sorted(_paths(name, path))
        else:
            raise _missing(name, path, "is not there")
    found = tuple(file for each in paths if (file := look(folder, each)) is not None)
    if not found:
        raise _missing(name, path, "has no files")
    return Files(folder, found, at_ms)


def _paths(name: str, folder: Path) -> Iterator[str]:
    seen: set[tuple[int, int]] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(here)  # noqa: PTH116  os.walk gives text
        if (status.st_dev, status.st_ino) in seen:
            message = f"the folder of the table {name!r} contains itself, by a symbolic link"
            raise Refused(message, where=here, advice="Remove the link")
        seen.add((status.st_dev, status.st_ino))
        if _WRITING in folders:
            raise StoreUnavailable(
                f"the table {name!r} is being written",
                where=f"{here}/{_WRITING}",
                advice="The pipeline waits for it. If nobody writes there any more, remove the "
                "folder",
            )
        folders[:] = [each for each in folders if not is_ignored(each)]
        below = os.path.relpath(here, folder)
        prefix = "" if below == "." else f"{below}/"
        yield from (prefix + each for each in files if not is_ignored(each))


def _missing(name: str, path: Path, what: str) -> StoreUnavailable:
    message = f"the path of the table {name!r} {what}"
    return StoreUnavailable(message, where=str(path), advice="Put its files there")


class FileReader:
    """Reads a table of files."""

    def __init__(self, context: TableContext, *, clock: Clock | None = None) -> None:
        self._table = context.table
        self._given = context.given
        self._spark: SparkSession | None = context.spark
        self._clock = clock or SystemClock()

    def look(self) -> Files:
        return find_files(self._table.name, self._given.folder(PATH), self._clock)

    def is_settled(self, look: Files) -> bool:
        newest = max(file.changed_us for file in look.files)
        return look.at_ms - newest // 1000 >= QUIET_MS

    def identity(self, look: Files) -> Identity:
        """By the contents of all files."""
        found = {
            file.path: _digest(self._table.name, look.folder / file.path) for file in look.files
        }
        offsets = {
            "files": str(len(look.files)),
            "bytes": str(look.size),
            "sha256": digest_of([[path, digest] for path, digest in sorted(found.items())]),
        }
        listed = look.files if len(look.files) <= LISTED_MAX else ()
        metadata = {
            f"file {file.path}": f"{file.size} bytes, {file.changed_us} us, {found[file.path]}"
            for file in listed
        }
        return Identity(offsets, metadata)

    def spool(self, look: Files, folder: Path) -> Identity:
        from lamina.connectors.file_frames import FileFrames  # noqa: PLC0415  an extra

        assert self._spark is not None, "Spark reads files"
        if self._table.format == "parquet":
            self._check_columns(look)
        table = self._table
        source = DeclaredSource(table.name, table.columns, table.format, table.options)
        frames = FileFrames(source, self._given.further, keeps_bad_rows=False)
        rows = frames.rows(self._spark, FileRange(look.folder, look.files))
        count = max(1, look.size // FILE_BYTES)
        rows.coalesce(count).write.mode("overwrite").parquet(f"file://{folder}")
        return self.identity(self.look())

    def close(self) -> None:
        """Files are not held."""

    def _check_columns(self, look: Files) -> None:
        """Spark would take a column that a file lacks for one of nulls."""
        wanted = {column.name.lower(): column.name for column in self._table.columns}
        for file in look.files:
            path = look.folder / file.path
            in_path = chain_of(look.folder, file.path, wanted).columns
            try:
                names = {name.lower() for name in pq.read_schema(path).names}
            except (pa.ArrowInvalid, OSError) as error:
                message = f"a file of the table {self._table.name!r} is not Parquet: {error}"
                raise Refused(message, where=str(path)) from error
            for name in wanted.keys() - names - set(in_path):
                raise Refused(
                    f"a file of the table {self._table.name!r} lacks the column {wanted[name]!r}",
                    where=str(path),
                    advice=f"It has {', '.join(sorted(names))}",
                )


def _digest(table: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        message = f"a file of the table {table!r} has gone while it was read"
        raise StoreUnavailable(message, where=str(path)) from None
    except OSError as error:
        raise StoreUnavailable(
            f"a file of the table {table!r} cannot be read: {error.strerror}", where=str(path)
        ) from error
