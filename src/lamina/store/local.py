"""A folder as an object store: durable, atomic, one file per object.

A put is: temp file in `<root>/.tmp`, fsync, then link (create-only) or rename (replace), then fsync
of the folders. A crash at any point leaves the old object, the new one, or a temp file that the
next opening sweeps; never a part under the object's name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lamina.errors import (
    AlreadyExists,
    BadName,
    LaminaError,
    NotFound,
    SizeMismatch,
    StoreError,
    StoreReadOnly,
    UsageError,
)
from lamina.os_errors import from_os_error, typed_errors
from lamina.store.base import (
    PART_SIZE_BYTES,
    Data,
    Folder,
    ObjectInfo,
    check_key,
    check_range,
    size_of,
)
from lamina.store.durable import FolderSync, FsyncFailed, TempFile, TempFiles, make_root
from lamina.store.folders import check_prefix
from lamina.store.readback import create
from lamina.store.walk import level, refused_link, walk

SEGMENT_BYTES_MAX = 255
MKDIR_TRIES_MAX = 100
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block us


class LocalStore:
    """The objects below *root*. With create=False nothing is made, swept or written."""

    def __init__(self, root: Path, *, create: bool = True) -> None:
        with typed_errors(root):
            self._writable = create
            if create:
                make_root(root.absolute())
            self._root = root.resolve(strict=True)
            if not self._root.is_dir():
                raise UsageError("a local store is a folder, not a file", where=str(root))
            self._temps = TempFiles(self._root / ".tmp")
            self._folders = FolderSync(self._root)
            self._failed: LaminaError | None = None
            if create:
                self._prepare_temps(self._root / ".tmp")

    def _prepare_temps(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise refused_link(folder)
        self._temps.sweep()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    # Reading

    def get(self, key: str) -> bytes:
        with self._opened(key) as (fd, size):
            return _read_exactly(fd, 0, size)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        with self._opened(key) as (fd, size):
            data = _read_exactly(fd, start, length) if start + length <= size else b""
            if start + length > size or len(data) != length:
                raise SizeMismatch(
                    f"{length} bytes from {start} are wanted, the object has {size}",
                    where=f"{self._root}/{key}",
                )
            return data

    def head(self, key: str) -> ObjectInfo:
        with self._opened(key) as (_, size):
            return ObjectInfo(key, size)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        path = self._path(key)
        with typed_errors(path):
            fd = os.open(path, _READ)
            try:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise NotFound("there is a folder or device of that name", where=path)
                yield fd, found.st_size
            finally:
                os.close(fd)

    # Listing

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return walk(self._folder(prefix), check_prefix(prefix), after)

    def list_folder(self, prefix: str = "") -> Folder:
        return level(self._folder(prefix), check_prefix(prefix))

    # Writing

    def put(self, key: str, data: Data) -> None:
        path = self._path_to_write(key)
        with typed_errors(path), self._temps.written(data) as temp:
            self._publish(path, lambda: temp.rename(path))

    def put_if_absent(self, key: str, data: Data) -> None:
        path = self._path_to_write(key)
        if not create(self, key, data, attempt=lambda: self._create(path, data)):
            self._sync(_folder_of(path))  # another wrote these bytes, and may not have synced yet

    def _create(self, path: str, data: Data) -> None:
        with typed_errors(path):
            if size_of(data) > PART_SIZE_BYTES:
                _refuse_taken(path)  # spares a long and useless write; what counts is the link
            with self._temps.written(data) as temp:
                self._publish(path, lambda: _link(temp, path))

    def delete(self, key: str) -> None:
        path = self._path_to_write(key)
        with typed_errors(path):
            try:
                Path(path).unlink(missing_ok=True)
            except (IsADirectoryError, NotADirectoryError):
                return  # a folder is no object
        self._remove_empty_folders(Path(path).parent)

    def copy(self, source: str, target: str) -> None:
        self.head(source)
        self.put(target, Path(self._path(source)))

    def _publish(self, path: str, give_name: Callable[[], object]) -> None:
        """Give the temp file its name, making its folder as often as a deleter removes it."""
        for _ in range(MKDIR_TRIES_MAX):
            try:
                give_name()
                return self._sync(_folder_of(path))
            except FileNotFoundError:
                self._make_folder(Path(path))
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                _raise_if_in_the_way(Path(path), self._root, error)
        raise StoreError("something deletes its folder as fast as it is made", where=path)

    def _make_folder(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            return  # a deleter was quicker: the caller finds out, and asks again
        except (FileExistsError, NotADirectoryError) as error:
            _raise_if_in_the_way(path, self._root, error)

    def _sync(self, folder: str) -> None:
        """Sync *folder*, or if a deleter removed it (and what we put) the first one that is there.

        A folder whose fsync failed once may lie the next time: this store is finished then.
        """
        try:
            self._folders.sync_up(folder)
        except FileNotFoundError as error:
            if folder == str(self._root):
                raise from_os_error(error, folder) from error
            self._sync(_folder_of(folder))
        except FsyncFailed as error:
            self._failed = from_os_error(error, folder)
            raise self._failed from error
        except OSError as error:
            raise from_os_error(error, folder) from error

    def _remove_empty_folders(self, folder: Path) -> None:
        """Object stores have no empty folders. Sync the first one above that stays."""
        while folder != self._root:
            try:
                folder.rmdir()
            except (FileNotFoundError, NotADirectoryError):
                pass  # another deleter was quicker
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise from_os_error(error, folder) from error
                break
            folder = folder.parent
        self._sync(str(folder))

    # Keys; a path is a plain string here, because making a Path takes longer than most calls

    def _path_to_write(self, key: str) -> str:
        path = self._path(key)
        if not self._writable:
            raise StoreReadOnly("the store was opened for reading", where=path)
        if self._failed is not None:
            raise StoreError(
                f"an earlier sync failed, so nothing more is written: {self._failed.message}",
                where=path,
                advice="Look at the disk, then open the store again",
            )
        return path

    def _folder(self, prefix: str) -> Path:
        prefix = check_prefix(prefix)
        return Path(self._path(prefix)) if prefix else self._root

    def _path(self, key: str) -> str:
        """The file of *key*; refused if a symbolic link is on the way, wherever it leads."""
        path, there = str(self._root), True
        for segment in check_key(key).split("/"):
            if len(segment.encode()) > SEGMENT_BYTES_MAX:
                raise BadName(f"a local name has {SEGMENT_BYTES_MAX} bytes at most", where=key)
            path = f"{path}/{segment}"
            there = there and _is_there(path)
        return path


def _is_there(path: str) -> bool:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise from_os_error(error, path) from error
    if stat.S_ISLNK(found.st_mode):
        raise refused_link(Path(path))
    return True


def _read_exactly(fd: int, start: int, length: int) -> bytes:
    """Up to *length* bytes; one read may return less than is there."""
    parts = []
    while length > 0 and (part := os.pread(fd, length, start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _link(temp: TempFile, path: str) -> None:
    try:
        temp.link(path)
    except FileExistsError:
        _refuse_taken(path)
        raise  # a folder, or an object that was deleted meanwhile


def _refuse_taken(path: str) -> None:
    if Path(path).is_file():
        raise AlreadyExists("the key is taken", where=path)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _raise_if_in_the_way(path: Path, root: Path, error: OSError) -> None:
    """A folder of the same name, or an object on the way; if neither, a race with a deleter."""
    above = [folder for folder in path.parents if folder.is_relative_to(root)]
    if path.is_dir() or any(each.is_file() for each in above):
        raise StoreError(
            "a local folder cannot hold both an object and objects below its name",
            where=str(path),
            advice=f"Use another key, or an object store instead of {root}",
        ) from error
