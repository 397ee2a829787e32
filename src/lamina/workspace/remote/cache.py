"""What a task's machine has of a home: files by what they are called, each proven when it came.

The folder is that of one driver process. It can be lost, damaged or full: what is not there, or is
not what it should be, is fetched again; what cannot be kept is used from memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from lamina.format.canonical import sha256_hex
from lamina.workspace.remote.cache_folders import drop_unused

STALE_MAX = 64
"""Files that no list names, before they go."""

STALE_BYTES_MAX = 64 * 1024 * 1024
"""Likewise, of one operator: what they may have together."""


class Cache:
    """The files of one operator."""

    def __init__(self, folder: Path, operator: str) -> None:
        self._folder = folder / sha256_hex(operator.encode())[:16]

    @property
    def path(self) -> Path:
        """Where it is; a folder that cannot be made is noticed by who writes to it."""
        return self._folder

    def file(self, name: str) -> Path:
        ending = ".run" if name.endswith(".run") else ".wal"
        return self._folder / f"{sha256_hex(name.encode())[:32]}{ending}"

    def get(self, name: str, fetch: Callable[[], bytes]) -> pa.Buffer:
        """The bytes called *name*: mapped, or in memory if they cannot be kept."""
        path = self.file(name)
        if not path.is_file():
            data = fetch()
            if not self.put(name, data):
                return pa.py_buffer(data)
        try:
            return pa.memory_map(str(path), "r").read_buffer()
        except (OSError, pa.ArrowException):
            return pa.py_buffer(fetch())

    def adopt(self, name: str, path: Path) -> None:
        """Keep a file that was made here; it only saves time, so it may as well fail."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.replace(self.file(name))
        except OSError:
            path.unlink(missing_ok=True)

    def put(self, name: str, data: bytes) -> bool:
        """Keep some bytes; False if there is no room, or no folder."""
        path = self.file(name)
        if self._put(path, data):
            return True
        drop_unused(self._folder.parent, 0)  # if it is full: of what nobody uses
        return self._put(path, data)

    def _put(self, path: Path, data: bytes) -> bool:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(data)
            aside.replace(path)
        except OSError:  # full, or not writable: the cache only saves time
            self._discard(aside)
            return False
        return True

    @staticmethod
    def _discard(path: Path) -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return self.file(name).exists()

    def drop(self, name: str) -> None:
        self._discard(self.file(name))

    def keep_only(self, names: Iterable[str]) -> None:
        """Now and then: files that no list names any more go."""
        kept = {self.file(name).name for name in names}
        try:
            found = [each for each in self._folder.iterdir() if each.name not in kept]
            if len(found) > STALE_MAX or _sum(found) > STALE_BYTES_MAX:
                for file in found:
                    file.unlink(missing_ok=True)
        except OSError:
            return  # there is no folder, or it is not ours


def _sum(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
