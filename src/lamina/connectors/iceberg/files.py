"""Files of an Iceberg table: on disk before a commit names them, and deleted only when none does.

`DurableFiles` is what the catalog and the table open files with: pyiceberg itself syncs nothing.
`HandleFiles` belongs to one handle, one attempt to commit. pyiceberg deletes the manifests of a
commit that was refused, and a refusal may be the answer to a second copy of a request whose first
copy got through. So deletions wait until the mark has told what happened.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from lamina.disk.files import LocalFiles, make_folder
from lamina.disk.folders import sync_folder

IMPLEMENTATION = "lamina.connectors.iceberg.files.DurableFiles"
"""For pyiceberg's property `py-io-impl`."""

Hook = Callable[[str], None]


def unheard(_: str) -> None:
    """A hook that nobody listens to."""


class DurableFiles(PyArrowFileIO):
    """pyiceberg's own, but what it writes to a local disk is there after a power cut."""

    def new_output(self, location: str) -> PyArrowFile:
        output = super().new_output(location)
        path = local_path(location)
        return output if path is None else _DurableFile(location, str(path), output._filesystem)  # noqa: SLF001


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> _SyncedFile:
        path = Path(self._path)
        make_folder(LocalFiles(), path.parent)
        return _SyncedFile(path, "wb" if overwrite else "xb")


class _SyncedFile(io.BufferedWriter):
    """Closed means durable: its bytes, and its name."""

    def __init__(self, path: Path, mode: str) -> None:
        self._folder = path.parent
        super().__init__(io.FileIO(path, mode))

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync_folder(self._folder)


class HandleFiles(FileIO):
    """The files of one handle: what it has written is known, and what it deletes waits."""

    def __init__(self, inner: FileIO, hook: Hook = unheard) -> None:
        super().__init__(inner.properties)
        self._inner, self._hook = inner, hook
        self._written: list[str] = []
        self._dropped: list[str] = []

    def new_input(self, location: str) -> InputFile:
        return self._inner.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        self._hook(f"write {location}")
        self._written.append(location)
        return self._inner.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._dropped.append(location if isinstance(location, str) else location.location)

    def committed(self) -> None:
        """The commit counts: what pyiceberg no longer needs may go."""
        self._delete(self._dropped)

    def refused(self) -> None:
        """The commit does not count and never will: nothing names what was written for it."""
        self._delete(self._written)

    def _delete(self, locations: list[str]) -> None:
        for location in locations:
            with suppress(OSError):  # it takes space, and no reader sees it
                self._inner.delete(location)
        locations.clear()


def local_path(location: str) -> Path | None:
    """The file that a location names, if it is one of this machine."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None
