"""Calls of aggregates, as partial columns and an expression over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from lamina.pipeline.aggregate_changes import COUNT_ROWS, OWN_DISTINCT, of_distinct, over_changes
from lamina.pipeline.aggregate_lists import limit_around
from lamina.pipeline.aggregate_model import Asked, Own, Part, Refusal
from lamina.pipeline.aggregate_percentiles import WITHIN_GROUP
from lamina.pipeline.aggregate_python import own_over_changes, row_of
from lamina.pipeline.aggregate_texts import JOINED, PAIR, TEXT
from lamina.pipeline.aggregates import AGGREGATES, REFUSED, of_one_row
from lamina.pipeline.expressions import (
    Words,
    after_dot,
    by_comma,
    calls,
    closing,
    is_reference,
    sign,
)
from lamina.pipeline.key_types import refused_value
from lamina.pipeline.keys import Names
from lamina.pipeline.model import DeclaredFunction
from lamina.pipeline.tokens import Script, Word
from lamina.state.merge import Merge


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """Arguments of which each value of a group counts once: (DISTINCT a, b) FILTER (WHERE c)."""

    arguments: tuple[str, ...]
    types: tuple[str, ...]  # those of the same types are kept together
    kept: tuple[str, ...]  # what a row must meet: nulls do not count
    number: int  # what tells them from others that are kept with them: made of what they mean
    at: int  # where they stand

    @property
    def columns(self) -> tuple[str, ...]:
        """What they are called in the block that keeps them."""
        return tuple(f"d{number}" for number in range(len(self.arguments)))

    @property
    def row(self) -> str:
        """A row of that block; null where there is nothing to count."""
        fields = [f"'{WHICH}', {self.number}"]
        fields += [f"'{n}', {a}" for n, a in zip(self.columns, self.arguments, strict=True)]
        return f"CASE WHEN {' AND '.join(self.kept)} THEN named_struct({', '.join(fields)}) END"


@dataclass(frozen=True, slots=True)
class PartialColumn:
    name: str  # in the state
    sql: str  # what Spark computes
    meaning: str  # the same in one spelling, for comparing and for people
    of_row: str | None  # the same of one row, where that can be said
    distinct: DistinctValues | None = None  # what it is computed of, if not of the rows


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call and its FILTER, as they were written and in one spelling."""

    arguments: tuple[str, ...]
    spelled: tuple[str, ...]
    condition: str = ""
    spelled_condition: str = ""
    distinct: DistinctValues | None = None

    def sql(self, template: str) -> str:
        if self.distinct is not None:
            kept = f" FILTER (WHERE {WHICH} = {self.distinct.number})"
            return _call(template, self.distinct.columns, kept)
        kept = f" FILTER (WHERE {self.condition})" if self.condition else ""
        return _call(template, self.arguments, kept)

    def meaning(self, template: str) -> str:
        kept = f" filter (where {self.spelled_condition})" if self.condition else ""
        said = _call(template, self.spelled, kept)
        return f"{said} of distinct {', '.join(self.spelled)}" if self.distinct else said

    def of_row(self, template: str, own: str = "") -> str | None:
        if self.distinct:
            return None
        if not own:
            return of_one_row(template, self.arguments, self.condition)
        text = own.format(*self.arguments)
        return f"CASE WHEN {self.condition} THEN {text} END" if self.condition else text


def _call(template: str, arguments: tuple[str, ...], kept: str) -> str:
    text = template.format(*arguments, all=", ".join(arguments), where=kept)
    return text if "{where}" in template else text + kept


WHICH = "which"
"""The column that tells apart the values of different DISTINCT aggregates."""


class AggregateCalls:
    """The partial columns that were needed so far; the same one twice is one column."""

    def __init__(
        self,
        script: Script,
        names: Names,
        type_of: Callable[[str], str],
        is_aggregate: Callable[[str], bool],
        *,
        has_window: bool = False,
        over_changes: bool = False,
        in_sessions: bool = False,
        own: Sequence[DeclaredFunction] = (),
    ) -> None:
        self._script = script
        self._names = names
        self._type_of = type_of
        self._own = {each.name.lower(): each for each in own}
        self._rows = {**AGGREGATES, **{name: row_of(each) for name, each in self._own.items()}}
        self._is_sparks = is_aggregate
        self._has_window = has_window or over_changes  # what is read has an end to its rows
        self._over_changes = over_changes
        self._in_sessions = in_sessions
        self._parts: dict[tuple[str, ...], tuple[Part, tuple[PartialColumn, ...]]] = {}
        self._distincts: dict[tuple[str, ...], DistinctValues] = {}

    def _is_aggregate(self, name: str) -> bool:
        return name in self._own or self._is_sparks(name)

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return tuple(column for _, columns in self._parts.values() for column in columns)

    @property
    def merges(self) -> tuple[Merge, ...]:
        return tuple(
            Merge(part.merge, tuple(column.name for column in columns), part.options)
            for part, columns in self._parts.values()
        )

    @property
    def own(self) -> tuple[tuple[str, Own], ...]:
        """The columns of the user's own aggregates."""
        return tuple(
            (columns[0].name, part.own)
            for part, columns in self._parts.values()
            if part.own is not None
        )

    @property
    def distincts(self) -> tuple[DistinctValues, ...]:
        return tuple(self._distincts.values())

    def first(self, words: Words) -> int | None:
        """Where the first aggregate is called, if one is."""
        found = (i for i, _ in calls(words) if self._is_aggregate(words[i].text.lower()))
        return next(found, None)

    def at(self, words: Words, index: int) -> tuple[str, int] | None:
        """The call at *index* as an expression over partial columns, and where it ends."""
        close = dict(calls(words)).get(index)
        if close is None or not self._is_aggregate(words[index].text.lower()):
            return None
        self._check(words, index, close)
        inner = words[index + 2 : close]
        is_distinct = inner[0].upper == "DISTINCT" and len(inner) > 1
        if is_distinct or (inner[0].upper == "ALL" and len(inner) > 1):
            inner = inner[1:]
        arguments, descending = by_comma(inner), False
        if words[index].text.lower() in WITHIN_GROUP:
            close, values, descending = self._within_group(words, index, close)
            arguments.insert(0, values)
        order: Words = ()
        is_joined = words[index].text.lower() in JOINED
        if is_joined and sign(words, close + 1) == "WITHIN":
            close, order, descending = self._within_group(words, index, close)
        between = "''"
        if is_joined and len(arguments) > 1:
            between = self._between(arguments.pop(), words[index])
        end, condition = _filter_after(words, close)
        end = self._nulls_after(words, index, end)
        call = self._call(arguments, condition)
        if is_joined:
            call = self._joined(words[index], call, order, is_distinct=is_distinct)
        is_distinct = is_distinct and words[index].text.lower() not in _SAME_IF_DISTINCT
        if is_distinct and not (self._over_changes or self._in_sessions):
            call = replace(call, distinct=self._distinct_values(words[index], call))
        limit, is_last = limit_around(words, index, end)
        asked = self._asked(call, limit, descending=descending or is_last)
        asked = replace(asked, between=between)
        return self._over_partials(words[index], call, asked, is_distinct=is_distinct), end

    def count_rows(self) -> str:
        """The column that counts the rows of a group; one that counts them for people will do."""
        (column,) = self._columns(COUNT_ROWS, _Call((), ()))
        return column

    def _within_group(self, words: Words, index: int, close: int) -> tuple[int, Words, bool]:
        """Where WITHIN GROUP (ORDER BY values) closes, the values, and whether they descend."""
        if [sign(words, close + i) for i in (1, 2, 3, 4)] != ["WITHIN", "GROUP", "(", "ORDER BY"]:
            name = words[index].text.lower()
            message = f"{name}() without WITHIN GROUP (ORDER BY ...)"
            raise self._script.bad(message, words[index], f"Write {name}(0.5) WITHIN GROUP (...)")
        end = closing(words, close + 3)
        values = words[close + 5 : end]
        direction = sign(values, len(values) - 1)
        if direction in ("ASC", "DESC"):
            values = values[:-1]
        return end, values, direction == "DESC"

    def _between(self, words: Words, word: Word) -> str:
        """The separator of string_agg()."""
        if any(is_reference(words, index) for index in range(len(words))):
            message = f"{word.text.lower()}() with a separator that is not a constant"
            raise self._script.bad(message, words[0], "Write a text in quotes")
        return self._script.slice(words)

    def _joined(self, word: Word, call: _Call, order: Words, *, is_distinct: bool) -> _Call:
        """string_agg(x): its values are texts, or texts with what they are ordered by."""
        if len(call.arguments) != 1:
            return call  # refused as of too many
        name, (value,), (said,) = word.text.lower(), call.arguments, call.spelled
        if self._type_of(f"({value})") == "binary":
            message = f"{name}() of type binary"
            raise self._script.bad(message, word, f"Write {name}(hex(x), ', ')")
        by = self._names.spelled(order) if order else ""
        if is_distinct and by not in ("", said):
            message = f"{name}(DISTINCT ...) ordered by something else than its values"
            raise self._script.bad(message, order[0], f"Order by {value}")
        template = PAIR if order and not is_distinct else TEXT
        texts = template.format(value, self._script.slice(order)), template.format(said, by)
        return replace(call, arguments=texts[:1], spelled=texts[1:])

    def _asked(self, call: _Call, limit: int | None, *, descending: bool) -> Asked:
        unfiltered = _Call(call.arguments, call.spelled)
        return Asked(
            lambda template: self._type_of(unfiltered.sql(template)),
            call.arguments,
            limit,
            descending,
            self._has_window,
        )

    def _nulls_after(self, words: Words, index: int, end: int) -> int:
        """Where a call ends with its IGNORE NULLS, which changes nothing that is known here."""
        if sign(words, end + 1) not in ("IGNORE", "RESPECT") or sign(words, end + 2) != "NULLS":
            return end
        name = words[index].text.lower()
        if name != "any_value":
            said = f"{name}() {words[end + 1].upper} NULLS"
            raise self._script.bad(f"{said} in a stream", words[end + 1], "Leave it out")
        return end + 2

    def _distinct_values(self, word: Word, call: _Call) -> DistinctValues:
        """Those of the same arguments and FILTER are kept once."""
        self._check_several(word, call, is_distinct=True)
        identity = (*call.spelled, call.spelled_condition)
        if identity not in self._distincts:
            kept = [f"({each}) IS NOT NULL" for each in call.arguments]
            number = crc32("\0".join(identity).encode()) >> 1  # an INT of Spark's
            if any(each.number == number for each in self._distincts.values()):
                message = "two DISTINCT aggregates cannot be told apart"
                raise self._script.bad(message, word, "Write one of them in other words")
            self._distincts[identity] = DistinctValues(
                call.arguments,
                tuple(self._type_of(each) for each in call.arguments),
                (*([f"({call.condition})"] if call.condition else []), *kept),
                number,
                word.start,
            )
        return self._distincts[identity]

    def _check_several(self, word: Word, call: _Call, *, is_distinct: bool) -> None:
        if is_distinct and len(call.arguments) > 1 and word.upper != "COUNT":
            name = word.text.lower()
            raise self._script.bad(
                f"{name}(DISTINCT ...) of several arguments",
                word,
                f"Write {name}(...) over FROM (SELECT DISTINCT ...)",
            )

    def _call(self, arguments: list[Words], condition: Words) -> _Call:
        texts = tuple(self._script.slice(each) for each in arguments)
        spelled = tuple(self._names.spelled(each) for each in arguments)
        if not condition:
            return _Call(texts, spelled)
        return _Call(texts, spelled, self._script.slice(condition), self._names.spelled(condition))

    def _over_partials(self, word: Word, call: _Call, asked: Asked, *, is_distinct: bool) -> str:
        name = word.text.lower()
        row = self._rows[name]
        if row.arguments is not None and len(call.arguments) != row.arguments:
            given = len(call.arguments)
            message = f"{name}() takes {row.arguments} arguments; it was given {given}"
            raise self._script.bad(message, word, "See the functions of Spark SQL")
        known = row.made(asked)
        where = "a stream"
        if self._over_changes and not isinstance(known, Refusal):
            self._check_several(word, call, is_distinct=is_distinct)
            known = (
                own_over_changes(self._own[name], asked, distinct=is_distinct)
                if name in self._own
                else over_changes(name, known, asked, distinct=is_distinct)
            )
            where = "a stream over changes"
        elif self._in_sessions and is_distinct and not isinstance(known, Refusal):
            self._check_several(word, call, is_distinct=True)
            known = OWN_DISTINCT if name in self._own else of_distinct(name, known, asked)
            where = "a session"
        if isinstance(known, Refusal):
            raise self._script.bad(f"{name}() in {where}: {known.reason}", word, known.advice)
        for part in known.parts:
            kind = asked.type_of(part.columns[-1])
            reason = refused_value(part.merge, kind)
            if reason is not None:
                advice = "Keep numbers, texts or times: CAST, or take a field of it"
                raise self._script.bad(f"{name}() of type {kind}: {reason}", word, advice)
        columns = [column for part in known.parts for column in self._columns(part, call)]
        return f"({known.final.format(*columns)})"

    def _columns(self, part: Part, call: _Call) -> list[str]:
        said = (part.said,) if part.said else part.columns
        identity = (part.merge, *(call.meaning(template) for template in said))
        if identity not in self._parts:
            first = len(self.columns)
            made = (
                PartialColumn(
                    f"p{first + i}",
                    call.sql(template),
                    meaning,
                    call.of_row(template, part.of_row),
                    call.distinct,
                )
                for i, (template, meaning) in enumerate(
                    zip(part.columns, identity[1:], strict=True)
                )
            )
            self._parts[identity] = part, tuple(made)
        return [column.name for column in self._parts[identity][1]]

    def _check(self, words: Words, index: int, close: int) -> None:
        call, inner = words[index], words[index + 2 : close]
        name = call.text.lower()
        if after_dot(words, index):
            raise self._script.bad(f"{name}() with a schema before it", call, "Leave it out")
        if name in REFUSED:
            known = REFUSED[name]
            raise self._script.bad(f"{name}() in a stream: {known.reason}", call, known.advice)
        if name not in self._rows:
            raise self._script.bad(
                f"{name}() cannot be kept as state yet",
                call,
                f"There are {', '.join(sorted(self._rows))}, and aggregates of your own in Python: "
                "CREATE AGGREGATE FUNCTION",
            )
        if not inner:
            raise self._script.bad(f"{name}() has no argument", call, f"Write {name}(x)")
        if inner[0].upper == "DISTINCT" and sign(inner, 1) == "*":
            raise self._script.bad(
                f"{name}(DISTINCT *): name the columns", inner[0], "Rows with a null do not count"
            )
        nested = self.first(inner)
        if nested is not None:
            advice = "Compute the inner one in a subquery: FROM (SELECT ... GROUP BY ...)"
            raise self._script.bad("an aggregate inside an aggregate", inner[nested], advice)


_SAME_IF_DISTINCT = ("min", "max", "bool_and", "bool_or", "every", "some", "min_by", "max_by")
"""Aggregates that do not care how often a value comes."""


def _filter_after(words: Words, close: int) -> tuple[int, Words]:
    """Where a call with its FILTER ends, and the condition."""
    if [sign(words, close + step) for step in (1, 2, 3)] != ["FILTER", "(", "WHERE"]:
        return close, ()
    depth = words[close].depth
    ends = (i for i in range(close + 3, len(words)) if words[i].depth == depth)
    end = next(ends)
    return end, words[close + 4 : end]
