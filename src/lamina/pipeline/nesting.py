"""Windows over windows: whether every row of a closed window finds its next window still open.

A row of a window comes out when the watermark has passed the end of that window. Its time in the
next stream must not be in a window that ends before: that one has closed, and the row would be
late, always. It cannot be, if the time is

- the end of its window, or a microsecond less;
- the start, if the windows do not overlap and the next ones are made of whole ones of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lamina.pipeline.blocks import keeps_state
from lamina.pipeline.expressions import Words, sign
from lamina.pipeline.intervals import micros
from lamina.pipeline.keys import Names, is_session
from lamina.pipeline.select import Item, Select
from lamina.pipeline.windows import lengths_of

START, END = "start", "end"
_CLOCKS = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP")
_CALLED_CLOCKS = ("NOW", "CURDATE")
CLOCK = (
    "a window over the time at which an epoch runs: the same rows would be in other windows when "
    "they are read again"
)
CLOCK_ADVICE = (
    "Give the source a column at TIMESTAMP METADATA FROM 'epoch_time', with a WATERMARK on it: it "
    "is kept with the rows. Or use a time that comes with them: their event time, or when they "
    "arrived (kafka: METADATA FROM 'timestamp')"
)


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
    found = [micros(text) for text in texts]
    if not found or None in found[:2]:
        return None
    size = found[0] or 0
    return Lengths(size, (found[1] if len(found) > 1 else size) or 0, len(found) > 2)


def nests(first: Words, then: Words, time: str) -> bool:
    """Whether windows *then* over the *time* of windows *first* are never closed too early."""
    if time == END:
        return True
    if is_session(first) or is_session(then):
        return False
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
    if upper[:1] == ["SESSION_WINDOW"]:
        upper[0] = "WINDOW"
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


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a column of a stream comes from: a source, or a stream with groups."""

    name: str
    column: str | None  # there; None if it is anything else than a column that is passed on


class Graph(Protocol):
    """What streams read, by name."""

    def select(self, name: str) -> Select | None:
        """None of a source."""
        ...

    def inputs(self, name: str) -> Sequence[str]: ...

    def columns(self, name: str) -> Sequence[str]:
        """Of a source, in lower case."""
        ...


def origins(graph: Graph, name: str, column: str | None) -> Iterator[Origin]:
    """Where a column of *name* comes from, under whatever names; one for each part of a UNION."""
    select = graph.select(name)
    if select is None or keeps_state(select):
        yield Origin(name, column)
        return
    inputs = graph.inputs(name)
    if select.is_python:
        for each in inputs:
            yield from origins(graph, each, None)
        return
    if len(inputs) > 1:
        first = _outputs(graph, inputs[0])
        place = first.index(column) if first and column in first else None
        for each in inputs:
            listed = _outputs(graph, each)
            has_it = listed is not None and place is not None and place < len(listed)
            yield from origins(graph, each, listed[place] if has_it else None)  # type: ignore[index]
        return
    words = item_of(select, column) if column else None
    if words is not None or not has_star(select):
        column = plain_column(select, words) if words else None
    yield from origins(graph, inputs[0], column)


def _outputs(graph: Graph, name: str) -> list[str | None] | None:
    """The names of its columns, in order; None if they cannot be told without Spark."""
    select = graph.select(name)
    if select is None:
        return list(graph.columns(name))
    if select.is_python:
        return None
    listed: list[str | None] = []
    for item in select.items:
        if item.words[-1].upper != "*":
            listed.append(name_of(item))
            continue
        if len(item.words) not in (1, 3):
            return None
        inner = _outputs(graph, graph.inputs(name)[0])
        if inner is None:
            return None
        listed += inner
    return listed


def is_of_clock(graph: Graph, name: str, column: str | None) -> bool:
    """Whether a column of *name* is computed from the time at which its epoch runs."""
    select = graph.select(name)
    if select is None or column is None or select.is_python or keeps_state(select):
        return False
    words = item_of(select, column)
    if words is not None and reads_clock(words):
        return True
    inner = plain_column(select, words) if words is not None else column
    return any(is_of_clock(graph, each, inner) for each in graph.inputs(name))


def reads_clock(words: Words) -> bool:
    """Whether an expression asks for the time of now."""
    return any(
        word.upper in _CLOCKS or (word.upper in _CALLED_CLOCKS and sign(words, index + 1) == "(")
        for index, word in enumerate(words)
    )


def plain_column(select: Select, words: Words) -> str | None:
    """As `column_of`, but no field of a struct."""
    names = Names(select.qualifier, ())
    return column_of(words) if len(names.elements(words)) == 1 else None
