"""What has changed in a folder since the last look: the cost follows the changes.

A folder is listed again when its own modification time has moved. That time is coarse: two changes
may share one tick. So a listing is trusted only if the folder had been quiet for a while when it
was made, and not for ever: some file systems never move the time of a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from lamina.clock import Clock, SystemClock
from lamina.errors import NotFound, Refused
from lamina.os_errors import typed_errors

QUIET_MS = 5_000
LIST_AGAIN_S = 30.0
_HIDDEN = (".", "_")
_PARTIAL = (".tmp", ".partial", ".crdownload", "._COPYING_")


@dataclass(frozen=True, slots=True)
class _Listed:
    """A folder as it was listed."""

    changed_ns: int
    at_s: float
    was_quiet: bool
    folders: tuple[str, ...]


class SourceFolder:
    """Everything below *path*, followed through symbolic links."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._listed: dict[str, _Listed] = {}

    def look(self) -> Iterator[tuple[str, int]]:
        """Path and inode of every file in folders that may have changed since the last look.

        Files that are hidden, partial or markers are passed over.
        """
        self._check()
        seen: dict[str, _Listed] = {}
        yield from self._walk("", (), seen)
        self._listed = seen  # only when all has been looked at, and without folders that are gone

    def _walk(
        self, below: str, above: tuple[tuple[int, int], ...], seen: dict[str, _Listed]
    ) -> Iterator[tuple[str, int]]:
        path = self.path / below
        with typed_errors(path):
            try:
                status = path.stat()
            except FileNotFoundError:
                return  # between the look at its parent and this one
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            message = "a folder of a source contains itself, by a symbolic link"
            raise Refused(message, where=str(path), advice="Remove the link")
        listed = self._listed.get(below)
        if listed is None or not self._is_current(listed, status.st_mtime_ns):
            folders: list[str] = []
            now_ms, at_s = self._clock.now_ms(), self._clock.monotonic()
            yield from self._list(path, below, folders)
            was_quiet = now_ms - status.st_mtime_ns // 1_000_000 >= QUIET_MS
            listed = _Listed(status.st_mtime_ns, at_s, was_quiet, tuple(folders))
        seen[below] = listed
        for name in listed.folders:
            yield from self._walk(name, (*above, identity), seen)

    def _is_current(self, listed: _Listed, changed_ns: int) -> bool:
        is_young = self._clock.monotonic() - listed.at_s < LIST_AGAIN_S
        return listed.was_quiet and is_young and listed.changed_ns == changed_ns

    def _list(self, path: Path, below: str, folders: list[str]) -> Iterator[tuple[str, int]]:
        prefix = f"{below}/" if below else ""
        with typed_errors(path), os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(_HIDDEN) or name.endswith(_PARTIAL):
                    continue
                if entry.is_dir():
                    folders.append(prefix + name)
                else:
                    yield prefix + name, entry.inode()

    def _check(self) -> None:
        with typed_errors(self.path):
            if self.path.is_dir():
                return
            what = "is a file" if self.path.exists() else "is not there"
        raise NotFound(
            f"the folder of a source {what}",
            where=str(self.path),
            advice="Create the folder, or correct the path of the source",
        )


def is_passed_over(path: PurePath) -> bool:
    """Whether a path below the folder of a source is hidden, partial or a marker."""
    return any(part.startswith(_HIDDEN) or part.endswith(_PARTIAL) for part in path.parts)


def is_ignored(path: str) -> bool:
    """The same of a path as text."""
    return any(part.startswith(_HIDDEN) or part.endswith(_PARTIAL) for part in path.split("/"))
