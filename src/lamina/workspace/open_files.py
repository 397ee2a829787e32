"""Run files that a process keeps open: Spark's Python workers live for many epochs.

A file is opened anew when its inode, size or times are not what they were. While a file is mapped
nobody else gets its inode. A deleted file that is mapped still takes up space, so whenever a new
one is opened, those that have been deleted or replaced are let go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lamina.os_errors import typed_errors
from lamina.state.run import Run
from lamina.state.run_file import open_run

OPEN_MAX = 64
"""More are let go, the least recently used ones first: for their memory, not for their space."""

Stamp = tuple[int, int, int, int, int]


class OpenRunFiles:
    """Run files by their path; the footer is read and each block proven once."""

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open_max = open_max
        self._runs: dict[Path, tuple[Stamp, Run]] = {}  # the least recently used one first

    def __len__(self) -> int:
        return len(self._runs)

    def open(self, path: Path) -> Run:
        with typed_errors(path):
            stamp = stamp_of(path)
        known = self._runs.pop(path, None)
        if known is None or known[0] != stamp:
            for stale in list(self._stale()):
                self._runs.pop(stale, None)
            known = stamp, open_run(path)
        self._runs[path] = known
        return known[1]

    def _stale(self) -> Iterator[Path]:
        """What is gone, and as many of the rest as are too many beside a new one."""
        here = []
        for path, (stamp, _) in list(self._runs.items()):
            try:
                is_same = stamp_of(path) == stamp
            except OSError:  # it cannot be asked for: then it is opened anew, and that says why
                is_same = False
            if is_same:
                here.append(path)
            else:
                yield path
        yield from here[: max(0, len(here) + 1 - self._open_max)]


def stamp_of(path: Path) -> Stamp:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
