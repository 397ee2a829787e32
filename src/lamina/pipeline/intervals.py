"""Lengths of time as they are written."""

from __future__ import annotations

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


def delay_us(number: str, unit: str) -> int | None:
    """So many of a unit in microseconds; None if that is no length of time."""
    digits = number.strip()
    scale = UNITS_US.get(unit.strip().upper().removesuffix("S"))
    if scale is None or not (digits.isascii() and digits.isdecimal()):
        return None
    microseconds = int(digits) * scale
    return microseconds if microseconds <= INTERVAL_US_MAX else None
