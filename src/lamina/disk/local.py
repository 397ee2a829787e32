"""The real file system, below one folder."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lamina.disk.base import Bytes
from lamina.disk.folders import sync_folder
from lamina.errors import BadName, Refused
from lamina.os_errors import typed_errors

if TYPE_CHECKING:
    import pyarrow as pa

_WRITE_AT_ONCE = 512  # parts; the system's limit is 1024
_WRITEBACK_BYTES = 16 * 1024 * 1024
"""After so many bytes the disk is asked to begin: what it has by then, a sync need not wait for."""


class LocalDisk:
    """The home in *folder*. The folder itself must exist, or is made with `make_folder("")`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @property
    def root(self) -> str:
        return str(self._folder)

    def make_folder(self, path: str) -> None:
        target = self._path(path)
        with typed_errors(target):
            missing = [f for f in (target, *target.parents) if not f.exists()]
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
            for folder in (*missing, target):
                sync_folder(folder.parent)

    def create(self, path: str) -> LocalFile:
        target = self._path(path)
        with typed_errors(target):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return LocalFile(path, target, os.open(target, flags, 0o666))

    def open(self, path: str) -> LocalFile:
        target = self._path(path)
        with typed_errors(target):
            return LocalFile(path, target, os.open(target, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))

    def sync_folder(self, path: str) -> None:
        target = self._path(path)
        with typed_errors(target):
            sync_folder(target)

    def read(self, path: str, offset: int, size: int) -> bytes:
        target = self._path(path)
        with typed_errors(target):
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_exactly(fd, offset, size)
            finally:
                os.close(fd)

    def map(self, path: str) -> pa.Buffer:
        import pyarrow as pa  # noqa: PLC0415  slow to import; who only reads metadata maps nothing

        target = self._path(path)
        with typed_errors(target):
            if target.stat().st_size == 0:
                return pa.py_buffer(b"")
            return pa.memory_map(str(target), "r").read_buffer()

    def size(self, path: str) -> int:
        target = self._path(path)
        with typed_errors(target):
            return target.stat().st_size

    def list(self, folder: str) -> tuple[str, ...]:
        target = self._path(folder)
        with typed_errors(target):
            try:
                return tuple(sorted(os.listdir(target)))  # noqa: PTH208
            except FileNotFoundError:
                return ()

    def unlink(self, path: str) -> None:
        target = self._path(path)
        with typed_errors(target):
            target.unlink(missing_ok=True)

    def rename(self, path: str, target: str) -> None:
        source = self._path(path)
        with typed_errors(source):
            source.rename(self._path(target))

    def try_lock(self, path: str) -> LocalLock | None:
        target = self._path(path)
        with typed_errors(target):
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
            return LocalLock(fd)

    def _path(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise BadName(f"{path[:200]!r} is not a path inside the home", where=self.root)
        return self._folder / path if path else self._folder


class OpenedBy:
    """The process that opened something. A child that it forks has a copy, and must not use it:
    two writers of one file end in damage that no lock prevents.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self, what: Path | str) -> None:
        if not self.is_here:
            raise Refused(
                f"process {os.getpid()} was forked from process {self._pid}, which has this open",
                where=str(what),
                advice="Write in the process that opened it, or open it in the child only",
            )


class LocalFile:
    """A descriptor in append mode."""

    def __init__(self, path: str, target: Path, fd: int) -> None:
        self.path = path
        self._target = target
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._begun = self._size  # up to where the disk was asked to begin
        self._owner = OpenedBy()

    @property
    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Bytes]) -> None:
        self._owner.check(self._target)
        with typed_errors(self._target):
            views = [memoryview(part).cast("B") for part in parts if len(part)]
            while views:
                written = os.writev(self._fd, views[:_WRITE_AT_ONCE])
                self._size += written
                while written:
                    taken = min(written, len(views[0]))
                    views[0] = views[0][taken:]
                    written -= taken
                    if not views[0]:
                        views.pop(0)
            self._begin_writeback()

    def _begin_writeback(self) -> None:
        """A hint, on systems that have it: pages on their way to the disk are not dropped."""
        fresh = self._size - self._begun
        if fresh >= _WRITEBACK_BYTES and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, self._begun, fresh, os.POSIX_FADV_DONTNEED)
            self._begun = self._size

    def sync(self) -> None:
        self._owner.check(self._target)
        with typed_errors(self._target):
            os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        self._owner.check(self._target)
        with typed_errors(self._target):
            os.ftruncate(self._fd, size)
            os.fsync(self._fd)
            self._size = self._begun = size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalLock:
    """Released by `release`, or when nobody refers to it any more; never by a forked child."""

    def __init__(self, fd: int) -> None:
        self._release = weakref.finalize(self, _unlock, fd, OpenedBy())
        self._release.atexit = False  # the end of the process is its release

    def release(self) -> None:
        self._release()  # once, however often it is called


def _unlock(fd: int, owner: OpenedBy) -> None:
    """Not by closing alone: a process forked meanwhile has the descriptor, too."""
    try:
        if owner.is_here:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _read_exactly(fd: int, offset: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(fd, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
