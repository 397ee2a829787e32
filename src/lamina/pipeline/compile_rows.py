"""Streams that keep rows: SELECT DISTINCT, and the first rows of each key (ranks.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from lamina.pipeline.aggregate_changes import bag_of, first_rows
from lamina.pipeline.aggregate_lists import unsorted
from lamina.pipeline.expressions import is_reference, sign
from lamina.pipeline.keys import Names
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.rank_order import order_fields, said_order
from lamina.pipeline.ranks import Ranked
from lamina.pipeline.select import Item, Select, quoted
from lamina.state.merge import Merge

_STATE_KEY = re.compile(r"k\d+")


@dataclass(frozen=True, slots=True)
class ListedColumn:
    """A column of the SELECT list, or one that `*` stands for."""

    text: str
    name: str
    meaning: str
    at: int  # where it stands
    column: str | None  # of the input, if it is no more than that
    is_rank: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    """How the rows of a key are kept: what Spark computes, and the list that it shows again."""

    merges: tuple[Merge, ...]
    partials: tuple[str, ...]
    rows: str
    meanings: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return [column for merge in self.merges for column in merge.columns]


_LIVE = "p1"
"""The column that counts the rows of a key, of which some may be taken back."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """A SELECT over an input with these *columns*; Spark is asked for types."""

    select: Select
    columns: Collection[str]
    names: Names
    type_of: Callable[[str], str]
    over_changes: bool = False

    def distinct(self, times: Collection[str]) -> Aggregation:
        """Every column is a key, and there is nothing else: a row is new, or it is known.

        If one of them is the event time, what is older than the watermark is late, and forgotten.
        """
        columns = self.listed()
        names, texts = [each.name for each in columns], [each.text for each in columns]
        keys = tuple(f"k{index}" for index in range(len(columns)))
        timed = [key for key, each in zip(keys, columns, strict=True) if each.column in times]
        listed = ", ".join(keys)
        expressions = ", ".join(f"{t} AS {k}" for t, k in zip(texts, keys, strict=True))
        groups = f" GROUP BY {', '.join(map(as_key, texts))}"
        kept = listed
        if self.over_changes:
            kept, expressions = f"{listed}, {_LIVE}", f"{expressions}, count(*) AS {_LIVE}"
        return Aggregation(
            keys=keys,
            time=timed[0] if timed else None,
            merges=(Merge("count", (_LIVE,)),) if self.over_changes else (),
            outputs=tuple(names),
            _partial=(kept, expressions, after_table(self.select), groups),
            _final=(keys, listed, ""),
            columns=keys,
            meanings=(
                *(each.meaning for each in columns),
                *(["count(*)"] if self.over_changes else []),
            ),
            key_outputs=tuple(names),
            placed=tuple((each.text, each.at) for each in columns),
            is_distinct=not self.over_changes,
            takes_back=self.over_changes,
            live=_LIVE if self.over_changes else None,
        )

    def top(self, ranked: Ranked, limit: int | None) -> Aggregation:
        """The first rows of each key, as one sorted list; rows come out of it with their rank."""
        assert limit is not None, "checked before"
        names = self.names
        columns = self.listed(ranked.item)
        parts = {names.spelled(words): words for words in ranked.partition}
        keys = {spelled: f"k{i}" for i, spelled in enumerate(parts)}
        fields = order_fields(ranked, self.select, self.type_of)
        outputs: list[str] = []
        for number, each in enumerate(columns):
            if each.is_rank:
                outputs.append("CAST(rank + 1 AS INT)")
            elif each.meaning in keys:
                outputs.append(keys[each.meaning])
            else:
                fields.append(f"'c{number}', {each.text}")
                outputs.append(f"row.c{number}")
        collected = f"collect_list(named_struct({', '.join(fields)}))"
        self._check_sorted(ranked, collected)
        texts = [self.select.text(words) for words in parts.values()]
        named = [f"{text} AS {key}" for text, key in zip(texts, keys.values(), strict=True)]
        said = said_order(ranked, names.spelled)
        kept = self._kept(ranked, limit, ", ".join(fields), said)
        return Aggregation(
            keys=tuple(keys.values()),
            time=None,
            merges=kept.merges,
            outputs=tuple(each.name for each in columns),
            _partial=(
                ", ".join([*keys.values(), *kept.columns]),
                ", ".join([*named, *kept.partials]),
                after_table(self.select),
                f" GROUP BY {', '.join(map(as_key, texts))}" if texts else "",
            ),
            _final=(
                tuple(outputs),
                ", ".join([*keys.values(), f"posexplode_outer({kept.rows}) AS (rank, row)"]),
                "rank IS NOT NULL",
            ),
            meanings=(*keys, *kept.meanings),
            key_outputs=_top_keys(columns, list(keys), limit),
            placed=tuple((t, w[0].start) for t, w in zip(texts, parts.values(), strict=True)),
            has_lists=True,
            takes_back=self.over_changes,
            live=_LIVE if self.over_changes else None,
        )

    def _kept(self, ranked: Ranked, limit: int, fields: str, said: str) -> _Kept:
        """Of each key the first rows; all of them, if rows may be taken back."""
        if self.over_changes:
            bag = bag_of(f"named_struct({fields})").columns[0].replace("{where}", "")
            return _Kept(
                merges=(Merge("bag", ("p0",)), Merge("count", (_LIVE,))),
                partials=(f"{bag} AS p0", f"count(*) AS {_LIVE}"),
                rows=first_rows("p0", limit, descending=ranked.descending),
                meanings=(f"all {said}", "count(*)"),
            )
        options: dict[str, int | bool | str] = {"limit": limit}
        if ranked.descending:
            options["descending"] = True
        return _Kept(
            merges=(Merge("list_sorted", ("p0",), options),),
            partials=(f"{_first(f'named_struct({fields})', ranked, limit)} AS p0",),
            rows="p0",
            meanings=(f"first {limit} {said}",),
        )

    def _check_sorted(self, ranked: Ranked, collected: str) -> None:
        """Rows of one rank are told apart by all their values, so all must have an order."""
        kind = self.type_of(f"sort_array({collected})").removeprefix("array<")
        if unsorted(kind) is not None:
            raise self.select.script.bad(
                f"row_number() over rows of type {kind.removesuffix('>')}: some have no order here",
                ranked.at,
                "Rank a key and what it is ordered by; arrays, maps and variants cannot be kept",
            )

    def listed(self, rank: int | None = None) -> list[ListedColumn]:
        """The columns of the SELECT list, each with its own name; *rank* is the item that ranks."""
        columns = list(self._columns(rank))
        self._check_names(columns)
        return columns

    def _columns(self, rank: int | None = None) -> Iterator[ListedColumn]:
        """The columns of the SELECT list; of `*` those of the input."""
        known = {name.lower() for name in self.columns}
        for index, item in enumerate(self.select.items):
            if index == rank:
                at = item.words[0].start
                yield ListedColumn(
                    "", output_name(self.select, item, index), "", at, None, is_rank=True
                )
                continue
            words, at = item.words, item.words[0].start
            if words[-1].upper == "*" and (len(words) == 1 or sign(words, len(words) - 2) == "."):
                for name in self.columns:
                    yield ListedColumn(quoted(name), name, name.lower(), at, name.lower())
                continue
            is_one = len(self.names.elements(words)) == 1
            column = words[-1].text.lower() if is_one and words[-1].is_name else None
            if column is not None and _STATE_KEY.fullmatch(column) and column not in known:
                # Spark would take it for a column of the state, which it knows by that name.
                raise self.select.script.bad(f"there is no column {words[-1].text!r}", words[-1])
            name, meaning = output_name(self.select, item, index), self.names.spelled(words)
            yield ListedColumn(self.select.text(words), name, meaning, at, column)

    def _check_names(self, columns: list[ListedColumn]) -> None:
        seen: set[str] = set()
        for each in columns:
            if each.name.lower() in seen:
                raise self.select.script.bad(
                    f"two columns are called {each.name!r}", each.at, "Use AS"
                )
            seen.add(each.name.lower())


def _first(row: str, ranked: Ranked, limit: int) -> str:
    """The first rows of an epoch, as a sorted list; a single one needs no list of all of them."""
    if limit == 1:
        return f"array_compact(array({'max' if ranked.descending else 'min'}({row})))"
    sort = f"sort_array(collect_list({row}){', false' if ranked.descending else ''})"
    return f"slice({sort}, 1, {limit})"


def _top_keys(columns: list[ListedColumn], keys: list[str], limit: int) -> tuple[str, ...] | None:
    """What tells a row from all others: its key, and its rank unless there is only one."""
    found = {each.meaning: each.name for each in columns if not each.is_rank}
    ranks = [each.name for each in columns if each.is_rank]
    if any(key not in found for key in keys) or (limit > 1 and not ranks):
        return None
    return (*(found[key] for key in keys), *(ranks if limit > 1 else ()))


def after_table(select: Select) -> str:
    """The name of the input, and the condition."""
    where = f" WHERE {select.text(select.where)}" if select.where else ""
    return f"{named_table(select)}{where}"


def named_table(select: Select) -> str:
    """What follows the input in FROM: its name, and what makes several rows of each of it."""
    return f" AS {quoted((select.alias or select.table).text)}{select.laterals.text}"


def output_name(select: Select, item: Item, index: int) -> str:
    """The name of an output column: as given, or of the column that it is."""
    if item.alias is not None:
        return item.alias
    words = item.words
    if words[0].upper == "*" or (words[-1].upper == "*" and sign(words, len(words) - 2) == "."):
        advice = "Name the columns: keys, and aggregates of the others"
        raise select.script.bad("* in a stream with GROUP BY", words[-1], advice)
    path = words[::2]
    dots = all(word.upper == "." for word in words[1::2])
    if dots and len(words) % 2 and all(word.is_name for word in path) and is_reference(words, 0):
        return words[-1].text
    raise select.script.bad(f"column {index + 1} has no name", words[0], "Use AS")


def as_key(text: str) -> str:
    """A key in GROUP BY, where a bare number would be the place of an item."""
    return f"({text})" if text.isdecimal() else text
