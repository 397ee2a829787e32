"""SELECT -> (partial, merge, final): what Spark computes, what is kept, what people see.

partial   SELECT key AS k0, sum(x) AS p0 ... FROM input WHERE ... GROUP BY key: of one epoch's rows
merge     old p0 and new p0 become p0 (lamina.state.merge), on the owner of the key
final     SELECT k0 AS symbol, p0 / p1 AS mean ... FROM state WHERE having

All texts are cut from the user's own and put together; nothing is generated from a syntax tree. A
window key is two columns of the state, its start and its end: by the end it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from lamina.pipeline.aggregate_calls import WHICH, AggregateCalls, DistinctValues
from lamina.pipeline.compile_rows import (
    KeptRows,
    after_table,
    as_key,
    named_table,
    output_name,
)
from lamina.pipeline.expressions import Words
from lamina.pipeline.finals import Finals
from lamina.pipeline.key_sets import MEANING, KeySets
from lamina.pipeline.keys import Names, read_keys
from lamina.pipeline.outputs import key_choices, key_outputs, plain_columns
from lamina.pipeline.plans import FLOOR, Aggregation, DistinctPart, Stateless
from lamina.pipeline.select import Select, quoted
from lamina.pipeline.session_rows import late_sessions
from lamina.pipeline.windows import (
    WINDOW,
    arguments,
    check_session,
    cumulation,
    is_cumulative,
    slide_text,
    window_meaning,
    window_text,
)


def compile_select(
    select: Select,
    *,
    columns: Collection[str],
    type_of: Callable[[str], str],
    is_aggregate: Callable[[str], bool],
    times: Collection[str] = (),
    top: int | None = None,
    over_changes: bool = False,
) -> Stateless | Aggregation:
    """The plan of a stream over an input with these *columns*; *times* are event times, if it has.

    *top* says how many ranked rows are kept, if the SELECT does not; *over_changes* whether rows
    of the input may be taken back.

    *type_of* gives the type of an expression over the input, *is_aggregate* whether a function is
    one, by its name in lower case: both are Spark's to say.
    """
    compiler = _Compiler(select, columns, type_of, is_aggregate, over_changes=over_changes)
    if select.is_whole:
        return compiler.stateless()
    groups = bool(select.keys) or compiler.has_aggregates()
    if select.ranked is not None:
        limit = top if select.ranked.limit is None else select.ranked.limit
        return compiler.rows().top(select.ranked, limit)
    if select.distinct is not None:
        if groups:
            raise select.script.bad(
                "DISTINCT with GROUP BY or aggregates",
                select.distinct,
                "Groups are distinct already; else write SELECT DISTINCT ... FROM (SELECT ...)",
            )
        return compiler.rows().distinct(times)
    return compiler.aggregation() if groups else compiler.stateless()


class _Compiler:
    def __init__(
        self,
        select: Select,
        columns: Collection[str],
        type_of: Callable[[str], str],
        is_aggregate: Callable[[str], bool],
        *,
        over_changes: bool,
    ) -> None:
        self._select = select
        self._script = select.script
        self._given = columns
        self._columns = {name.lower() for name in columns}
        self._is_aggregate = is_aggregate
        self._type_of = type_of
        self._names = Names(select.qualifier, self._columns)
        self._keys = read_keys(select, self._columns)
        self._window = self._find_window()
        self._has_laterals = bool(select.laterals.text)
        if self._is_cumulative():
            made = select.laterals.text + cumulation(select.script, self._window_words())
            self._select = replace(select, laterals=replace(select.laterals, text=made))
        self._sets = KeySets(select, self._keys, self._window)
        self._aggregates = AggregateCalls(
            select.script,
            self._names,
            type_of,
            is_aggregate,
            has_window=self._window is not None,
            over_changes=over_changes,
            in_sessions=self._is_session,
            own=select.aggregates,
        )
        self._over_changes = over_changes

    def has_aggregates(self) -> bool:
        """Whether anything in the SELECT list or HAVING is an aggregate."""
        texts = [*(item.words for item in self._select.items), self._select.having]
        return any(self._aggregates.first(words) is not None for words in texts)

    def rows(self) -> KeptRows:
        changes = self._over_changes
        return KeptRows(self._select, self._given, self._names, self._type_of, changes)

    def stateless(self) -> Stateless:
        select = self._select
        if select.having and not select.keys:
            raise self._script.bad(
                "HAVING without GROUP BY or aggregates", select.having[0], "Use WHERE"
            )
        text = self._script.text
        after = f"{named_table(select)}{text[select.from_end :]}"
        return Stateless(text[: select.table.start], after, moves_rows=select.is_whole)

    def aggregation(self) -> Aggregation:
        select = self._select
        self._check_keys()
        names = [output_name(select, item, index) for index, item in enumerate(select.items)]
        self._check_names(names)
        outputs, having = self._finals()
        counted = self._aggregates.count_rows() if self._over_changes else None
        self._sets.check(self._names, has_distincts=bool(self._aggregates.distincts))
        if self._is_session:
            check_session(select, self._window_words(), over_changes=self._over_changes)
        choices = self._key_choices(outputs, names)
        return Aggregation(
            keys=self._group_keys(),
            time=self._time(),
            merges=self._aggregates.merges,
            outputs=tuple(names),
            _partial=self._partial_text(),
            _final=(tuple(outputs), self._state_view(), having),
            columns=None if having else self._plain_columns(outputs),
            meanings=(*self._key_meanings(), *(p.meaning for p in self._aggregates.columns)),
            key_outputs=key_outputs(choices, names),
            key_choices=choices,
            placed=tuple(
                (select.text(key.words), written[0].start)
                for key, written in zip(self._keys, select.keys, strict=True)
                if not key.is_window
            ),
            of_rows=self._row_texts(),
            distincts=tuple(self._distinct_parts()),
            counts_where=self._sets.counts_where,
            takes_back=self._over_changes,
            live=counted if self._keys else None,
            late=self._late(),
            session=self._session_columns(),
            own=self._aggregates.own,
        )

    def _late(self) -> Stateless | None:
        """Rows with a window that has closed, each once: by the first of its windows to close."""
        select = self._select
        if self._window is None or self._has_laterals:
            return None
        words = self._window_words()
        if self._is_session:
            keys, groups = self._key_texts(range(len(self._keys))), self._partial_text()[3]
            return late_sessions(select, self._given, keys[self._window], groups, words)
        condition = f"unix_micros({WINDOW}.end) < {FLOOR}"
        if (slide := slide_text(self._script, words)) is not None:
            time = select.text(arguments(words)[0])
            condition += f" AND {WINDOW}.end - INTERVAL {slide} <= ({time})"
        columns = ", ".join(map(quoted, self._given))
        windows = f"*, {window_text(self._script, words)} AS {WINDOW}"
        if self._is_cumulative():
            windows = "*"
        named = quoted((select.alias or select.table).text)
        return Stateless(
            f"SELECT {columns} FROM (SELECT {windows} FROM ",  # noqa: S608  the user's own text
            f"{after_table(select)}) AS {named} WHERE {condition}",
        )

    def _time(self) -> str | None:
        return None if self._window is None else f"k{self._window}_end"

    def _distinct_parts(self) -> Iterator[DistinctPart]:
        """The values of DISTINCT aggregates: those of the same types are kept in one block."""
        every = self._aggregates.distincts
        for types in dict.fromkeys(each.types for each in every):
            yield self._distinct_part(types, [each for each in every if each.types == types])

    def _distinct_part(
        self, types: tuple[str, ...], together: Sequence[DistinctValues]
    ) -> DistinctPart:
        """The block that keeps the values of each group, and what is computed of its new rows."""
        columns = (WHICH, *together[0].columns)
        keys = (*self._state_keys(), *columns)
        listed = ", ".join(keys)
        rows = f"inline(array({', '.join(each.row for each in together)}))"
        values = Aggregation(
            keys=keys,
            time=self._time(),
            merges=(),
            outputs=keys,
            _partial=(listed, listed, "", f" WHERE {WHICH} IS NOT NULL GROUP BY {listed}"),
            _final=(keys, listed, ""),
            columns=keys,
            meanings=(*self._key_meanings(), *(f"{each} of distinct values" for each in columns)),
            key_outputs=keys,
            placed=tuple((text, each.at) for each in together for text in each.arguments),
            is_distinct=True,
            spread=(
                ", ".join([*self._named_keys(), f"{rows} AS ({', '.join(columns)})"]),
                after_table(self._select),
            ),
        )
        parts = [
            f"{part.sql if part.distinct in together else 'NULL'} AS {part.name}"
            for part in self._aggregates.columns
        ]
        name = f"distinct {', '.join(types)}"
        return DistinctPart(name, values, ", ".join([*self._state_keys(), *parts]))

    def _key_choices(
        self, outputs: list[str], names: list[str]
    ) -> tuple[frozenset[str], ...] | None:
        count = len(self._keys) + len(self._sets.columns)
        by_end = self._is_cumulative() or self._is_session
        return key_choices(outputs, names, count, by_end=by_end)

    def _plain_columns(self, outputs: list[str]) -> tuple[str, ...] | None:
        known = {*self._state_keys(), *(part.name for part in self._aggregates.columns)}
        return plain_columns(outputs, known)

    def _finals(self) -> tuple[list[str], str]:
        """Every item and HAVING over state columns; they fill the list of partials."""
        select = self._select
        finals = Finals(
            self._script,
            self._names,
            self._keys,
            self._window,
            self._aggregates,
            has_sets=bool(self._sets),
        )
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
            advice = "Group by the shorter one in a subquery, and by the longer one over its rows"
            at = self._select.keys[found[1]][0]
            raise self._script.bad("a stream has one window", at, advice)
        return found[0] if found else None

    def _window_words(self) -> Words:
        assert self._window is not None
        return self._keys[self._window].words

    def _is_cumulative(self) -> bool:
        return self._window is not None and is_cumulative(self._window_words())

    @property
    def _is_session(self) -> bool:
        return self._window is not None and self._keys[self._window].is_session

    def _session_columns(self) -> tuple[str, str] | None:
        return (f"k{self._window}_start", f"k{self._window}_end") if self._is_session else None

    def _check_keys(self) -> None:
        for key, written in zip(self._keys, self._select.keys, strict=True):
            index = self._aggregates.first(key.words)
            if index is not None:
                advice = "Compute it in a subquery, and group by its name"
                raise self._script.bad("a key cannot be an aggregate", written[0], advice)
            if key.words[-1].upper == "*":
                raise self._script.bad("a key cannot be *", written[0], "Name the columns")

    def _group_keys(self) -> tuple[str, ...]:
        """What the state is kept by: of sessions the other keys, because their bounds change."""
        bounds = self._session_columns() or ()
        return tuple(key for key in self._state_keys() if key not in bounds)

    def _state_keys(self) -> tuple[str, ...]:
        names: list[str] = []
        for index in range(len(self._keys)):
            if index == self._window:
                names += [f"k{index}_start", f"k{index}_end"]
            else:
                names.append(f"k{index}")
        return (*names, *self._sets.columns)

    # texts

    def _partial_text(self) -> tuple[str, str, str, str]:
        names = self._state_keys()
        keys = self._named_keys()
        # Without a key, rows are grouped by no more than that there is an aggregate.
        nothing = "NULL" if self._keys else "any_value(NULL)"
        parts = [
            f"{nothing if part.distinct else part.sql} AS {part.name}"
            for part in self._aggregates.columns
        ]
        outer = [*names, *(part.name for part in self._aggregates.columns)]
        group = self._sets.groups(lambda places: [as_key(each) for each in self._key_texts(places)])
        return ", ".join(outer), ", ".join([*keys, *parts]), after_table(self._select), group

    def _named_keys(self) -> list[str]:
        texts = [*self._key_texts(), *self._sets.texts]
        pairs = zip(texts, self._state_keys(), strict=True)
        return [f"{text} AS {name}" for text, name in pairs]

    def _row_texts(self) -> str | None:
        parts = [f"{part.of_row} AS {part.name}" for part in self._aggregates.columns]
        if not self._group_keys() or self._sets or self._over_changes:
            return None
        # Spark makes windows of rows once for all, and sessions by sorting: the task sorts anyway.
        if self._window is not None and self._is_session == bool(self._aggregates.own):
            return None
        if not parts or any(part.of_row is None for part in self._aggregates.columns):
            return None
        return ", ".join([*self._named_keys(), *parts])

    def _key_texts(self, places: Sequence[int] | None = None) -> list[str]:
        """What Spark groups by: the columns of the state, so that rows are placed once.

        Grouped by the window itself, they would be placed by it, and then again by its columns.
        Sessions are not placed by their bounds: they are grouped by as they are.
        """
        texts: list[str] = []
        for index in range(len(self._keys)) if places is None else places:
            text = window_text(self._script, self._keys[index].words)
            if places is not None and self._is_session:
                texts.append(text)
                continue
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
        return [*meanings, *(MEANING for _ in self._sets.columns)]

    def _state_view(self) -> str:
        columns = []
        for index in range(len(self._keys)):
            pair = f"named_struct('start', k{index}_start, 'end', k{index}_end) AS k{index}"
            columns.append(pair if index == self._window else f"k{index}")
        columns += self._sets.columns
        return ", ".join([*columns, *(part.name for part in self._aggregates.columns)])

    # names

    def _check_names(self, names: list[str]) -> None:
        for index, name in enumerate(names):
            if name.lower() in (other.lower() for other in names[:index]):
                item = self._select.items[index]
                raise self._script.bad(f"two columns are called {name!r}", item.words[0], "Use AS")
