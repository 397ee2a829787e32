"""The keys of a GROUP BY that are the window of a table of FROM (window_tables.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.pipeline.expressions import Words, by_comma, sign
from lamina.pipeline.grouping import is_key
from lamina.pipeline.select import Item
from lamina.pipeline.tokens import Script, Word, whole_number

COLUMNS = {
    "WINDOW_START": "{}.start",
    "WINDOW_END": "{}.end",
    "WINDOW_TIME": "{}.end - INTERVAL 1 MICROSECOND",
}


@dataclass(frozen=True, slots=True)
class WindowKey:
    """Where GROUP BY has a column of the window, with the comma before it unless it is first."""

    column: str
    start: int
    end: int
    bracket: int
    more: str = ""


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """The keys of a GROUP BY; a number or a name may stand for an item."""

    script: Script
    items: list[Item]
    words: Words

    def found(self) -> Iterator[WindowKey]:
        """Those that are the window."""
        words = self.words
        if len(words) == 1 and words[0].upper == "ALL":
            yield from self._of_all()
            return
        seen: set[int] = set()
        for index, first, bracket in self._elements():
            column = self._column(words[first : index + 1])
            if column is None:
                continue
            self._check_bracket(bracket, words[index])
            start = words[first - 1].start if bracket in seen else words[first].start
            seen.add(bracket)
            yield WindowKey(column, start, words[index].end, bracket)

    def others(self) -> list[Words]:
        """The keys outside of brackets that are not the window."""
        if len(self.words) == 1 and self.words[0].upper == "ALL":
            keys = [item.words for item in self.items if is_key(item.words, ())]
            return [each for each in keys if window_column(each) is None]
        keys = [each for each in by_comma(self.words) if self._column(each) is None]
        return [self._item_of(each) or each for each in keys]

    def _of_all(self) -> Iterator[WindowKey]:
        keys = [item.words for item in self.items if is_key(item.words, ())]
        columns = [column for each in keys if (column := window_column(each)) is not None]
        others = [
            str(number)
            for number, item in enumerate(self.items, 1)
            if is_key(item.words, ()) and window_column(item.words) is None
        ]
        if columns:
            word, more = self.words[0], "".join(f", {each}" for each in others)
            column = "WINDOW_END" if "WINDOW_END" in columns else columns[0]
            yield WindowKey(column, word.start, word.end, -1, more)

    def _elements(self) -> Iterator[tuple[int, int, int]]:
        """Where each key ends that may be a column, where it begins, and in which bracket."""
        words, opened = self.words, [-1]
        for index, word in enumerate(words):
            if word.upper == "(":
                opened.append(index)
            elif word.upper == ")":
                opened.pop()
            else:
                first = index - 2 if sign(words, index - 1) == "." else index
                ends = ("", "(", ",", ")")
                if sign(words, first - 1) in ends and sign(words, index + 1) in ends:
                    is_start = index + 1 == len(words) or sign(words, index + 1) in (",", ")")
                    if is_start and not self._is_argument(opened[-1]):
                        yield index, first, opened[-1]

    def _is_argument(self, bracket: int) -> bool:
        """Whether the bracket is that of a function."""
        before = sign(self.words, bracket - 1) if bracket >= 0 else ""
        return before not in ("", "(", ",", "ROLLUP", "CUBE", "GROUPING SETS")

    def _check_bracket(self, bracket: int, word: Word) -> None:
        if sign(self.words, bracket - 1) in ("ROLLUP", "CUBE"):
            message = f"{word.text} inside of {self.words[bracket - 1].upper}"
            advice = "Write GROUP BY window_start, window_end, and behind them ROLLUP or CUBE"
            raise self.script.bad(message, word, advice)

    def _column(self, words: Words) -> str | None:
        return window_column(self._item_of(words) or words)

    def _item_of(self, words: Words) -> Words | None:
        """The item that a number or an alias stands for."""
        if len(words) != 1:
            return None
        (word,) = words
        if word.is_number:
            number = whole_number(word.text) or 0
            return self.items[number - 1].words if 0 < number <= len(self.items) else None
        names = (item for item in self.items if item.alias is not None)
        return next((i.words for i in names if i.alias.lower() == word.text.lower()), None)  # type: ignore[union-attr]


def window_column(words: Words) -> str | None:
    """Which column of the window an expression is."""
    is_one = len(words) == 1 or (len(words) == 3 and words[1].upper == ".")
    name = words[-1].upper if is_one else ""
    return name if name in COLUMNS else None
