"""What an explicit cut takes off a segment is kept in a file beside it."""

from __future__ import annotations

from lamina.disk.base import Disk
from lamina.format.home_names import cut_path


def keep_aside(
    disk: Disk, segment: str, offset: int, size: int, *, sequence: int | None = None
) -> str:
    """Copy *size* bytes from *offset* on, durably, under a name that is free; returns the name."""
    folder = segment.rpartition("/")[0]
    names = disk.list(folder)
    kept = cut_path(segment, offset, sequence)
    while kept.rpartition("/")[2] in names:
        kept += "+"
    file = disk.create(kept)
    try:
        file.append([disk.read(segment, offset, size)])
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)
    return kept
