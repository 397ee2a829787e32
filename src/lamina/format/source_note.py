"""<home>/sources/<name>.json: what a source is about to make outside. FORMAT.md section 7.

The first version is 2: a note of version 1 would have no checksum, as those of sinks had none.
"""

from __future__ import annotations

from lamina.format import canonical
from lamina.format.fields import open_checked

VERSION = 2


def encode_made(slot: str, system: str) -> bytes:
    """The replication slot of a source, and the database cluster that it is in."""
    return canonical.encode_checked({"version": VERSION, "slot": slot, "system": system})


def decode_made(data: bytes, where: str) -> tuple[str, str]:
    """Corrupt unless every byte is as it was written."""
    fields = open_checked(data, where, what="the note of a source", known=VERSION)
    return fields.text("slot"), fields.text("system")
