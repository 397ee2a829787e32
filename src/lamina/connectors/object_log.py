"""The log of a sink in an object store: entries are created at the next number, and stay.

Numbers have no hole, so the last entry is found without a listing: by asking for numbers further
and further up, then halving. Every answer of a store is the same whether its listings are sorted,
delayed or dear.
"""

from __future__ import annotations

from lamina.errors import AlreadyExists, NotFound
from lamina.format import object_log as names
from lamina.format.object_log import ObjectEntry, ObjectFile
from lamina.format.pipeline_record import NOBODY
from lamina.store.base import Store

NOTHING = ObjectEntry(NOBODY, 0, None)


class ObjectLog:
    """The log below the root of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = (0, NOTHING)  # as this process has seen it
        self._folded: dict[int, int] = {}  # width -> entries whose folds are known to be there

    def last(self) -> tuple[int, ObjectEntry]:
        """The newest entry and its number; 0 if the log has not begun. Mostly one request."""
        below, step = self._last[0], 1
        newest = self._last
        above = None  # the lowest number that is known to be free
        while above is None or above - below > 1:
            number = below + step if above is None else (below + above) // 2
            entry = self._entry(number)
            if entry is None:
                above = number
            else:
                below, newest, step = number, (number, entry), step * 2
        self._last = newest
        return newest

    def append(self, number: int, entry: ObjectEntry) -> bool:
        """Take the *number* after the last one; False if another process was first.

        An answer that was lost is no question: the entry is ours if it has our bytes.
        """
        try:
            self._store.put_if_absent(names.entry_key(number), names.encode_entry(entry))
        except AlreadyExists:
            return False
        self._last = (number, entry)
        return True

    def fold(self, last: int) -> None:
        """Folds of all blocks that are complete at *last*; they follow from the entries alone."""
        for width in reversed(names.WIDTHS):
            missing = []
            end = last - last % width
            while end > self._folded.get(width, 0) and not self._has(width, end - width + 1):
                missing.append(end - width + 1)
                end -= width
            for first in reversed(missing):
                self._put_fold(width, first)
            self._folded[width] = last - last % width

    def files(self, last: int) -> list[ObjectFile]:
        """All files that entries up to *last* name, oldest first."""
        return self._files(1, last)

    # steps

    def _entry(self, number: int) -> ObjectEntry | None:
        key = names.entry_key(number)
        data = self._get(key)
        return None if data is None else names.decode_entry(data, f"{self._store.url}/{key}")

    def _put_fold(self, width: int, first: int) -> None:
        last = first + width - 1
        files = tuple(self._files(first, last, below=width))
        self._store.put(names.fold_key(width, first), names.encode_fold(first, last, files))

    def _files(self, first: int, last: int, below: int = 1 << 62) -> list[ObjectFile]:
        """Of a range of entries, from folds narrower than *below* where there are any."""
        found: list[ObjectFile] = []
        while first <= last:
            files, width = self._widest(first, last, below)
            found += files
            first += width
        return found

    def _widest(self, first: int, last: int, below: int) -> tuple[tuple[ObjectFile, ...], int]:
        for width in names.WIDTHS:
            if width < below and (first - 1) % width == 0 and first + width - 1 <= last:
                key = names.fold_key(width, first)
                data = self._get(key)
                if data is not None:
                    return names.decode_fold(data, f"{self._store.url}/{key}"), width
        entry = self._entry(first)
        if entry is None:
            key = names.entry_key(first)
            advice = "Restore it: nothing but Lamina may change or remove what is in _lamina"
            where = f"{self._store.url}/{key}"
            raise NotFound("an entry of a sink's log is gone", where=where, advice=advice)
        return entry.files, 1

    def _has(self, width: int, first: int) -> bool:
        try:
            self._store.head(names.fold_key(width, first))
        except NotFound:
            return False
        return True

    def _get(self, key: str) -> bytes | None:
        try:
            return self._store.get(key)
        except NotFound:
            return None
