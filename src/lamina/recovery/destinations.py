"""Where a home can be moved to: a folder, or an object store.

Everything that is put is durable. Nothing counts before `settle`: until then home.json says that
the home is arriving, and a start asks the place that it comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lamina.clock import Clock
from lamina.disk import LocalDisk
from lamina.disk.base import Bytes, Disk
from lamina.disk.folders import remove_tree
from lamina.errors import AlreadyExists, Fenced, Refused
from lamina.format.home_file import HOME_BYTES_MAX, HomeFile, decode_home, encode_home
from lamina.format.home_names import (
    DRIVER,
    IDENTITY,
    SINKS,
    SOURCES,
    STAGED,
    DriverSegment,
    parse_core_folder,
    parse_segment,
)
from lamina.format.remote_names import EPOCHS, MERGED, NOTES, RUNS, run_key
from lamina.format.wal import HEADER_SIZE, kind_and_size
from lamina.os_errors import typed_errors
from lamina.store.base import Store
from lamina.wal.home import read_identity, settle
from lamina.wal.scan import all_segments
from lamina.workspace.base import Notes
from lamina.workspace.notes import LocalNotes
from lamina.workspace.remote.disk import RemoteDisk
from lamina.workspace.remote.log import PieceLog
from lamina.workspace.remote.notes import RemoteNotes

if TYPE_CHECKING:
    import pyarrow as pa


class Destination(Protocol):
    """The place that a home is moved to."""

    @property
    def where(self) -> str:
        """As --home has it, and as the old place will say it."""
        ...

    @property
    def notes(self) -> Notes: ...

    def identity(self) -> HomeFile | None:
        """What is there; Refused if it is a log without an identity."""
        ...

    def begin(self, file: HomeFile) -> None:
        """The home is on its way; what an interrupted move has left here goes."""
        ...

    def put_segment(self, path: str, data: pa.Buffer) -> None: ...

    def put_output(self, path: str, data: bytes) -> None: ...

    def disk(self) -> Disk:
        """What is there now, read anew."""
        ...

    def read_output(self, path: str) -> bytes: ...

    def settle(self, file: HomeFile) -> None:
        """It has arrived."""
        ...


class Folder:
    """A home on a file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._disk = LocalDisk(self._folder)
        self.where = str(self._folder)
        self.notes: Notes = LocalNotes(self._folder)

    def identity(self) -> HomeFile | None:
        file = read_identity(self._disk)
        if file is None and any(True for _ in all_segments(self._disk)):
            raise _not_empty(self.where)
        return file

    def begin(self, file: HomeFile) -> None:
        self._disk.make_folder("")
        for name in self._disk.list(""):
            if name in (DRIVER, STAGED, SINKS, SOURCES) or parse_core_folder(name) is not None:
                with typed_errors(self._folder):
                    remove_tree(self._folder / name)
        self.notes.write(IDENTITY, encode_home(file))

    def put_segment(self, path: str, data: pa.Buffer) -> None:
        self._put(path, data)

    def put_output(self, path: str, data: bytes) -> None:
        self._put(path, data)

    def disk(self) -> Disk:
        return self._disk

    def read_output(self, path: str) -> bytes:
        return self._disk.read(path, 0, self._disk.size(path))

    def settle(self, file: HomeFile) -> None:
        settle(self._disk, file)

    def _put(self, path: str, data: Bytes) -> None:
        folder = path.rpartition("/")[0]
        self._disk.make_folder(folder)
        file = self._disk.create(path)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()
        self._disk.sync_folder(folder)


class Objects:
    """A home in an object store; *scratch* is a folder for copies, and can be lost."""

    def __init__(self, store: Store, scratch: Path, clock: Clock) -> None:
        self._store = store
        self._scratch = scratch
        self._clock = clock
        self._log = self._opened("new")
        self.where = store.url.rstrip("/")
        self.notes: Notes = RemoteNotes(store)

    def identity(self) -> HomeFile | None:
        if IDENTITY in {info.key for info in self._store.list_folder("").objects}:
            data = self._store.get(IDENTITY)
            return decode_home(data[:HOME_BYTES_MAX], f"{self.where}/{IDENTITY}")
        if any(True for _ in self._store.list(EPOCHS)):
            raise _not_empty(self.where)
        return None

    def begin(self, file: HomeFile) -> None:
        if self.identity() is None:
            try:
                self._store.put_if_absent(IDENTITY, encode_home(file))
            except AlreadyExists:
                message = "another process makes a home here at the same time"
                raise Fenced(message, where=self.where) from None
        for folder in (EPOCHS, RUNS, STAGED, MERGED, NOTES):
            for info in list(self._store.list(folder)):
                self._store.delete(info.key)
        self._store.put(IDENTITY, encode_home(file))
        self._log.make_folder(DRIVER)

    def put_segment(self, path: str, data: pa.Buffer) -> None:
        name = parse_segment(path)
        if not isinstance(name, DriverSegment):
            self._store.put(run_key(path), memoryview(data))
        elif data.size > HEADER_SIZE:
            self._put_driver(path, data)

    def put_output(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def disk(self) -> Disk:
        disk = self._opened("proof")
        disk.make_folder("")
        disk.identify()
        disk.restore()
        return disk

    def read_output(self, path: str) -> bytes:
        return self._store.get(path)

    def settle(self, file: HomeFile) -> None:
        disk = self._opened("settled")
        disk.make_folder("")
        disk.identify()
        settle(disk, file)

    def _put_driver(self, path: str, data: pa.Buffer) -> None:
        """The claim, which stays alone when the rest is dropped, is a piece of its own."""
        head = data[: 2 * HEADER_SIZE].to_pybytes()
        first = HEADER_SIZE + kind_and_size(head, HEADER_SIZE)[1]
        file = self._log.create(path)
        try:
            for part in (data[:first], data[first:]):
                if part.size:
                    file.append([part])
                    file.sync()
        finally:
            file.close()

    def _opened(self, name: str) -> RemoteDisk:
        log = PieceLog(self._store, self._clock)
        return RemoteDisk(self._store, self._scratch / name, log, self._clock)


def _not_empty(where: str) -> Refused:
    return Refused(
        "there is a log here already, and no home.json",
        where=where,
        advice="Move the home to a place that is empty",
    )
