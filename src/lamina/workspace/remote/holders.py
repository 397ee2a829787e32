"""Who has a remote home, by its claims: a process writes only the note of its own generation.

So one that has been fenced and ends later says nothing about the one that has the home now.
"""

from __future__ import annotations

from lamina.format.holder import Holder, decode_holder, encode_holder
from lamina.format.remote_names import HOLDERS, OLD_HOLDER, holder_note, parse_holder_note
from lamina.workspace.base import Notes

_TRIES = 3


def newest_holder(notes: Notes) -> Holder | None:
    """Of the highest generation; None if nobody has ever had the home."""
    for _ in range(_TRIES):
        generations = _generations(notes)
        if not generations:
            break
        found = _read(notes, holder_note(generations[-1]))
        if found is not None:
            return found  # if not: a newer process has dropped it since the listing
    return _read(notes, OLD_HOLDER)


def say_holder(notes: Notes, generation: int, holder: Holder) -> None:
    """What *generation* says of itself."""
    notes.write(holder_note(generation), encode_holder(holder))


def drop_older(notes: Notes, generation: int) -> None:
    """Who had the home before *generation* claimed it is of no interest any more."""
    for older in _generations(notes):
        if older < generation:
            notes.remove(holder_note(older))


def _generations(notes: Notes) -> list[int]:
    parsed = map(parse_holder_note, notes.names(HOLDERS))
    return sorted(generation for generation in parsed if generation is not None)


def _read(notes: Notes, name: str) -> Holder | None:
    data = notes.read(name)
    return None if data is None else decode_holder(data, notes.where(name))
