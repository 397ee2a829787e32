"""Windows as tables of FROM, as Flink writes them: the rows of a table, each with its windows.

FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))       with TABLE(...) or without
FROM TUMBLE(t, ts, INTERVAL '10' SECOND)                                the same
FROM HOP(TABLE t, DESCRIPTOR(ts), slide, size)
FROM CUMULATE(TABLE t, DESCRIPTOR(ts), step, size)
FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)
FROM TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND)

What their columns become is in window_columns.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.pipeline.expressions import Words, by_comma, closing, sign
from lamina.pipeline.tokens import Script

TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_FORMS = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE): the slide, "
    "then the size",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY): the step, "
    "then the size",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
}
_LENGTHS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
_NEEDED = {"TUMBLE": 1, "HOP": 2, "CUMULATE": 2, "SESSION": 1}


@dataclass(frozen=True, slots=True)
class WindowTable:
    """One of FROM; *first* and *last* are the places of its words, without an alias."""

    first: int
    last: int
    kind: str
    data: Words  # the name of the table, or a subquery with its brackets
    parts: tuple[Words, ...]  # of PARTITION BY
    time: str
    lengths: tuple[str, ...]

    def call(self) -> str:
        """The window of a row, as GROUP BY may have it."""
        if self.kind == "TUMBLE" and len(self.lengths) > 1:
            size, offset = self.lengths
            return f"window({self.time}, {size}, {size}, {offset})"
        if self.kind == "HOP" and len(self.lengths) > 2:
            slide, size, offset = self.lengths
            return f"window({self.time}, {size}, {slide}, {offset})"
        return f"{self.kind}({', '.join([self.time, *self.lengths])})"


def opens_window_table(words: Words, index: int) -> bool:
    """Whether a table of FROM begins here that is windows."""
    if sign(words, index - 1) not in ("FROM", "JOIN", ",", ""):
        return False
    at = index + 2 if _is_wrapped(words, index) else index
    return sign(words, at) in TABLES and sign(words, at + 1) == "("


def _is_wrapped(words: Words, index: int) -> bool:
    return sign(words, index) == "TABLE" and sign(words, index + 1) == "("


def read_window_tables(script: Script, start: int, end: int) -> Iterator[WindowTable]:
    """Those among the words [start, end) of FROM, which are in no bracket."""
    words = script.words
    for index in range(start, end):
        if words[index].depth == words[0].depth and opens_window_table(words, index):
            yield _table(script, words, index)


def _table(script: Script, words: Words, index: int) -> WindowTable:
    at = index + 2 if _is_wrapped(words, index) else index
    close = closing(words, at + 1)
    last = closing(words, index + 1) if at > index else close
    kind = words[at].upper
    if last != close + (at > index):
        more = words[close + 1]
        raise script.bad(f"{more.text!r} is not known here", more, f"Write {_FORMS[kind]}")
    data, parts, time, lengths = _Arguments(script, words, at).read()
    texts = tuple(script.slice(each) for each in lengths)
    if kind == "CUMULATE" and len(texts) > 2:
        message = "CUMULATE with an offset"
        raise script.bad(message, lengths[2][0], "Leave it out: windows begin at 1970-01-01")
    return WindowTable(index, last, kind, data, parts, script.slice(time), texts)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Those of the call whose name is at *at*."""

    script: Script
    words: Words
    at: int

    def read(self) -> tuple[Words, tuple[Words, ...], Words, list[Words]]:
        """The table, its PARTITION BY, the column of time, and lengths."""
        kind = self.words[self.at].upper
        close = closing(self.words, self.at + 1)
        given = by_comma(self.words[self.at + 2 : close]) if close > self.at + 2 else []
        if not all(given):
            raise self._bad()
        if any(sign(each, 1) == "=>" for each in given):
            given = self._by_name(given)
        found = (i for i, each in enumerate(given) if sign(each, 0) == "DESCRIPTOR")
        time = next(found, 1)
        lengths = given[time + 1 :]
        if not _NEEDED[kind] <= len(lengths) <= len(_LENGTHS[kind]):
            raise self._bad()
        data, *parts = self._data(given[:time])
        return data, tuple(parts), self._time(given[time]), lengths

    def _by_name(self, given: list[Words]) -> list[Words]:
        order = ("DATA", "TIMECOL", *_LENGTHS[self.words[self.at].upper])
        named = {sign(each, 0): each[2:] for each in given if sign(each, 1) == "=>"}
        if len(named) < len(given) or not all(named.values()) or not {*named} <= {*order}:
            raise self._bad()
        return [named[name] for name in order if name in named]

    def _time(self, words: Words) -> Words:
        if sign(words, 0) != "DESCRIPTOR":
            return words
        if sign(words, 1) != "(" or len(words) < 4 or len(by_comma(words[2:-1])) > 1:
            message = "DESCRIPTOR of one column is expected"
            raise self.script.bad(message, words[0], "Write DESCRIPTOR(ts)")
        return words[2:-1]

    def _data(self, given: list[Words]) -> list[Words]:
        """The table, then what it is partitioned by."""
        words = given[0][1:] if sign(given[0], 0) == "TABLE" else given[0]
        if not words:
            raise self._bad()
        end = closing(words, 0) + 1 if sign(words, 0) == "(" else 1
        if not words[0].is_name and end == 1:
            raise self._bad()
        data, rest = words[:end], words[end:]
        if not rest and len(given) == 1:
            return [data]
        if sign(rest, 0) != "PARTITION BY" or len(rest) < 2:
            raise self._bad()
        keys = rest[1:]
        if sign(keys, 0) == "(" and closing(keys, 0) == len(keys) - 1 and len(keys) > 2:
            return [data, *by_comma(keys[1:-1]), *given[1:]]
        return [data, keys, *given[1:]]

    def _bad(self) -> Exception:
        kind = self.words[self.at].upper
        message = f"wrong arguments for {kind} in FROM"
        return self.script.bad(message, self.words[self.at], f"Write {_FORMS[kind]}")
