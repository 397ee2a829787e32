"""Every fsync and fdatasync of this process, in order: what was made durable, and when.

The calls go through to the system. So a test can ask at any moment what a power cut would leave: a
file counts as far as it was synced, a name if its folder was synced after it came.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Syncs:
    """Sizes of files, and names in folders, as of their last sync."""

    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)  # what was synced, in order

    def note(self, fd: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        self.paths.append(Path(path))
        if Path(path).is_dir():
            self.names[path] = frozenset(os.listdir(path))  # noqa: PTH208
        else:
            self.sizes[path] = os.fstat(fd).st_size

    def since(self, path: Path) -> list[Path]:
        """What was synced after *path* was for the first time."""
        return self.paths[self.paths.index(path) + 1 :]

    def lost(self, folder: Path) -> list[str]:
        """What a power cut now could take of all that is below *folder*."""
        found = []
        for path in sorted(folder.rglob("*")):
            is_named = path.name in self.names.get(str(path.parent), ())
            if not is_named:
                found.append(f"the name {path.relative_to(folder)}")
            if path.is_file() and path.stat().st_size > self.sizes.get(str(path), 0):
                found.append(f"bytes of {path.relative_to(folder)}")
        return found


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
