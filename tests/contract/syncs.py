"""Which files and folders the system was asked to sync, in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Syncs:
    """Records every fsync and fdatasync of this process, with the size of the file at that time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        self.sizes: dict[Path, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._record(getattr(os, name)))

    def _record(self, real: object) -> object:
        def sync(fd: int) -> None:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            self.paths.append(path)
            self.sizes[path] = os.fstat(fd).st_size
            real(fd)  # type: ignore[operator]

        return sync

    def since(self, path: Path) -> list[Path]:
        """What was synced after *path* was."""
        return self.paths[self.paths.index(path) + 1 :]
