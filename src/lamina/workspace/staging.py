"""Output of a task as an immutable Parquet file, synced before the task returns (R7)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.disk import LocalDisk
from lamina.disk.folders import remove_tree, sync_folder
from lamina.format.home_names import (
    STAGED,
    parse_staged_folder,
    staged_path,
)
from lamina.os_errors import typed_errors
from lamina.wal.outputs import read_output, segment_of
from lamina.workspace.model import Attempt, Staged

GROUP_ROWS = 100_000
GROUP_BYTES = 64 << 20
"""What is held in memory for a row group, whichever comes first."""


def stage(home: Path, attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> tuple[Staged, ...]:
    """Write rows to a file of this attempt's own; no rows, no file."""
    name = staged_path(attempt.epoch, attempt.stream, attempt.partition, attempt.tag)
    path = home / name
    writer: _Writer | None = None
    with typed_errors(path):
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = _Writer(path, batch.schema)
            writer.write(batch)
        if writer is None:
            return ()
        size, sha256 = writer.close()
    return (Staged(name, size, sha256, writer.rows),)


@dataclass(frozen=True, slots=True)
class HomeStaged:
    """Staged files of a home, as sinks get at them."""

    home: Path

    def open(self, file: Staged) -> BufferedIOBase:
        if segment_of(file.path) is not None:  # the home was in an object store
            return BytesIO(read_output(LocalDisk(self.home), file.path))
        path = self.home / file.path
        with typed_errors(path):
            return path.open("rb")

    def local_path(self, file: Staged) -> Path | None:
        return None if segment_of(file.path) else self.home / file.path

    def where(self, file: Staged) -> str:
        return str(self.home / file.path)


def drop_staged(home: Path, floor: int) -> None:
    """Remove the output of epochs up to *floor*: every sink has it, no recovery needs it (R7)."""
    _drop(home, lambda epoch: epoch <= floor)


def drop_undecided(home: Path, head: int) -> None:
    """Remove the output of epochs above *head*, the last one that was decided: it never counts.

    A late task of a process that is fenced may still be writing: it finds its folder gone, or
    makes it again, for files that have names of their own and that nobody will ever ask for.
    """
    _drop(home, lambda epoch: epoch > head)


def _drop(home: Path, goes: Callable[[int], bool]) -> None:
    folder = home / STAGED
    with typed_errors(folder):
        if not folder.exists():
            return
        for each in folder.iterdir():
            epoch = parse_staged_folder(each.name)
            if epoch is not None and goes(epoch):
                remove_tree(each)


class _Writer:
    """Small batches become row groups of many rows: each has pages and dictionaries of its own."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._file = _Hashed(path.open("xb"))
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._file, "w"), schema, use_dictionary=repeated_columns(schema)
        )
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._group.append(batch)
        self._group_rows += batch.num_rows
        self._group_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        self._parquet.write_table(pa.Table.from_batches(self._group))
        self._group, self._group_rows, self._group_bytes = [], 0, 0

    def close(self) -> tuple[int, str]:
        """Everything on disk, and the name in its folder, and the folder in its own."""
        if self._group:
            self._write_group()
        self._parquet.close()
        self._file.sync()
        for folder in (self._path.parent, self._path.parent.parent):
            sync_folder(folder)
        return self._file.size, self._file.digest.hexdigest()


def repeated_columns(schema: pa.Schema) -> list[str]:
    """Columns with a dictionary: texts, which repeat. Numbers take longer to look up in one."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]


class _Hashed:
    """A file that hashes what is written to it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Arrow closes what it is given; `sync` has done it."""
