"""The keys of a GROUP BY, and where they stand in other expressions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lamina.pipeline.expressions import (
    Words,
    bound,
    calls,
    closing,
    has_implicit_alias,
    is_reference,
    normal,
    sign,
    space,
    spelled,
    stands_alone,
    strength,
)
from lamina.pipeline.select import Select
from lamina.pipeline.tokens import Word, whole_number

SESSIONS = ("SESSION_WINDOW", "SESSION")
WINDOWS = ("WINDOW", "TUMBLE", "HOP", "CUMULATE", *SESSIONS)


@dataclass(frozen=True, slots=True)
class Element:
    """A word of an expression, or a column with its qualifier: `t.symbol` is `symbol`."""

    normal: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Names:
    """What names mean in a SELECT: its input has one qualifier and these columns, in lower case."""

    qualifier: str
    columns: Collection[str]

    def elements(self, words: Words) -> list[Element]:
        found: list[Element] = []
        index = 0
        while index < len(words):
            last = index + 2 if self._is_qualified(words, index) else index
            found.append(Element(normal(words[last]), index, last))
            index = last + 1
        return found

    def spelled(self, words: Words) -> str:
        """An expression in one spelling: without comments, qualifiers and upper case."""
        said = ""
        before: Word | None = None
        for element in self.elements(words):
            word = words[element.last]
            said += ("" if before is None else space(before, word)) + spelled(word)
            before = word
        return said

    def _is_qualified(self, words: Words, index: int) -> bool:
        if (
            sign(words, index + 1) != "."
            or sign(words, index - 1) == "."
            or index + 2 >= len(words)
        ):
            return False
        first, name = words[index].text.lower(), words[index + 2].text.lower()
        # A struct may be called like its table: then a column of the table goes first.
        is_struct = first in self.columns and name not in self.columns
        return words[index].is_name and first == self.qualifier and not is_struct


@dataclass(frozen=True, slots=True)
class Key:
    words: Words

    @property
    def is_window(self) -> bool:
        return is_window(self.words)

    @property
    def is_session(self) -> bool:
        return is_session(self.words)

    @property
    def is_literal(self) -> bool:
        """A constant key stays a constant where it is used: functions may ask for one."""
        return len(self.words) == 1 and (self.words[0].is_string or self.words[0].is_number)

    def matches(self, names: Names, words: Words, at: Sequence[Element]) -> int:
        """How many of the elements *at* a place of *words* are this key; 0 if they are not."""
        mine = names.elements(self.words)
        ahead = at[: len(mine)]
        if self.is_literal or [e.normal for e in ahead] != [e.normal for e in mine]:
            return 0
        first, last = ahead[0].first, ahead[-1].last
        if not stands_alone(words, first, last, strength(self.words)):
            return 0
        return 0 if self._means_other(mine, words, ahead) else len(mine)

    def _means_other(self, mine: list[Element], words: Words, ahead: Sequence[Element]) -> bool:
        first, last = ahead[0].first, ahead[-1].last
        if sign(words, first - 1) == "." or sign(words, last + 1) == "(":
            return True
        here = bound(words)
        own = bound(self.words)
        if [e.last in here for e in ahead] != [e.last in own for e in mine]:
            return True
        is_name = is_reference(self.words, 0) and mine[0].first == mine[0].last
        return is_name and ahead[0].first == ahead[0].last and not is_reference(words, first)


def is_window(words: Words) -> bool:
    return words[0].upper in WINDOWS and dict(calls(words)).get(0) == len(words) - 1


def is_session(words: Words) -> bool:
    return is_window(words) and words[0].upper in SESSIONS


def read_keys(select: Select, columns: Collection[str]) -> tuple[Key, ...]:
    """The keys of a SELECT over an input with *columns*, in lower case.

    A number, or a name that is no column of the input, may stand for an item of the SELECT list.
    """
    every = select.grouping.every
    if every is not None:
        if "all" in columns:
            advice = "Name the keys; the column goes in back quotes"
            raise select.script.bad("GROUP BY ALL, and there is a column `all`", every, advice)
        return tuple(Key(_without_brackets(words)) for words in select.keys)
    return tuple(Key(_without_brackets(_key(select, words, columns))) for words in select.keys)


def read_on_keys(select: Select, columns: Collection[str]) -> tuple[Key, ...]:
    """The keys of DISTINCT ON, which may stand for items too."""
    keys = () if select.on is None else select.on.keys
    clause = "DISTINCT ON"
    return tuple(Key(_without_brackets(_key(select, words, columns, clause))) for words in keys)


def _key(select: Select, words: Words, columns: Collection[str], clause: str = "GROUP BY") -> Words:
    if has_implicit_alias(words):
        advice = f"{clause} has expressions without names; after them come HAVING, QUALIFY and EMIT"
        raise select.script.bad(f"{words[-1].text!r} is not known in {clause}", words[-1], advice)
    if len(words) > 1:
        return words
    (word,) = words
    if word.upper == "ALL" and "all" not in columns:
        raise select.script.bad("ALL beside other keys", word, "Write GROUP BY ALL, or the keys")
    if word.is_number:
        return _by_number(select, word)
    if word.is_name and word.text.lower() not in columns:
        for item in select.items:
            if item.alias is not None and item.alias.lower() == word.text.lower():
                return item.words
    return words


def _by_number(select: Select, word: Word) -> Words:
    number = whole_number(word.text)
    if number is None or not 1 <= number <= len(select.items):
        advice = f"The list has {len(select.items)}"
        raise select.script.bad(f"there is no column {word.text} in the SELECT list", word, advice)
    return select.items[number - 1].words


def _without_brackets(words: Words) -> Words:
    while words[0].upper == "(" and closing(words, 0) == len(words) - 1 and len(words) > 2:
        inner = words[1:-1]
        if any(word.upper == "," and word.depth == inner[0].depth for word in inner):
            return words  # a struct
        words = inner
    return words
