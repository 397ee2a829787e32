"""What a task's machine has of a home: files by what they are called, each proven when it came.

The folder is that of one driver process. It can be lost, damaged or full: what is not there, or is
not what it should be, is fetched again; what cannot be kept is used from memory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from lamina.disk.folders import remove_tree
from lamina.format.canonical import sha256_hex

STALE_MAX = 64
"""Files that no list names, before somebody looks which ones they are."""


def cache_folder(home: bytes, process: str) -> Path:
    """Below the machine's folder for temporary files (TMPDIR)."""
    return Path(tempfile.gettempdir()) / f"lamina-{os.getuid()}" / home.hex() / process


class Cache:
    """The files of one operator."""

    def __init__(self, folder: Path, operator: str) -> None:
        self._process = folder
        self._folder = folder / sha256_hex(operator.encode())[:16]

    @property
    def path(self) -> Path:
        """Where it is; a folder that cannot be made is noticed by who writes to it."""
        return self._folder

    def file(self, name: str) -> Path:
        ending = ".run" if name.endswith(".run") else ".wal"
        return self._folder / f"{sha256_hex(name.encode())[:32]}{ending}"

    def get(self, name: str, fetch: Callable[[], bytes], sha256: str = "") -> pa.Buffer:
        """The bytes called *name*: mapped, or in memory if they cannot be kept."""
        path = self.file(name)
        if not path.exists():
            data = fetch()
            if not self.put(name, data):
                return pa.py_buffer(data)
        try:
            found = pa.memory_map(str(path), "r").read_buffer()
        except (OSError, pa.ArrowException):
            return pa.py_buffer(fetch())
        if sha256 and hashlib.sha256(found).hexdigest() != sha256:
            self.drop(name)
            return pa.py_buffer(fetch())
        return found

    def put(self, name: str, data: bytes) -> bool:
        """Keep some bytes; False if there is no room, or no folder."""
        path = self.file(name)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(data)
            aside.replace(path)
        except OSError:  # full, or not writable: the cache only saves time
            aside.unlink(missing_ok=True) if path.parent.exists() else None
            return False
        return True

    def has(self, name: str) -> bool:
        return self.file(name).exists()

    def drop(self, name: str) -> None:
        self.file(name).unlink(missing_ok=True)

    def keep_only(self, names: Iterable[str]) -> None:
        """Now and then: files that no list names any more go, and folders of earlier drivers."""
        kept = {self.file(name).name for name in names}
        try:
            found = [each for each in self._folder.iterdir() if each.name not in kept]
            if len(found) > STALE_MAX:
                for file in found:
                    file.unlink(missing_ok=True)
        except OSError:
            return  # there is no folder, or it is not ours

    def drop_others(self) -> None:
        """Folders of earlier drivers of this home."""
        try:
            for each in self._process.parent.iterdir():
                if each.name != self._process.name:
                    remove_tree(each)
        except OSError:
            return
