"""Whether a home that is being moved has arrived: the place that it comes from says so."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.format.commit import MovedRecord
from lamina.format.home_file import HomeFile
from lamina.os_errors import typed_errors
from lamina.wal.departure import departure


def has_arrived(file: HomeFile) -> bool:
    """Whether the old place says that this very move was decided. Reading only."""
    gone = _departed(file.arrives_from)
    return gone is not None and gone.arrival == file.arrival


def _departed(address: str) -> MovedRecord | None:
    if "://" not in address:
        return departure(LocalDisk(Path(address)))
    from lamina.store import open_store  # noqa: PLC0415  homes in folders need no store
    from lamina.workspace.remote.disk import RemoteDisk  # noqa: PLC0415
    from lamina.workspace.remote.log import PieceLog  # noqa: PLC0415

    clock = SystemClock()
    store = open_store(address, writable=False, probe=False)
    with (
        typed_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="lamina-look-") as folder,
    ):
        disk = RemoteDisk(store, Path(folder), PieceLog(store, clock), clock)
        disk.restore()
        return departure(disk)
