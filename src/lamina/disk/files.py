"""What sinks ask of a file system: a handful of calls, so that tests can record and cut them.

Names are durable when their folder was synced, and only then; bytes when the call returns.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol

from lamina.clock import SystemClock, new_writer_id
from lamina.disk.folders import remove_tree, sync_folder


class Files(Protocol):
    """A local or coherently shared file system. Errors are the system's own (OSError)."""

    @property
    def tag(self) -> str:
        """What tells temporary names of this process from those of others."""
        ...

    def names(self, folder: Path) -> list[str]:
        """What is in a folder; nothing if it is missing."""
        ...

    def exists(self, path: Path) -> bool: ...

    def open(self, path: Path) -> BufferedIOBase: ...

    def mkdir(self, folder: Path) -> None:
        """No error if it is there."""
        ...

    def create(self, path: Path, source: BufferedIOBase) -> None:
        """A new file with all bytes of *source*."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """A second name. FileExistsError if the target is there: one of two callers gets it."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """In one step; a target that is a file or an empty folder is replaced."""
        ...

    def unlink(self, path: Path) -> None:
        """No error if it is missing."""
        ...

    def remove(self, folder: Path) -> None:
        """A folder and all in it; no error if it, or a part of it, is missing."""
        ...

    def sync(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        ...


class LocalFiles:
    """The file system of this machine."""

    def __init__(self) -> None:
        self.tag = new_writer_id(SystemClock())[:12]

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)  # noqa: PTH208
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def open(self, path: Path) -> BufferedIOBase:
        return path.open("rb")

    def mkdir(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)

    def create(self, path: Path, source: BufferedIOBase) -> None:
        with path.open("xb") as file:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove(self, folder: Path) -> None:
        remove_tree(folder)

    def sync(self, folder: Path) -> None:
        sync_folder(folder)


def make_folder(files: Files, folder: Path) -> None:
    """With its parents, all names durable: also one whose maker died before it synced it."""
    missing = [each for each in (folder, *folder.parents) if not files.exists(each)]
    there = missing[-1].parent if missing else folder
    with suppress(PermissionError):  # who may not read that folder has not made one in it
        files.sync(there.parent)
    for each in reversed(missing):
        files.mkdir(each)
        files.sync(each.parent)


def replace(files: Files, path: Path, data: BufferedIOBase) -> None:
    """A small file, whole and durable; what was there before is replaced."""
    aside = write_aside(files, path, data)
    files.rename(aside, path)
    files.sync(path.parent)


def create_once(files: Files, path: Path, data: BufferedIOBase) -> bool:
    """The same, but never over another one; False if another process was first.

    Also if the file that was to become it is gone: a newer process has swept what was left.
    """
    aside = write_aside(files, path, data)
    try:
        files.link(aside, path)
    except (FileExistsError, FileNotFoundError):
        return False
    finally:
        files.unlink(aside)
    files.sync(path.parent)
    return True


def write_aside(files: Files, path: Path, data: BufferedIOBase) -> Path:
    aside = path.with_name(f".{path.name}.{files.tag}")
    files.unlink(aside)  # of a try before this one
    files.create(aside, data)
    return aside
