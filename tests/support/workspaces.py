"""A workspace whose log and whose files are in different places."""

from __future__ import annotations

from pathlib import Path

from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.disk.base import Disk
from lamina.workspace.local import LocalWorkspace


def workspace(home: Path | Disk, scratch: Path) -> LocalWorkspace:
    """The log of *home*; what is fetched goes to a folder of its own below *scratch*."""
    disk = LocalDisk(home) if isinstance(home, Path) else home
    return LocalWorkspace(scratch, SystemClock(), disk=disk)
