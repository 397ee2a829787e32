"""Staged output of a remote home, as sinks get at it: records of the log, or objects."""

from __future__ import annotations

from io import BufferedIOBase, BytesIO
from pathlib import Path

from lamina.store.base import Store
from lamina.wal.outputs import read_output, segment_of
from lamina.workspace.model import Staged
from lamina.workspace.remote.disk import RemoteDisk


class RemoteStaged:
    """The driver's look at output."""

    def __init__(self, store: Store, disk: RemoteDisk) -> None:
        self._store = store
        self._disk = disk

    def open(self, file: Staged) -> BufferedIOBase:
        return BytesIO(self._read(file))

    def local_path(self, file: Staged) -> Path | None:  # noqa: ARG002
        return None

    def where(self, file: Staged) -> str:
        return f"{self._store.url.rstrip('/')}/{file.path}"

    def _read(self, file: Staged) -> bytes:
        if segment_of(file.path) is None:
            return self._store.get(file.path)
        return read_output(self._disk, file.path)
