"""An expression over the state: aggregates and keys are replaced by its columns, the rest stays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lamina.pipeline.aggregate_calls import AggregateCalls
from lamina.pipeline.expressions import Words, after_dot, closing, is_reference, sign
from lamina.pipeline.keys import Element, Key, Names
from lamina.pipeline.select import quoted
from lamina.pipeline.structs import field_of
from lamina.pipeline.tokens import Script

_STATE_COLUMN = re.compile(r"k\d+(_start|_end)?|p\d+")
_GROUPINGS = ("GROUPING", "GROUPING_ID")
Aliases = Mapping[str, Words]


class Finals:
    def __init__(
        self,
        script: Script,
        names: Names,
        keys: Sequence[Key],
        window: int | None,
        aggregates: AggregateCalls,
        *,
        has_sets: bool = False,
    ) -> None:
        self._script = script
        self._names = names
        # The longest first: one key may be the beginning of another.
        self._keys = sorted(enumerate(keys), key=lambda each: -len(each[1].words))
        self._window = window
        is_session = window is not None and keys[window].is_session
        self._window_name = "SESSION_WINDOW" if is_session else "WINDOW"
        self._aggregates = aggregates
        self._has_sets = has_sets

    def text(self, words: Words, aliases: Aliases) -> str:
        """The expression over state columns; *aliases* stand for other items of the list."""
        elements = self._names.elements(words)
        pieces: list[str] = []
        at, number = words[0].start, 0
        while number < len(elements):
            element = elements[number]
            new, last = self._replacement(words, elements[number:], aliases)
            if not new:
                self._check(words, element)
                number += 1
                continue
            named = _named(words, element.first, last, new)
            pieces += [self._script.text[at : words[element.first].start], named]
            at = words[last].end
            while number < len(elements) and elements[number].first <= last:
                number += 1
        return "".join([*pieces, self._script.text[at : words[-1].end]])

    def _replacement(
        self, words: Words, ahead: Sequence[Element], aliases: Aliases
    ) -> tuple[str, int]:
        """What stands for the elements *ahead*, and the last word that it takes the place of."""
        for number, key in self._keys:
            if count := key.matches(self._names, words, ahead):
                return f"k{number}", ahead[count - 1].last
        first = ahead[0].first
        found = self._grouping(words, first) or self._aggregates.at(words, first)
        if found is not None:
            return found
        word = words[first]
        if first != ahead[0].last or not is_reference(words, first):
            return "", first
        if word.text.lower() in aliases:
            rest = {name: w for name, w in aliases.items() if name != word.text.lower()}
            return f"({self.text(aliases[word.text.lower()], rest)})", first
        if self._window is not None and word.upper == self._window_name:
            return f"k{self._window}", first
        return "", first

    def _grouping(self, words: Words, first: int) -> tuple[str, int] | None:
        """grouping(key), grouping_id(): which keys a row is not grouped by, as bits."""
        if words[first].upper not in _GROUPINGS or sign(words, first + 1) != "(":
            return None
        name, close = words[first].text.lower(), closing(words, first + 1)
        if not self._has_sets:
            message = f"{name}() without GROUPING SETS, ROLLUP or CUBE"
            raise self._script.bad(message, words[first], "Write 0, or group by several sets")
        given, count = words[first + 2 : close], len(self._keys)
        if name == "grouping_id":
            if given:
                raise self._script.bad("grouping_id() of some keys", given[0], "Leave them out")
            return f"k{count}", close
        wanted = [each.normal for each in self._names.elements(given)]
        for number, key in self._keys:
            if [each.normal for each in self._names.elements(key.words)] == wanted:
                return f"CAST(shiftright(k{count}, {count - 1 - number}) & 1 AS TINYINT)", close
        listed = ", ".join(self._script.slice(key.words) for _, key in sorted(self._keys))
        raise self._script.bad(
            "grouping() of what is not a key", words[first], f"The keys are {listed}"
        )

    def _check(self, words: Words, element: Element) -> None:
        """A column that is no key has many values in a group."""
        word = words[element.last]
        is_qualified = element.first != element.last
        if is_qualified or is_reference(words, element.last):
            if word.text.lower() in self._names.columns:
                raise self._script.bad(
                    f"{word.text!r} is neither a key of GROUP BY nor inside an aggregate",
                    words[element.first],
                    "Add it to GROUP BY; a key that is an expression must be in brackets here",
                )
            if _STATE_COLUMN.fullmatch(word.text.lower()):
                raise self._script.bad(f"there is no column {word.text!r}", word)
        is_star = word.upper == "*" and (after_dot(words, element.last) or element.last == 0)
        if is_star:
            advice = "Name the columns: keys, and aggregates of the others"
            raise self._script.bad("* in a stream with GROUP BY", word, advice)


def _named(words: Words, first: int, last: int, new: str) -> str:
    """What stands for words[first..last], with the name that a struct gave its field for them."""
    name = field_of(words, first, last)
    return new if name is None else f"{new} AS {quoted(name)}"
