"""The columns of windows that are tables of FROM, and TUMBLE_START: what they become.

SELECT k, window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY k, window_start, window_end

SELECT k, window.start AS window_start, count(*) AS n FROM t
GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY)

Without these keys the windows are columns of each row:

FROM (SELECT *, window(ts, '1 DAY').start AS window_start, ... FROM t) AS t

Lines stay where they were; columns do not. window_time is a microsecond before the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lamina.pipeline.expressions import Words, by_comma, closing, is_reference, sign
from lamina.pipeline.keys import SESSIONS, Names, is_window
from lamina.pipeline.select import Item, read_item
from lamina.pipeline.subqueries import clause_marks, clause_of
from lamina.pipeline.tokens import Script, Word, read_script
from lamina.pipeline.window_keys import COLUMNS, WindowKey, WindowKeys, window_column
from lamina.pipeline.window_tables import (
    WindowTable,
    opens_window_table,
    read_window_tables,
)
from lamina.pipeline.windows import arguments, window_text

_CALLS = {
    f"{kind}_{name}": (kind, COLUMNS[column])
    for kind in ("TUMBLE", "HOP", "CUMULATE", "SESSION")
    for name, column in (
        ("START", "WINDOW_START"),
        ("END", "WINDOW_END"),
        ("ROWTIME", "WINDOW_TIME"),
        ("PROCTIME", "WINDOW_TIME"),
    )
}
"""Functions of the window that a query groups by."""
_BOTH = "Write GROUP BY window_start, window_end"


def has_windows(words: Words) -> bool:
    """Whether a query has windows as tables, or functions of its window, as far as words tell."""
    return any(
        opens_window_table(words, index) or (word.upper in _CALLS and sign(words, index + 1) == "(")
        for index, word in enumerate(words)
    )


def over_windows(script: Script) -> str | None:
    """The text of a SELECT without windows as tables and their columns; None if it has none."""
    if not has_windows(script.words):
        return None
    text = _Select(script).text()
    return None if text == script.text else text


@dataclass(slots=True)
class _Select:
    """One SELECT, and what changes in its text."""

    script: Script
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    def text(self) -> str:
        words = self.script.words
        read = clause_of(words, "FROM")
        start = words.index(read[0]) if read else 0
        tables = list(read_window_tables(self.script, start, start + len(read)))
        groups = clause_of(words, "GROUP BY")
        items = self._items()
        keys = list(WindowKeys(self.script, items, groups).found())
        if len(tables) == 1 and keys and len(read) == len(_alone(words, tables[0], read)):
            self._grouped(tables[0], items, groups, keys)
        else:
            for table in tables:
                self._row_by_row(table)
        self._calls(groups)
        return self._edited()

    def _items(self) -> list[Item]:
        words = self.script.words
        listed = words[1 : next(clause_marks(words), len(words))]
        if sign(listed, 0) in ("DISTINCT", "ALL") and sign(listed, 1) not in ("", ",", "."):
            listed = listed[1:]
        return [read_item(self.script, each) for each in by_comma(listed) if each]

    def _grouped(
        self, table: WindowTable, items: list[Item], groups: Words, keys: list[WindowKey]
    ) -> None:
        """Keys that are the window: it is what GROUP BY has, and the table is read as it is."""
        self._check_keys(table, items, groups, keys)
        words = self.script.words
        for word in clause_of(words, "WHERE"):
            if word.upper in COLUMNS:
                message = f"{word.text} in WHERE: the rows have no window yet"
                raise self.script.bad(message, word, "Write it in HAVING: the window is a key")
        self._put(words[table.first].start, words[table.last].end, self.script.slice(table.data))
        brackets: set[int] = set()
        for key in keys:
            is_first = key.bracket not in brackets
            brackets.add(key.bracket)
            self._put(key.start, key.end, table.call() + key.more if is_first else "")
        name = "session_window" if table.kind == "SESSION" else "window"
        for item in items:
            self._item(item, name)
        for clause in ("HAVING", "QUALIFY", "ORDER BY"):
            self._references(clause_of(words, clause), name)

    def _check_keys(
        self, table: WindowTable, items: list[Item], groups: Words, keys: list[WindowKey]
    ) -> None:
        said = {key.column for key in keys}
        at = groups[0]
        if table.kind == "CUMULATE" and said == {"WINDOW_START"}:
            message = "windows that cumulate begin together: window_start does not tell them apart"
            raise self.script.bad(message, at, _BOTH)
        if table.kind != "SESSION":
            return
        names = Names(self._qualifier(table), ())
        wanted = {names.spelled(each) for each in table.parts}
        others = WindowKeys(self.script, items, groups).others()
        found = {names.spelled(each) for each in others}
        if wanted != found:
            whose = f"of each {', '.join(sorted(wanted))}" if wanted else "of all rows together"
            message = f"the sessions are those {whose}, and GROUP BY has other keys"
            advice = "Group by window_start, window_end and the columns of PARTITION BY"
            raise self.script.bad(message, at, advice)

    def _row_by_row(self, table: WindowTable) -> None:
        """The windows of each row as columns of it."""
        words = self.script.words
        at = words[table.first]
        if table.kind in ("CUMULATE", "SESSION"):
            message = f"{table.kind} in FROM without GROUP BY window_start, window_end"
            advice = (
                f"{_BOTH} and the other keys in a subquery, and go on with its rows: each has its "
                "window then"
            )
            raise self.script.bad(message, at, advice)
        made = read_script(table.call(), self.script.file, self.script.place(at.start))
        window = window_text(made, made.words)
        columns = ", ".join(
            f"{text.format(window)} AS {name.lower()}" for name, text in COLUMNS.items()
        )
        data = self.script.slice(table.data)
        has_alias = _alias(words, table) is not None
        named = "" if has_alias or len(table.data) > 1 else f" AS {data}"
        self._put(
            at.start,
            words[table.last].end,
            f"(SELECT *, {columns} FROM {data}){named}",  # noqa: S608  the user's own text
        )

    def _qualifier(self, table: WindowTable) -> str:
        alias = _alias(self.script.words, table)
        return (alias or table.data[0]).text.lower()

    def _item(self, item: Item, name: str) -> None:
        words = item.words
        column = window_column(words)
        if column is None:
            self._references(words, name)
            return
        alias = "" if item.alias is not None else f" AS {column.lower()}"
        said = f"{COLUMNS[column].format(name)}{alias}"
        self._put(words[0].start, words[-1].end, said)

    def _references(self, words: Words, name: str) -> None:
        """The columns inside of an expression."""
        for index, word in enumerate(words):
            if word.upper in COLUMNS and sign(words, index + 1) != "(":
                is_qualified = sign(words, index - 1) == "."
                if not is_qualified and not is_reference(words, index):
                    continue
                first = words[index - 2] if is_qualified else word
                self._put(first.start, word.end, f"({COLUMNS[word.upper].format(name)})")

    def _calls(self, groups: Words) -> None:
        """TUMBLE_START(ts, size) and the like, outside of brackets of subqueries."""
        words = self.script.words
        windows = [each for each in by_comma(groups) if groups and is_window(each)]
        inside = -1
        for index, word in enumerate(words):
            if index <= inside or sign(words, index + 1) != "(":
                if sign(words, index) == "(" and sign(words, index + 1) in ("SELECT", "WITH"):
                    inside = max(inside, closing(words, index))
                continue
            if word.upper in _CALLS:
                self._call(words, index, windows)

    def _call(self, words: Words, index: int, windows: list[Words]) -> None:
        kind, text = _CALLS[words[index].upper]
        close = closing(words, index + 1)
        names = ("SESSION", "SESSION_WINDOW") if kind == "SESSION" else (kind,)
        asked = [_plain(each) for each in by_comma(words[index + 2 : close])]
        for window in windows:
            if window[0].upper in names and [_plain(w) for w in arguments(window)] == asked:
                name = "session_window" if window[0].upper in SESSIONS else "window"
                said = text.format(name)
                is_item = sign(words, close + 1) in ("AS", ",", "FROM", ".")
                self._put(
                    words[index].start,
                    words[close].end,
                    said if is_item or " " not in said else f"({said})",
                )
                return
        message = f"{words[index].text}() of a window that GROUP BY does not have"
        advice = f"Write GROUP BY {kind}(...) with the same arguments"
        raise self.script.bad(message, words[index], advice)

    def _put(self, start: int, end: int, text: str) -> None:
        """Lines stay: what is put has as many as what it stands for."""
        lines = self.script.text.count("\n", start, end) - text.count("\n")
        self._edits.append((start, end, text + "\n" * max(lines, 0)))

    def _edited(self) -> str:
        text = self.script.text
        for start, end, said in sorted(self._edits, reverse=True):
            text = f"{text[:start]}{said}{text[end:]}"
        return text


def _plain(words: Words) -> str:
    """An argument in one spelling, without its table."""
    bare = words[2:] if sign(words, 1) == "." else words
    return Names("", ()).spelled(bare)


def _alias(words: Words, table: WindowTable) -> Word | None:
    at = table.last + (2 if sign(words, table.last + 1) == "AS" else 1)
    if at >= len(words) or words[at].depth != words[0].depth or not words[at].is_name:
        return None
    ends = ("WHERE", "GROUP BY", "HAVING", "QUALIFY", "JOIN", "LATERAL", "STATE", "ORDER BY")
    joins = ("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "ASOF", "ON", "USING")
    return None if words[at].upper in (*ends, *joins) else words[at]


def _alone(words: Words, table: WindowTable, read: Words) -> Words:
    """The words of FROM, if they are this table and its alias."""
    alias = _alias(words, table)
    end = table.last + 1 if alias is None else words.index(alias) + 1
    return read if words[end - 1] is read[-1] else ()
