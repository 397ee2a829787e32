"""Every fsync and fdatasync of this process, in order: what was made durable, and when.

The calls go through to the system. So a test can ask at any moment what a power cut could take: of
a file what was appended since its last sync, of a folder the names that came since.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Inode = tuple[int, int]


@dataclass
class Syncs:
    """What was synced, in order; sizes of files and names in folders, as of their last sync."""

    paths: list[Path] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    _sizes: dict[Inode, int] = field(default_factory=dict)  # a file may get another name
    _names: dict[Inode, frozenset[str]] = field(default_factory=dict)
    _pins: list[int] = field(default_factory=list)  # an open file keeps its number to itself

    def note(self, fd: int) -> None:
        path, found = Path(f"/proc/self/fd/{fd}").readlink(), os.fstat(fd)
        inode = (found.st_dev, found.st_ino)
        if inode not in self._sizes and inode not in self._names:
            self._pins.append(os.dup(fd))
        self.paths.append(path)
        if path.is_dir():
            self._names[inode] = frozenset(each.name for each in path.iterdir())
        else:
            self.sizes[str(path)] = self._sizes[inode] = found.st_size

    def since(self, path: Path) -> list[Path]:
        """What was synced after *path* was for the first time."""
        return self.paths[self.paths.index(path) + 1 :]

    def lost(self, folder: Path) -> list[str]:
        """What a power cut now could take of a folder: its own name, and all that is below it."""
        found = []
        for path in (folder, *sorted(folder.rglob("*"))):
            if path.name not in self._names.get(_inode(path.parent), ()):
                found.append(f"the name {path}")
            if path.is_file() and path.stat().st_size > self._sizes.get(_inode(path), 0):
                found.append(f"bytes of {path}")
        return found

    def __del__(self) -> None:
        for pin in self._pins:
            os.close(pin)


def _inode(path: Path) -> Inode:
    found = path.stat()
    return found.st_dev, found.st_ino


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """From now on every sync of this process is noted."""
    syncs = Syncs()
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def call(fd: int, real: object = real) -> None:
            assert callable(real)
            real(fd)
            syncs.note(fd)

        monkeypatch.setattr(os, name, call)
    return syncs
