"""Who has a remote home, for people: canonical JSON in `notes/holders/<generation>.json`."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.errors import Corrupt
from lamina.format import canonical
from lamina.format.fields import Fields

VERSION = 1


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has claimed the home, and whether it has ended in order."""

    host: str
    scratch: str  # its folder there
    since_ms: int
    has_ended: bool


def encode_holder(holder: Holder) -> bytes:
    return canonical.encode(
        {
            "version": VERSION,
            "host": holder.host,
            "scratch": holder.scratch,
            "since_ms": holder.since_ms,
            "has_ended": holder.has_ended,
        }
    )


def decode_holder(data: bytes, where: str) -> Holder:
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    return Holder(
        fields.text("host"),
        fields.text("scratch"),
        fields.integer("since_ms"),
        fields.flag("has_ended", False),
    )
