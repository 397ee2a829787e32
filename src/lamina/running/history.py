"""Keeps the history of a pipeline's epochs while it runs: one line each, after its COMMIT.

It is for people, so it is not synced, and nothing waits for it. A thousand lines become a
packed file; files beyond a hundred thousand epochs go. All of that is done beside further epochs.

Of a home in an object store the lines are on the machine of the driver. The store gets them packed,
after a checkpoint and at most once a minute: an epoch still costs one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lamina.checkpoint.background import Background
from lamina.clock import Clock
from lamina.errors import Corrupt
from lamina.format.epoch_row import EpochRow, encode_line, pack, unpack
from lamina.format.home_names import HISTORY, LINES, PACKED, HistoryFile
from lamina.os_errors import typed_errors
from lamina.workspace.base import Notes
from lamina.workspace.history import history_files, read_lines
from lamina.workspace.notes import LocalNotes

FILE_ROWS = 1_000
FILES_KEPT = 100  # of FILE_ROWS each, beside the newest lines
SHARED_EVERY_S = 60.0


class HistoryWriter:
    """The history of one home, by the process that has it. Errors are those of notes."""

    what = "the history of epochs"

    def __init__(self, home: Path, clock: Clock, *, shared: Notes | None = None) -> None:
        """*shared* is where others look for it, if not in the folder *home*."""
        self._home, self._clock = home, clock
        self._lines = LocalNotes(home)
        self._packed = shared or self._lines
        self._is_shared = shared is not None
        self._current: HistoryFile | None = None
        self._file: BinaryIO | None = None
        self._rows = 0
        self._saved_epoch = 0
        self._shared_at: float | None = None
        self._work: Background[None] | None = None

    def add(self, row: EpochRow) -> None:
        """An epoch that is committed."""
        if self._file is None:
            self._begin(row)
        self._append(encode_line(row))
        if self._rows >= FILE_ROWS:
            self._close_file()
            self._begin_work()
        elif self._is_shared and row.saved_epoch > self._saved_epoch and self._may_share():
            self._begin_work()
        self._saved_epoch = row.saved_epoch
        self._check_work()

    def finish(self) -> None:
        """The run ends in order: others see all of it."""
        if self._work is not None:
            self._work.join()
        self._check_work()
        self._tidy(self._full(), self._current)

    def close(self) -> None:
        """Let go of everything; once is enough, twice is not an error."""
        self._close_file()
        if self._work is not None:
            self._work.join()

    # lines

    def _begin(self, row: EpochRow) -> None:
        """Go on with the newest lines, or begin a new file."""
        current = self._fetched(row) if self._is_shared else self._newest_lines()
        current = current or HistoryFile(row.epoch, row.generation)
        path = self._home / current.path
        with typed_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes() if path.exists() else b""
            self._file = path.open("ab", buffering=0)
            if data and not data.endswith(b"\n"):
                self._file.write(b"\n")  # the end is torn: the next line is one of its own
        self._current, self._rows = current, data.count(b"\n")
        if len(self._line_files()) > 1:  # of a process that was killed before it had tidied up
            self._begin_work()

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        with typed_errors(self._home):
            try:
                written = self._file.write(line)
            except OSError:
                self._close_file()
                raise
        if written != len(line):
            self._close_file()  # the disk is full: who goes on puts the next line on one of its own
        self._rows += 1

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._current = None

    def _line_files(self) -> list[HistoryFile]:
        return [file for file in history_files(self._lines) if file.kind == LINES]

    def _newest_lines(self) -> HistoryFile | None:
        """The lines that the process before has left, if there is room for more."""
        newest = self._line_files()[-1:]
        lines = [(self._lines.read(file.path) or b"").count(b"\n") for file in newest]
        return newest[0] if lines and lines[0] < FILE_ROWS else None

    def _fetched(self, row: EpochRow) -> HistoryFile | None:
        """New lines with what the last packed file has, if that is not full: they replace it."""
        packed = history_files(self._packed)
        known = self._packed_rows(packed[-1]) if packed else []
        last = known[-1].epoch if known else packed[-1].first if packed else 0
        rows = known if len(known) < FILE_ROWS else []
        left = self._line_files()
        for file in left:  # what the process before had not shared yet
            read = read_lines(self._lines.read(file.path) or b"", "", [])
            rows += [each for each in reversed([*read]) if each.epoch > last]
        if not rows:
            return None
        file = HistoryFile(rows[0].epoch, row.generation)
        data = b"".join(map(encode_line, rows))
        folder = self._home / HISTORY
        with typed_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._lines.write(file.path, data, durable=False)
        for each in left:
            if each != file:
                self._lines.remove(each.path)
        return file

    # packed files

    def _may_share(self) -> bool:
        now = self._clock.monotonic()
        return self._shared_at is None or now - self._shared_at >= SHARED_EVERY_S

    def _begin_work(self) -> None:
        """Beside further epochs; what fails is done again with what comes next."""
        if self._work is None:
            full, current = self._full(), self._current
            self._shared_at = self._clock.monotonic()
            self._work = Background("lamina-history", lambda: self._tidy(full, current))

    def _check_work(self) -> None:
        if self._work is not None and self._work.is_over:
            work, self._work = self._work, None
            work.wait()

    def _full(self) -> list[HistoryFile]:
        """Lines that nobody appends to."""
        return [file for file in self._line_files() if file != self._current]

    def _tidy(self, full: Sequence[HistoryFile], current: HistoryFile | None) -> None:
        """Lines that are full are packed; of a shared history those of now, too."""
        for file in full:
            self._pack(file)
            self._lines.remove(file.path)
        if self._is_shared and current is not None:
            self._pack(current)
        self._drop()

    def _pack(self, lines: HistoryFile) -> None:
        """As they are: a line that is damaged stays one, and readers say so."""
        data = self._lines.read(lines.path)
        if data:
            self._packed.write(replace(lines, kind=PACKED).path, pack(data))

    def _drop(self) -> None:
        """Files that another has replaced, and the oldest ones."""
        packed = history_files(self._packed)
        if not self._is_shared:
            packed = [file for file in packed if file.kind == PACKED]
        newest = {file.first: file for file in packed}
        gone = [file for file in packed if newest[file.first] != file]
        for file in [*gone, *list(newest.values())[:-FILES_KEPT]]:
            self._packed.remove(file.path)

    def _packed_rows(self, file: HistoryFile) -> list[EpochRow]:
        """Its rows, oldest first; none of one that is damaged."""
        where, lines = self._packed.where(file.path), self._packed.read(file.path) or b""
        if file.kind == PACKED:
            try:
                lines = unpack(lines, where)
            except Corrupt:
                return []
        return [*read_lines(lines, where, [])][::-1]
