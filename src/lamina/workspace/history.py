"""The history of a pipeline's epochs, as people read it: newest first, page by page.

It is in the home: lines of JSON, those of older epochs in packed files of a thousand (FORMAT.md
section 12). What is torn, damaged or of a newer release is passed over, and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lamina.errors import Corrupt, Unsupported
from lamina.format.epoch_row import EpochRow, decode_line, unpack
from lamina.format.home_names import HISTORY, PACKED, HistoryFile, parse_history_file
from lamina.workspace.base import Notes

LIMIT = 50


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some epochs, newest first."""

    rows: tuple[EpochRow, ...] = ()
    skipped: tuple[str, ...] = ()  # what could not be read, for people
    older: int | None = None  # the next page is that before this epoch; None: this is the last one


@dataclass(slots=True)
class _Found:
    rows: dict[int, EpochRow] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def add(self, row: EpochRow) -> None:
        """Of two that have run an epoch number, the later process counts."""
        known = self.rows.get(row.epoch)
        if known is None or known.generation < row.generation:
            self.rows[row.epoch] = row


def read_history(
    places: Sequence[Notes], *, before: int | None = None, limit: int = LIMIT
) -> HistoryPage:
    """The newest epochs, or the newest *before* an epoch, of all *places* together.

    A place that does not answer raises; a file that is damaged does not.
    """
    found = _Found()
    for first, files in _by_first(places):
        if before is not None and first >= before:
            continue
        for notes, file in files:
            _read(notes, file, before, limit, found)
        if len(found.rows) > limit:
            break
    newest = sorted(found.rows.values(), key=lambda row: row.epoch, reverse=True)
    rows = tuple(newest[:limit])
    older = rows[-1].epoch if rows and len(newest) > limit else None
    return HistoryPage(rows, tuple(found.skipped), older)


def history_files(notes: Notes) -> list[HistoryFile]:
    """Those of one place, oldest first; other files in the folder are nobody's."""
    parsed = map(parse_history_file, notes.names(HISTORY))
    return sorted(file for file in parsed if file is not None)


def read_lines(data: bytes, where: str, skipped: list[str]) -> Iterator[EpochRow]:
    """The rows of lines, newest first; a line that is not whole is *skipped*, and said."""
    lines = data.split(b"\n")
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        if not line:
            continue
        try:
            yield decode_line(line, f"{where}, line {number}")
        except (Corrupt, Unsupported) as error:
            skipped.append(str(error))


def _by_first(places: Sequence[Notes]) -> Iterator[tuple[int, list[tuple[Notes, HistoryFile]]]]:
    """The files that begin with the same epoch, newest first."""
    groups: dict[int, list[tuple[Notes, HistoryFile]]] = {}
    for notes in places:
        for file in history_files(notes):
            groups.setdefault(file.first, []).append((notes, file))
    yield from sorted(groups.items(), reverse=True)


def _read(notes: Notes, file: HistoryFile, before: int | None, limit: int, found: _Found) -> None:
    """One row more than a page has: it says whether there is another page."""
    where = notes.where(file.path)
    data = notes.read(file.path)
    if data is None:
        return  # it was packed, or was dropped, since it was listed
    if file.kind == PACKED:
        try:
            data = unpack(data, where)
        except Corrupt as error:
            found.skipped.append(str(error))
            return
    taken = 0
    for row in read_lines(data, where, found.skipped):
        if before is None or row.epoch < before:
            found.add(row)
            taken += 1
        if taken > limit:
            return
