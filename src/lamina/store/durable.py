"""Files that are whole and on disk, or not there: temp file, fsync, publish, fsync of the folders.

A temp file is locked (flock) for as long as its writer lives. So whoever can take the lock knows
that the writer is dead, and may sweep the file; no clock is asked. A writer whose file was swept
between its creation and its lock sees that the file has no name any more, and begins again.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lamina.errors import StoreError
from lamina.store.base import Data, parts_of

TEMP_TRIES_MAX = 1000
WRITE_SIZE_BYTES = 1024 * 1024
_SYNCED_FOLDERS_MAX = 64


class FsyncFailed(OSError):
    """The disk did not take the entries of a folder; a second try may succeed and lie."""


@dataclass(slots=True)
class TempFile:
    """A file that is whole and synced, and needs its name."""

    path: str
    renamed: bool = False

    def link(self, target: str) -> None:
        os.link(self.path, target)  # plain strings: a Path would be half the time of this call

    def rename(self, target: str) -> None:
        os.rename(self.path, target)  # noqa: PTH104
        self.renamed = True

    def remove(self) -> None:
        """Not after a rename: the name may already be another's."""
        if not self.renamed:
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108


class TempFiles:
    """The folder of files that are still being written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    @contextmanager
    def written(self, data: Data) -> Iterator[TempFile]:
        """A locked temp file that holds *data*, synced; gone at the end, unless renamed."""
        path, fd = self._create()
        temp = TempFile(path)
        try:
            for part in parts_of(data, WRITE_SIZE_BYTES):
                _write_all(fd, part)
            os.fsync(fd)  # if this fails the file is thrown away: its pages may be lost
            yield temp
        finally:
            # Unlink first: as long as the lock is held nobody takes the file for a dead one.
            temp.remove()
            os.close(fd)

    def _create(self) -> tuple[str, int]:
        writer = f"{self._folder}/{os.getpid()}-{threading.get_native_id()}"
        for _ in range(TEMP_TRIES_MAX):
            path = f"{writer}-{next(self._numbers)}"
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue  # left by a dead process that had our process id
            if _try_lock(fd) and os.fstat(fd).st_nlink > 0:
                return path, fd
            os.close(fd)  # a sweeper took it between the two calls
        raise StoreError(
            "something deletes temp files as fast as they are made", where=str(self._folder)
        )

    def sweep(self) -> None:
        """Remove what dead writers left; what a living one holds stays, and what is not ours."""
        for entry in sorted(self._folder.iterdir()):
            try:
                fd = os.open(entry, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # its writer finished, or another sweeper was quicker
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EISDIR, errno.ELOOP):
                    continue  # another user's, or no temp file at all: not ours to judge
                raise
            try:
                if _try_lock(fd) and _is_named(entry, fd):
                    entry.unlink(missing_ok=True)
            finally:
                os.close(fd)


class FolderSync:
    """Makes new entries of folders durable, together with the way from the root to them.

    A folder made by anybody (also by a process that died before it synced) may be lost in a power
    cut until its parent was synced. So after an entry was made, its folder and every folder above
    are synced, up to the root. A folder done once is remembered by an open descriptor: that pins
    its inode number, so "the same number under the same path" means that it was never removed.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._known: OrderedDict[str, _OpenFolder] = OrderedDict()
        self._lock = threading.Lock()

    def sync_up(self, folder: str) -> None:
        """After this, what was entered into *folder* before survives a power cut."""
        known = self._still_known(folder)
        opened = known or _OpenFolder(folder)
        _fsync_folder(opened.fd)
        if known is None:
            for above in self._above(folder):
                sync_folder(above)
            self._remember(folder, opened)

    def _above(self, folder: str) -> Iterator[str]:
        while folder != self._root:
            folder = folder.rpartition("/")[0]
            yield folder

    def _still_known(self, folder: str) -> _OpenFolder | None:
        """What is remembered of *folder*, if it was not replaced since; no call under the lock."""
        with self._lock:
            known = self._known.get(folder)
            if known is not None:
                self._known.move_to_end(folder)
        if known is None or known.is_named(folder):
            return known
        with self._lock:
            if self._known.get(folder) is known:
                del self._known[folder]
        return None

    def _remember(self, folder: str, opened: _OpenFolder) -> None:
        with self._lock:
            self._known.setdefault(folder, opened)
            if len(self._known) > _SYNCED_FOLDERS_MAX:
                self._known.popitem(last=False)


class _OpenFolder:
    """A descriptor that is closed when nobody uses it any more, and the identity it pins."""

    __slots__ = ("fd", "identity")

    def __init__(self, folder: str) -> None:
        self.fd = _open_folder(folder)
        found = os.fstat(self.fd)
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if hasattr(self, "fd"):  # else it could not be opened
            os.close(self.fd)

    def is_named(self, folder: str) -> bool:
        try:
            found = os.lstat(folder)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == self.identity


def sync_folder(folder: Path | str) -> None:
    """Make the entries of one folder durable."""
    fd = _open_folder(folder)
    try:
        _fsync_folder(fd)
    finally:
        os.close(fd)


def _fsync_folder(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise FsyncFailed(error.errno, error.strerror) from error


def make_root(root: Path) -> None:
    """Create *root* and what is missing above it, durably."""
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    if not missing and os.access(root.parent, os.R_OK):
        sync_folder(root.parent)  # a process that made it may have died before it got here


def _open_folder(folder: Path | str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _write_all(fd: int, part: memoryview) -> None:
    while part:
        part = part[os.write(fd, part) :]


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(path: Path, fd: int) -> bool:
    """Whether *path* leads to the very file that *fd* is open on."""
    try:
        found = path.stat(follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    opened = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
