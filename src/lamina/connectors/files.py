"""Files in a folder as a source: each is read once, whole, in the order they were found.

A file is known by its path below the folder: the folder may be moved, copied with its times, or
reached by another way. If a file has changed or gone when the epoch is to be decided, the epoch is
not. Which files have been read is the memory of the source: committed with the epoch, saved with
checkpoints, rewound with them.

A poll costs what has changed: folders that stand still are not listed, files that were read are not
looked up, except a few in turn (read_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from lamina.clock import Clock
from lamina.connectors.file_status import (
    MEMORY,
    FileStatus,
    check_name,
    is_same,
    look,
    with_ends,
)
from lamina.connectors.folder import SourceFolder
from lamina.connectors.read_files import ReadFiles
from lamina.connectors.silent import SilentFor
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Backlog, Limits, SourceMemory
from lamina.errors import NotFound, Refused
from lamina.state.schema import StateSchema

FILES = "files"


@dataclass(frozen=True, slots=True)
class FileRange:
    """The files of one epoch, and the folder they are in."""

    folder: Path
    files: tuple[FileStatus, ...] = ()

    @property
    def paths(self) -> list[Path]:
        return [self.folder / file.path for file in self.files]


class FilesSource:
    """What the driver does: listing, planning, looking again. Reading rows is the runner's."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        written: str = "",
        idle_after_us: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """*written* is the folder as the pipeline names it: older homes are understood by it."""
        self._silent = SilentFor(idle_after_us, clock)
        self.name = name
        self._given = folder.absolute()
        self._written = written
        self._clock = clock
        self._memory: SourceMemory | None = None
        self._forget()

    @property
    def memory(self) -> StateSchema | None:
        return MEMORY

    @property
    def backlog(self) -> Backlog:
        return Backlog(files=len(self._queue))

    def initial(self) -> Offset:
        return {FILES: "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        """New files, oldest first; a file that was read and has changed since stops here."""
        assert memory is not None
        read = self._catch_up(start, memory)
        self._look(read)
        read.check_turn(self._folder.path)
        files = tuple(self._take(read, limits.files))
        end = {FILES: str(int(start[FILES]) + len(files))}
        data, learned = FileRange(self._folder.path, files), read.learned(files) if files else None
        holding = self._silent.holding(has_more=bool(files))
        self._planned = SourceRange(self.name, start, end, data, learned, holding=holding)
        return self._planned

    def confirm(self, planned: SourceRange) -> None:
        """Each file is still there, and still what it was."""
        files: FileRange = planned.data or FileRange(self._given)
        for file, path in zip(files.files, files.paths, strict=True):
            now = look(files.folder, file.path)
            if now is None:
                raise NotFound(
                    f"a file of the source {self.name!r} disappeared while it was read",
                    where=str(path),
                    advice="Put it back: what was read of it is not committed",
                )
            if not is_same(files.folder, file, now):
                raise Refused(
                    f"a file of the source {self.name!r} changed while it was read",
                    where=str(path),
                    advice="Write files under another name and rename them when they are complete",
                )

    def acknowledge(self, offset: Offset) -> None:
        """Files belong to whoever has put them there."""

    # steps

    def _forget(self) -> None:
        self._folder = SourceFolder(self._given.resolve(), self._clock)
        self._waiting: set[str] = set()
        self._queue: list[tuple[int, str]] = []  # a heap of what is waiting, oldest first
        self._taken: list[tuple[int, str]] = []  # off the heap for the last plan
        self._planned = SourceRange(self.name, {}, {})

    def _catch_up(self, start: Offset, memory: SourceMemory) -> ReadFiles:
        """What was read, with the last plan if it was committed."""
        if memory is not self._memory or start not in (self._planned.start, self._planned.end):
            self._forget()
            self._read_files = ReadFiles(self.name, memory, self._given, self._written)
            self._memory = memory
        elif start == self._planned.start:  # not committed, or there was nothing to commit
            for each in self._taken:
                heappush(self._queue, each)
        else:
            self._read_files.add(self._planned.data.files)
            self._waiting.difference_update(path for _, path in self._taken)
        self._taken = []
        self._planned = SourceRange(self.name, start, start)
        return self._read_files

    def _look(self, read: ReadFiles) -> None:
        folder = self._given.resolve()
        if folder != self._folder.path:  # a link leads elsewhere now
            self._folder = SourceFolder(folder, self._clock)
        known: dict[str, int] = {}
        for path, inode in self._folder.look():
            if path in read:
                known[path] = inode
            elif path not in self._waiting and (found := look(folder, path)) is not None:
                self._waiting.add(path)
                heappush(self._queue, (found.changed_us, path))
        read.check_listed(folder, known)

    def _take(self, read: ReadFiles, limit: int | None) -> Iterator[FileStatus]:
        """The oldest that are waiting, as they are now."""
        folder, count = self._folder.path, 0
        while self._queue and (limit is None or count < limit):
            self._taken.append(heappop(self._queue))
            path = self._taken[-1][1]
            found = look(folder, path)
            if found is None:  # it has gone before it was read
                self._taken.pop()
                self._waiting.discard(path)
                continue
            check_name(self.name, folder, path)
            read.check_new(folder, found)
            yield with_ends(folder, found)
            count += 1
