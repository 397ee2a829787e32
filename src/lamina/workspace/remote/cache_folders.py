"""The folders of caches on one machine: `<temporary folder>/lamina-<uid>/<home>/<process>`.

A process of Python that runs tasks shares the lock of the folder that it uses, until it ends. So a
folder whose lock is free is used by nobody now, and no clock need be asked: of the same home, it is
what an earlier driver has left; of another home, it may be used again, so it goes when such folders
take too much room, or when there is no room left.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lamina.disk.folders import remove_tree

OTHERS_BYTES_MAX = 1024 * 1024 * 1024
"""What folders of other homes may have together, if nobody uses them now."""

_LOCK = "lock"
_TRIES = 3
_HELD: dict[Path, int] = {}
"""Of this process: the open locks."""


def cache_folder(home: bytes, process: str) -> Path:
    """Below the machine's folder for temporary files (TMPDIR); from now on it is in use."""
    folder = Path(tempfile.gettempdir()) / f"lamina-{os.getuid()}" / home.hex() / process
    if folder not in _HELD:
        _HELD[folder] = _shared(folder)
        drop_unused(folder, OTHERS_BYTES_MAX)
    return folder


def drop_unused(folder: Path, others_max: int) -> None:
    """Delete what earlier drivers of this home have left, and other homes if that is too much."""
    homes = [each for each in _folders(folder.parent.parent) if each != folder.parent]
    for sibling in _folders(folder.parent):
        if sibling != folder:
            _drop(sibling)
    others = [each for home in homes for each in _folders(home)]
    if sum(map(_size, others)) > others_max:
        for other in others:
            _drop(other)


def _shared(folder: Path) -> int:
    """The open lock; -1 if it cannot be had: then the cache may go, which costs time only."""
    for _ in range(_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return -1
        if _got(lock, fcntl.LOCK_SH) and _is_there(lock, folder):
            return lock
        os.close(lock)  # somebody is deleting the folder now
    return -1


def _drop(folder: Path) -> None:
    """Unless somebody uses it."""
    with _exclusive(folder) as is_ours:
        if is_ours:
            with suppress(OSError):
                remove_tree(folder)


@contextmanager
def _exclusive(folder: Path) -> Iterator[bool]:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _got(lock, fcntl.LOCK_EX)
    finally:
        os.close(lock)


def _got(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_there(lock: int, folder: Path) -> bool:
    """Whether the lock is that of the folder, and not of one that has been deleted meanwhile."""
    try:
        return os.path.samestat(os.fstat(lock), (folder / _LOCK).stat())
    except OSError:
        return False


def _folders(folder: Path) -> list[Path]:
    try:
        return [each for each in sorted(folder.iterdir()) if each.is_dir()]
    except OSError:
        return []


def _size(folder: Path) -> int:
    """Of its files; what goes meanwhile has none."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(root, name).stat().st_size
    return total
