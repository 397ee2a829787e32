"""Files in a folder as a source: each is read once, whole, in the order they were found.

A file is known by its path. It is planned when its size and time are known; if it has changed or
gone when the epoch is to be decided, the epoch is not. Which files have been read is keyed state of
the pipeline: committed with the epoch, saved with checkpoints, rewound with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lamina.engine.model import Offset, SourceFile, SourceRange
from lamina.engine.ports import Limits, Memory
from lamina.errors import NotFound, Refused
from lamina.os_errors import typed_errors

FILES = "files"
_HIDDEN = (".", "_")
_PARTIAL = (".tmp", ".partial", ".crdownload", "._COPYING_")


class FilesSource:
    """What the driver does: listing, planning, looking again. Reading rows is the runner's."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder.absolute()

    def initial(self) -> Offset:
        return {FILES: "0"}

    def plan(self, start: Offset, limits: Limits, memory: Memory) -> SourceRange:
        """New files, oldest first; a file that was read and has changed since stops here."""
        listed = sorted(_list(self._folder), key=lambda file: (file.changed_us, file.path))
        known = memory.find([file.path for file in listed]) if listed else []
        for file, before in zip(listed, known, strict=True):
            if before is not None and before != file:
                raise Refused(
                    f"the source {self.name!r} has read {file.path}, and it has changed since",
                    where=file.path,
                    advice="Files of a source are never written again: put new rows into new files",
                )
        new = [file for file, before in zip(listed, known, strict=True) if before is None]
        taken = tuple(new[: limits.files])
        return SourceRange(self.name, start, {FILES: str(int(start[FILES]) + len(taken))}, taken)

    def confirm(self, planned: SourceRange) -> None:
        for file in planned.files:
            with typed_errors(file.path):
                now = _look(Path(file.path))
            if now is None:
                raise NotFound(
                    f"a file of the source {self.name!r} has gone while it was read",
                    where=file.path,
                    advice="Put it back: what was read of it is not committed",
                )
            if now != file:
                raise Refused(
                    f"a file of the source {self.name!r} has changed while it was read",
                    where=file.path,
                    advice="Write files under another name and rename them when they are whole",
                )


def is_passed_over(path: Path) -> bool:
    """Whether a path below the folder of a source is hidden, partial or a marker."""
    return any(part.startswith(_HIDDEN) or part.endswith(_PARTIAL) for part in path.parts)


def _list(folder: Path) -> Iterator[SourceFile]:
    """Every file below *folder* that is not hidden, partial or a marker."""
    with typed_errors(folder):
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "is not there"
            raise NotFound(
                f"the folder of a source {what}",
                where=str(folder),
                advice="A source reads the files of a folder: make it, or name another one",
            )
        for entry in os.scandir(folder):
            if is_passed_over(Path(entry.name)):
                continue
            if entry.is_dir():
                yield from _list(Path(entry.path))
            else:
                found = _look(Path(entry.path))
                if found is not None:
                    yield found


def _look(path: Path) -> SourceFile | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return SourceFile(str(path), status.st_size, status.st_mtime_ns // 1000)
