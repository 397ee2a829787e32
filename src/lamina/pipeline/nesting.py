"""Windows over windows: whether every row of a closed window finds its next window still open.

A row of a window comes out when the watermark has passed the end of that window. Its time in the
next stream must not be in a window that ends before: that one has closed, and the row would be
late, always. It cannot be, if the time is

- the end of its window, or a microsecond less;
- the start, if the windows do not overlap and the next ones are made of whole ones of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lamina.pipeline.definitions import UNITS_US
from lamina.pipeline.expressions import Words
from lamina.pipeline.keys import Names
from lamina.pipeline.select import Item, Select
from lamina.pipeline.windows import lengths_of

_PART = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")
START, END = "start", "end"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of a window, in microseconds; None where it is not a plain length."""

    size: int
    slide: int
    is_shifted: bool

    @property
    def overlaps(self) -> bool:
        return self.slide != self.size


def lengths(window: Words) -> Lengths | None:
    """The lengths of a window as it is written."""
    texts = lengths_of(window)
    found = [_micros(text) for text in texts]
    if not found or None in found[:2]:
        return None
    size = found[0] or 0
    return Lengths(size, (found[1] if len(found) > 1 else size) or 0, len(found) > 2)


def nests(first: Words, then: Words, time: str) -> bool:
    """Whether windows *then* over the *time* of windows *first* are never closed too early."""
    if time == END:
        return True
    inner, outer = lengths(first), lengths(then)
    if inner is None or outer is None or inner.overlaps or inner.is_shifted or outer.is_shifted:
        return False
    return outer.size % inner.size == 0 and outer.slide % inner.size == 0


def column_of(words: Words) -> str | None:
    """The name of a column that is all of an expression, with or without its table."""
    plain = len(words) == 1 or (len(words) == 3 and words[1].upper == ".")
    return words[-1].text.lower() if plain and words[-1].is_name else None


def item_of(select: Select, name: str) -> Words | None:
    """The expression that a column is in a SELECT; of `*` the column itself is not known here."""
    for item in select.items:
        if name_of(item) == name:
            return item.words
    return None


def has_star(select: Select) -> bool:
    return any(item.words[-1].upper == "*" for item in select.items)


def time_of(words: Words) -> str | None:
    """What of a window an expression is: its start, its end or a microsecond less; or neither."""
    upper = [word.upper for word in words]
    if upper in (["WINDOW", ".", "START"], ["WINDOW", ".", "END"]):
        return upper[2].lower()
    less = ["WINDOW", ".", "END", "-", "INTERVAL"]
    last = " ".join(word.text.upper() for word in words[5:])
    if upper[:5] == less and last in ("1 MICROSECOND", "1 MICROSECONDS"):
        return END
    return None


def name_of(item: Item) -> str | None:
    """The name of a column of a SELECT, in lower case, if it has one."""
    return item.alias.lower() if item.alias is not None else column_of(item.words)


def _micros(text: str) -> int | None:
    """'1 minute 30 seconds' in microseconds; None if it is anything else."""
    found = _PART.findall(text)
    if not found or "".join(_PART.split(text)[0::3]).strip():
        return None
    units = [UNITS_US.get(unit.upper().removesuffix("S")) for _, unit in found]
    if None in units:
        return None
    return sum(int(n) * (u or 0) for (n, _), u in zip(found, units, strict=True))


def column_behind(
    name: str | None,
    reads: str,
    select_of: Callable[[str], Select],
    input_of: Callable[[str], str | None],
) -> str | None:
    """The column of a source that a column of the stream *reads* is, under whatever names.

    None if it is anything else than a column that is passed on as it is.
    """
    at: str | None = reads
    while at is not None and name is not None:
        select = select_of(at)
        if select.keys:
            return None  # of a group, not of a row
        words = item_of(select, name)
        if words is not None or not has_star(select):
            name = _plain_column(select, words) if words else None
        at = input_of(at)
    return name


def _plain_column(select: Select, words: Words) -> str | None:
    """As `column_of`, but no field of a struct."""
    names = Names((select.alias or select.table).text.lower(), ())
    return column_of(words) if len(names.elements(words)) == 1 else None


Resolve = Callable[[str], "tuple[Select, bool] | None"]
"""Of the name of a stream: its SELECT, and whether it has windows; None of a source."""


def window_time(
    reads: str, time: Words, resolve: Resolve, input_of: Callable[[str], str | None]
) -> tuple[str, str | None] | None:
    """The stream with windows whose rows a *time* over the stream *reads* is of, and which time.

    None if there is no such stream; the time is None if it is no plain one.
    """
    at: str | None = reads
    name = column_of(time)
    while at is not None and (found := resolve(at)) is not None:
        select, has_window = found
        words = item_of(select, name) if name else None
        if has_window:
            return at, time_of(words) if words else None
        if words is not None or not has_star(select):
            name = column_of(words) if words else None
        at = input_of(at)
    return None
