"""Numbers and times as the page writes them: short, with the whole truth in a tooltip."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_THOUSANDS = ("", "k", "M", "G", "T")
_YEAR_MAX_S = 253_402_300_799


def ago(then_ms: int | None, now_ms: int) -> str:
    """`4 min ago`; what is in the future is `now`: clocks differ."""
    if then_ms is None:
        return "—"
    return "just now" if now_ms - then_ms < 1_000 else f"{duration((now_ms - then_ms) / 1000)} ago"


def duration(seconds: float) -> str:
    """With one unit, or two of which the second matters: 340 ms, 12.5 s, 3 min, 5 h 10 min."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for number, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            whole = int(seconds // size)
            smaller, small_unit = _UNITS[number + 1]
            rest = int(seconds % size // smaller)
            return (
                f"{whole} {unit} {rest} {small_unit}" if rest and whole < 10 else f"{whole} {unit}"
            )
    return f"{seconds:.0f} s"


def short(number: float) -> str:
    """1,234 as 1.2k: for plots and edges."""
    value = float(number)
    for unit in _THOUSANDS:
        if abs(value) < 1000 or unit == _THOUSANDS[-1]:
            break
        value /= 1000
    text = f"{value:.1f}" if abs(value) < 10 and value != int(value) else f"{value:.0f}"
    return f"{text}{unit}"


def whole(number: int | None) -> str:
    return "—" if number is None else f"{number:,}"


def event_time(microseconds: int | None) -> str:
    """A watermark as a time of day, to the second; what no calendar has, as a number."""
    if microseconds is None:
        return "—"
    seconds = microseconds // 1_000_000
    if not 0 <= seconds <= _YEAR_MAX_S:
        return f"{microseconds} µs"
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%d %H:%M:%S}"


def clock(milliseconds: int | None) -> str:
    """The time of day, in UTC."""
    if milliseconds is None or not 0 <= milliseconds // 1000 <= _YEAR_MAX_S:
        return "—"
    return f"{datetime.fromtimestamp(milliseconds // 1000, tz=UTC):%Y-%m-%d %H:%M:%S}"
