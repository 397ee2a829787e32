"""The files that a source has read: their paths at hand, everything else in the source's memory.

All are compared with what they were when they are listed for the first time. Then a file is looked
at again when it is listed with another inode, which is how a replaced one looks, and when its turn
comes, because one that is written over in place changes nothing in its folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa

from lamina.connectors.file_status import (
    MEMORY,
    FileStatus,
    from_rows,
    is_same,
    look,
    to_rows,
)
from lamina.connectors.old_paths import OldPaths, is_old, understand
from lamina.engine.model import MemoryChange
from lamina.engine.ports import SourceMemory
from lamina.errors import Refused

TURN = 200  # files that each poll looks at again


class ReadFiles:
    """As of the last COMMIT."""

    def __init__(self, source: str, memory: SourceMemory, folder: Path, written: str) -> None:
        self._source = source
        self._memory = memory
        self._inodes: dict[str, int | None] = {}  # as listed, when the file was last compared
        self._turn: Iterator[str] = iter(())
        old: list[FileStatus] = []
        for batch in memory.scan():
            paths = batch.column("path").to_pylist()
            self._inodes.update((path, None) for path in paths if not is_old(path))
            if any(is_old(path) for path in paths):
                old += (file for file in from_rows(batch) if is_old(file.path))
        self._old = understand(old, folder, written)
        for path in self._inodes:
            self._old.files.pop(path, None)
        self._inodes.update(dict.fromkeys(self._old.files))

    def __contains__(self, path: str) -> bool:
        return path in self._inodes

    def add(self, files: Iterable[FileStatus]) -> None:
        """Files whose epoch is committed, and with it what `learned` has said."""
        self._inodes.update((file.path, file.inode) for file in files)
        self._old = OldPaths(elsewhere=self._old.elsewhere)

    def learned(self, files: Iterable[FileStatus]) -> MemoryChange:
        """What the memory gains with *files*; old paths in it become new ones on the way."""
        rows = to_rows([*files, *self._old.files.values()])
        gone = self._old.understood
        return MemoryChange(rows, _keys(gone) if gone else None)

    def check_listed(self, folder: Path, listed: Mapping[str, int]) -> None:
        """Files that were listed, with their inodes."""
        other = [path for path, inode in listed.items() if self._inodes[path] != inode]
        self._check(folder, other)
        self._inodes.update((path, listed[path]) for path in other)

    def check_turn(self, folder: Path) -> None:
        """The next few, whatever was listed."""
        turn = list(islice(self._turn, TURN))
        if len(turn) < TURN:
            self._turn = iter(list(self._inodes))
        self._check(folder, turn)

    def check_new(self, folder: Path, file: FileStatus) -> None:
        """Refuse a file that may have been read from another folder, by an older version."""
        like = self._old.like(file)
        if like is not None:
            raise Refused(
                f"the source {self._source!r} has read {like}, which had the same name, size and "
                "time: this may be the same file",
                where=str(folder / file.path),
                advice="If it is, move it out of the folder. If it is not, `touch` it",
            )

    def _check(self, folder: Path, paths: Collection[str]) -> None:
        for before in self._remembered(paths):
            now = look(folder, before.path)
            if now is not None and not is_same(folder, before, now):
                where = str(folder / before.path)
                raise Refused(
                    f"the source {self._source!r} has read {where}, and it has changed since",
                    where=where,
                    advice="Put new rows into new files. This file has been read: put it back as "
                    "it was, or move it out of the folder. If the folder is another one than "
                    "before, give the source another name",
                )

    def _remembered(self, paths: Collection[str]) -> Iterator[FileStatus]:
        yield from (self._old.files[path] for path in paths if path in self._old.files)
        keys = _keys([path for path in paths if path not in self._old.files])
        if keys.num_rows:
            looked = self._memory.find(keys)
            assert looked.found.all(), "what is at hand is in the memory"
            yield from from_rows(_beside(keys, looked.values))


def _keys(paths: Collection[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], schema=MEMORY.key)


def _beside(keys: pa.RecordBatch, values: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*keys.columns, *values.columns], MEMORY.row.names)
