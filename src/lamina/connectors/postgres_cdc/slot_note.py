"""That this pipeline has made a slot: written down before the slot is there (decision 0032)."""

from __future__ import annotations

from lamina.format.home_names import source_note_path
from lamina.format.source_note import decode_made, encode_made
from lamina.workspace.base import Notes


class SlotNote:
    """A note of one source in the home; without a home nothing is written, and none is found."""

    def __init__(self, notes: Notes | None, source: str) -> None:
        self._notes = notes
        self._path = source_note_path(source)

    def write(self, slot: str, system: str) -> None:
        if self._notes is not None:
            self._notes.write(self._path, encode_made(slot, system))

    def says(self, slot: str, system: str) -> bool:
        data = self._notes.read(self._path) if self._notes is not None else None
        if self._notes is None or data is None:
            return False
        return decode_made(data, self._notes.where(self._path)) == (slot, system)
