"""Times, sizes and names as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from lamina.ids import CheckpointId

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MILLISECONDS_MAX = 253_402_300_799_999  # the last of the year 9999


def utc(milliseconds: int) -> str:
    """A Unix time as ISO 8601 in UTC, to the millisecond: 2026-11-15T20:50:00.000Z."""
    if not 0 <= milliseconds <= _MILLISECONDS_MAX:
        return f"{milliseconds} ms"  # no calendar has it; a damaged clock may
    at = datetime.fromtimestamp(milliseconds // 1000, tz=UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def begun(id: CheckpointId) -> str:
    """When an id was made, by the clock of whoever made it."""
    return utc(id.milliseconds)


def size(count: int) -> str:
    """A number of bytes with three digits or so: 1.5 MiB."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """1 object, 2 objects; 1 entry, 2 entries."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def printable(text: str) -> str:
    """Names come from files: what could steer a terminal is shown, not sent."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
