"""A sink's log: fences and publications compete for the next number, and one gets it.

An entry says all that matters, so only the highest one counts, and older ones go. The last few
always stay. That makes a number that is free again harmless: who was paused so long that it could
take one finds, when it looks once more, that the log has gone on, and has decided nothing.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from lamina.disk.files import Files, create_once, make_folder
from lamina.format import sink_log as names
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.format.sink_log import SinkEntry

KEPT = 8
DROP_EVERY = 64


class SinkLog:
    """The log below one folder."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._own = folder / names.FOLDER
        self._folder = folder / names.LOG
        self._fences = folder / names.OLD_FENCES

    def last(self) -> tuple[int, SinkEntry]:
        """The entry that counts and its number; 0 if the log has not begun."""
        while True:
            numbers = self._numbers()
            try:
                return self._entry(max(numbers)) if numbers else (0, self._old())
            except FileNotFoundError:
                continue  # the log has gone on, and this entry was dropped

    def begin(self, generation: int) -> None:
        """A place to write to, and word to older releases, before anybody looks what they left.

        One that runs looks for fences of its own kind; one that starts finds an entry that it
        cannot read.
        """
        make_folder(self._files, self._folder)
        if self._files.exists(self._own / names.BARRIER):
            return
        if self._is_old():
            make_folder(self._files, self._fences)
            create_once(self._files, self._fences / names.numbered(generation), BytesIO(b"{}"))
        create_once(self._files, self._own / names.BARRIER, BytesIO(names.encode_barrier()))

    def append(self, number: int, entry: SinkEntry) -> bool:
        """Take the *number* after the last one, durably; False if another process was first."""
        path = self._folder / names.numbered(number)
        if not create_once(self._files, path, BytesIO(names.encode_entry(entry))):
            return False
        return max(self._numbers()) == number

    def sync(self) -> None:
        """Make durable what `last` has seen."""
        self._files.sync(self._folder)

    def drop(self, last: int, *, all_old: bool = False) -> None:
        """Remove what no longer counts: now and then, or *all_old* of it."""
        if not all_old and last % DROP_EVERY:
            return
        for number in sorted(self._numbers()):
            if number <= last - KEPT:
                self._files.unlink(self._folder / names.numbered(number))

    def sweep(self, last: int) -> None:
        """What processes that are gone or fenced left behind, and what older releases wrote."""
        self.drop(last, all_old=True)
        for name in self._files.names(self._folder):
            if name.startswith(".") and not name.endswith(self._files.tag):
                self._files.unlink(self._folder / name)
        for name in self._files.names(self._own):
            is_old = names.parse_numbered(name) is not None
            if is_old or names.parse_old_fence(name) is not None:
                self._files.unlink(self._own / name)
        fences = self._old_fences()
        for generation in sorted(fences)[:-1]:
            self._files.unlink(self._fences / names.numbered(generation))

    def _entry(self, number: int) -> tuple[int, SinkEntry]:
        path = self._folder / names.numbered(number)
        return number, names.decode_entry(self._read(path), str(path))

    def _numbers(self) -> list[int]:
        found = map(names.parse_numbered, self._files.names(self._folder))
        return [number for number in found if number is not None]

    # what older releases wrote

    def _is_old(self) -> bool:
        listed = self._files.names(self._own)
        return any(names.parse_numbered(name) is not None for name in listed) or any(
            name == self._fences.name or names.parse_old_fence(name) is not None for name in listed
        )

    def _old(self) -> SinkEntry:
        """Where a sink stands that only older releases have written to."""
        listed = self._files.names(self._own)
        first = (names.parse_old_fence(name) for name in listed)
        generation = max((*self._old_fences(), *(g for g in first if g is not None)), default=0)
        epochs = [e for e in map(names.parse_numbered, listed) if e is not None]
        if not epochs:
            return SinkEntry(NOBODY, generation, None)
        path = self._own / names.numbered(max(epochs))
        name, point = names.decode_old_entry(self._read(path), str(path))
        return SinkEntry(Owner(name=name), generation, point)

    def _old_fences(self) -> list[int]:
        found = map(names.parse_numbered, self._files.names(self._fences))
        return [generation for generation in found if generation is not None]

    def _read(self, path: Path) -> bytes:
        with self._files.open(path) as opened:
            return opened.read()
