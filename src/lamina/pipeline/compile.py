"""SELECT -> (partial, merge, final): what Spark computes, what is kept, what people see.

partial   SELECT key AS k0, sum(x) AS p0 ... FROM input WHERE ... GROUP BY key: of one epoch's rows
merge     old p0 and new p0 become p0 (lamina.state.merge), on the owner of the key
final     SELECT k0 AS symbol, p0 / p1 AS mean ... FROM state WHERE having

All texts are cut from the user's own and put together; nothing is generated from a syntax tree. A
window key is two columns of the state, its start and its end: by the end it expires.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from lamina.pipeline.aggregate_calls import AggregateCalls
from lamina.pipeline.expressions import Words, is_reference, sign
from lamina.pipeline.finals import Finals
from lamina.pipeline.keys import Names, read_keys
from lamina.pipeline.select import Item, Select
from lamina.pipeline.windows import window_meaning, window_text
from lamina.state.merge import Merge

_PLAIN = re.compile(r"\(*\s*([kp]\d+)(?:\.(start|end))?\s*\)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stateless:
    """A stream that keeps nothing: its SELECT over one epoch's rows."""

    table: str
    before: str  # the text up to the table, and after it
    after: str

    def sql(self, view: str) -> str:
        return f"{self.before}{view}{self.after}"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A stream with keyed state."""

    table: str
    keys: tuple[str, ...]  # columns of the state
    window: int | None  # which key of the GROUP BY is a window
    merges: tuple[Merge, ...]
    outputs: tuple[str, ...]
    _partial: tuple[str, str, str, str] = field(repr=False)
    """Columns of the state, their expressions, what follows the input, the groups."""
    _final: tuple[tuple[str, ...], str, str] = field(repr=False)
    """The expressions of the outputs, the columns of the state, HAVING."""
    columns: tuple[str, ...] | None = None
    """The columns of the state that the outputs are, if they are nothing but that, and all rows."""
    meanings: tuple[str, ...] = ()
    """What each column of the state holds, keys first, in one spelling."""
    key_outputs: tuple[str, ...] | None = None
    """The outputs that tell every group from all others; None if the outputs do not."""
    of_rows: str | None = field(default=None, repr=False)
    """Expressions of the state's columns for a single row, with a FROM to come; None where partials
    of one row, merged, are not partials of all of them, or where a window is a key."""

    def partial(self, view: str, rows: str = "") -> str:
        """Partials of the rows of *view*; if *rows* has a name, with a column that counts them."""
        columns, expressions, rest, groups = self._partial
        if rows:
            columns, expressions = f"{columns}, {rows}", f"{expressions}, count(1) AS {rows}"
        return f"SELECT {columns} FROM (SELECT {expressions} FROM {view}{rest}{groups})"

    def rows(self, view: str) -> str:
        """The rows of *view*, each with the columns of the state, as if it were all there is."""
        assert self.of_rows is not None
        return f"SELECT {self.of_rows} FROM {view}{self._partial[2]}"

    def final(self, view: str, carry: str = "") -> str:
        """Rows of the state as people see them.

        A row of which the column *carry* is not null always comes through, and the column with it.
        It is no row of the state: nothing is computed of it, because that might fail.
        """
        expressions, columns, having = self._final
        if carry:
            columns = f"{columns}, {carry}"
            expressions = tuple(f"CASE WHEN {carry} IS NULL THEN {e} END" for e in expressions)
            having = f"CASE WHEN {carry} IS NULL THEN {having} ELSE true END" if having else ""
        outputs = [f"{e} AS {_quoted(n)}" for e, n in zip(expressions, self.outputs, strict=True)]
        listed = ", ".join([*outputs, carry] if carry else outputs)
        where = f" WHERE {having}" if having else ""
        return f"SELECT {listed} FROM (SELECT {columns} FROM {view}){where}"

    @property
    def time(self) -> str | None:
        """The column of the state that a window expires by: its end."""
        return None if self.window is None else f"k{self.window}_end"


def compile_select(
    select: Select,
    *,
    columns: Collection[str],
    type_of: Callable[[str], str],
    is_aggregate: Callable[[str], bool],
) -> Stateless | Aggregation:
    """The plan of a stream over an input with these *columns*.

    *type_of* gives the type of an expression over the input, *is_aggregate* whether a function is
    one, by its name in lower case: both are Spark's to say.
    """
    compiler = _Compiler(select, {name.lower() for name in columns}, type_of, is_aggregate)
    return (
        compiler.aggregation() if select.keys or compiler.has_aggregates() else compiler.stateless()
    )


class _Compiler:
    def __init__(
        self,
        select: Select,
        columns: Collection[str],
        type_of: Callable[[str], str],
        is_aggregate: Callable[[str], bool],
    ) -> None:
        self._select = select
        self._script = select.script
        self._columns = columns
        self._is_aggregate = is_aggregate
        self._names = Names((select.alias or select.table).text.lower(), columns)
        self._aggregates = AggregateCalls(select.script, self._names, type_of, is_aggregate)
        self._keys = read_keys(select, columns)
        self._window = self._find_window()

    def has_aggregates(self) -> bool:
        """Whether anything in the SELECT list or HAVING is an aggregate."""
        texts = [*(item.words for item in self._select.items), self._select.having]
        return any(self._aggregates.first(words) is not None for words in texts)

    def stateless(self) -> Stateless:
        select = self._select
        if select.having:
            raise self._script.bad(
                "HAVING without GROUP BY or aggregates", select.having[0], "Use WHERE"
            )
        text = self._script.text
        after = text[select.table.end :]
        if select.alias is None:
            after = f" AS {_quoted(select.table.text)}{after}"
        return Stateless(select.table.text, text[: select.table.start], after)

    def aggregation(self) -> Aggregation:
        select = self._select
        self._check_keys()
        names = [self._name(item, index) for index, item in enumerate(select.items)]
        self._check_names(names)
        outputs, having = self._finals()
        return Aggregation(
            table=select.table.text,
            keys=self._state_keys(),
            window=self._window,
            merges=self._aggregates.merges,
            outputs=tuple(names),
            _partial=self._partial_text(),
            _final=(tuple(outputs), self._state_view(), having),
            columns=None if having else self._plain_columns(outputs),
            meanings=(*self._key_meanings(), *(p.meaning for p in self._aggregates.columns)),
            key_outputs=self._key_outputs(outputs, names),
            of_rows=self._row_texts(),
        )

    def _key_outputs(self, outputs: list[str], names: list[str]) -> tuple[str, ...] | None:
        """Outputs that are keys; of a window its start or its end says which one it is."""
        found: dict[str, str] = {}
        for text, name in zip(outputs, names, strict=True):
            plain = _PLAIN.fullmatch(text)
            if plain is not None and plain[1].lower().startswith("k"):
                found[name] = plain[1].lower()
        missing = {f"k{index}" for index in range(len(self._keys))} - set(found.values())
        return None if missing else tuple(found)

    def _plain_columns(self, outputs: list[str]) -> tuple[str, ...] | None:
        """Outputs that are columns of the state, by their names there; None if one is more."""
        known = {*self._state_keys(), *(part.name for part in self._aggregates.columns)}
        found = [_PLAIN.fullmatch(text) for text in outputs]
        names = ["_".join(filter(None, each.groups())).lower() if each else "" for each in found]
        return tuple(names) if known.issuperset(names) else None

    def _finals(self) -> tuple[list[str], str]:
        """Every item and HAVING over state columns; they fill the list of partials."""
        select = self._select
        finals = Finals(self._script, self._names, self._keys, self._window, self._aggregates)
        outputs: list[str] = []
        before: dict[str, Words] = {}
        for item in select.items:
            # A column of the input goes before the name of another item, except in HAVING.
            known = {name: w for name, w in before.items() if name not in self._columns}
            outputs.append(finals.text(item.words, known))
            if item.alias is not None:
                before[item.alias.lower()] = item.words
        return outputs, finals.text(select.having, before) if select.having else ""

    # keys

    def _find_window(self) -> int | None:
        found = [i for i, key in enumerate(self._keys) if key.is_window]
        if len(found) > 1:
            raise self._script.bad("a stream has one window", self._select.keys[found[1]][0])
        return found[0] if found else None

    def _check_keys(self) -> None:
        for key, written in zip(self._keys, self._select.keys, strict=True):
            index = self._aggregates.first(key.words)
            if index is not None:
                raise self._script.bad("a key cannot be an aggregate", written[0])
            if key.words[-1].upper == "*":
                raise self._script.bad("a key cannot be *: name the columns", written[0])

    def _state_keys(self) -> tuple[str, ...]:
        names: list[str] = []
        for index in range(len(self._keys)):
            if index == self._window:
                names += [f"k{index}_start", f"k{index}_end"]
            else:
                names.append(f"k{index}")
        return tuple(names)

    # texts

    def _partial_text(self) -> tuple[str, str, str, str]:
        select = self._select
        texts = self._key_texts()
        names = self._state_keys()
        keys = self._named_keys()
        parts = [f"{part.sql} AS {part.name}" for part in self._aggregates.columns]
        outer = [*names, *(part.name for part in self._aggregates.columns)]
        where = f" WHERE {select.text(select.where)}" if select.where else ""
        group = f" GROUP BY {', '.join(map(_as_key, texts))}" if texts else ""
        alias = _quoted((select.alias or select.table).text)
        return ", ".join(outer), ", ".join([*keys, *parts]), f" AS {alias}{where}", group

    def _named_keys(self) -> list[str]:
        pairs = zip(self._key_texts(), self._state_keys(), strict=True)
        return [f"{text} AS {name}" for text, name in pairs]

    def _row_texts(self) -> str | None:
        parts = [f"{part.of_row} AS {part.name}" for part in self._aggregates.columns]
        if not self._keys or self._window is not None:
            return None
        if not parts or any(part.of_row is None for part in self._aggregates.columns):
            return None
        return ", ".join([*self._named_keys(), *parts])

    def _key_texts(self) -> list[str]:
        """What Spark groups by: the columns of the state, so that rows are placed once.

        Grouped by the window itself, they would be placed by it, and then again by its columns.
        """
        texts: list[str] = []
        for index, key in enumerate(self._keys):
            text = window_text(self._script, key.words)
            texts += [f"{text}.start", f"{text}.end"] if index == self._window else [text]
        return texts

    def _key_meanings(self) -> list[str]:
        meanings: list[str] = []
        for index, key in enumerate(self._keys):
            if index == self._window:
                window = window_meaning(self._names, key.words)
                meanings += [f"{window}.start", f"{window}.end"]
            else:
                meanings.append(self._names.spelled(key.words))
        return meanings

    def _state_view(self) -> str:
        columns = []
        for index in range(len(self._keys)):
            pair = f"named_struct('start', k{index}_start, 'end', k{index}_end) AS k{index}"
            columns.append(pair if index == self._window else f"k{index}")
        return ", ".join([*columns, *(part.name for part in self._aggregates.columns)])

    # names

    def _check_names(self, names: list[str]) -> None:
        for index, name in enumerate(names):
            if name.lower() in (other.lower() for other in names[:index]):
                item = self._select.items[index]
                raise self._script.bad(f"two columns are called {name!r}", item.words[0], "Use AS")

    def _name(self, item: Item, index: int) -> str:
        """The name of an output column: as given, or of the column that it is."""
        if item.alias is not None:
            return item.alias
        words = item.words
        if words[0].upper == "*" or (words[-1].upper == "*" and sign(words, len(words) - 2) == "."):
            raise self._script.bad("* in a stream with GROUP BY: name the columns", words[-1])
        path = words[::2]
        dots = all(word.upper == "." for word in words[1::2])
        if (
            dots
            and len(words) % 2
            and all(word.is_name for word in path)
            and is_reference(words, 0)
        ):
            return words[-1].text
        raise self._script.bad(f"column {index + 1} has no name", words[0], "Use AS")


def _as_key(text: str) -> str:
    """A key in GROUP BY, where a bare number would be the place of an item."""
    return f"({text})" if text.isdecimal() else text


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
