"""Lengths of time as they are written."""

from __future__ import annotations

import re

from lamina.pipeline.cursor import Cursor

UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
INTERVAL_US_MAX = (1 << 63) - 1

_PART = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")


def delay_us(number: str, unit: str) -> int | None:
    """So many of a unit in microseconds; None if that is no length of time."""
    digits = number.strip()
    scale = UNITS_US.get(unit.strip().upper().removesuffix("S"))
    if scale is None or not (digits.isascii() and digits.isdecimal()):
        return None
    microseconds = int(digits) * scale
    return microseconds if microseconds <= INTERVAL_US_MAX else None


def read_interval(cursor: Cursor, *, after: str) -> int:
    """INTERVAL 5 SECONDS, INTERVAL '5' SECOND or INTERVAL '5 seconds', in microseconds."""
    cursor.expect("INTERVAL", after=after)
    number = cursor.any("a number")
    said = number.text.split() if number.is_string else [number.text]
    if len(said) == 1:
        said.append(cursor.any("a unit").text)
    delay = delay_us(*said) if len(said) == 2 else None
    if delay is None:
        raise cursor.script.bad(
            f"INTERVAL {' '.join(said)} is not supported",
            number,
            f"Write a whole number and one of {', '.join(UNITS_US)}",
        )
    return delay


def micros(text: str) -> int | None:
    """'1 minute 30 seconds' in microseconds; None if it is anything else."""
    found = _PART.findall(text)
    if not found or "".join(_PART.split(text)[0::3]).strip():
        return None
    units = [UNITS_US.get(unit.upper().removesuffix("S")) for _, unit in found]
    if None in units:
        return None
    return sum(int(n) * (u or 0) for (n, _), u in zip(found, units, strict=True))
