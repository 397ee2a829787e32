"""Staged output of a remote home, as sinks get at it: records of the log, or objects."""

from __future__ import annotations

from io import BufferedIOBase, BytesIO
from pathlib import Path

from lamina.errors import NotFound
from lamina.format.home_names import parse_output_path
from lamina.format.wal import Kind
from lamina.store.base import Store
from lamina.wal.reader import SegmentReader
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
        place = parse_output_path(file.path)
        if place is None:
            return self._store.get(file.path)
        segment, offset = place
        for record in SegmentReader(self._disk, segment).records(offset):
            if record.kind is Kind.OUTPUT:
                assert record.payload is not None
                return bytes(record.payload)
            break
        raise NotFound("no output is at this place of the log", where=self.where(file))
