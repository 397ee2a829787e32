"""A small grammar of queries, and rows for them: what tests/spark/test_query_grammar.py draws.

Every relation has the columns of `t`, so anything can be read from anything. A query is written
twice: as a stream, and for the oracle, which is the same but for what a stream says otherwise (a
list is sorted, any_value is the least, equal ranks are told apart by all columns).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.spark.grammar_rows import SCHEMA
from tests.spark.grammar_words import (
    CONDITIONS,
    HAVING,
    KEYS,
    MOMENTS,
    NUMBERS,
    ORDERED,
    PAIRS,
    PASSED,
    SETS,
    WIDER,
    WINDOWS,
)

T = TypeVar("T")

NAMES = tuple(SCHEMA.names)
CHANGES = "EMIT CHANGES"


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    oracle: str
    emit: str = ""
    keys: int | None = None
    """How many columns, from the first, tell updates apart; None if rows are only added."""

    @property
    def has_changes(self) -> bool:
        return self.emit == CHANGES


def cumulated(read: str, key: str, where: str, listed: str, *, before: str = "") -> Query:
    """Windows that cumulate; the oracle makes a row for each window that a row is in."""
    day, days = 86_400_000_000, 4
    start = f"unix_micros(ts) - pmod(unix_micros(ts), {days * day}L)"
    made = (
        f"SELECT *, timestamp_micros({start}) AS at, timestamp_micros({start} + i * {day}L) AS"
        f" until FROM {read} LATERAL VIEW explode(sequence(1, {days})) e AS i {where}"
    )
    return Query(
        f"{before}SELECT {key} AS c0, window.start AS at, window.end AS until, {listed} FROM {read}"
        f" {where} GROUP BY {key}, CUMULATE(ts, INTERVAL 1 DAY, INTERVAL {days} DAYS)",
        f"{before}SELECT {key} AS c0, at, until, {listed} FROM ({made}) WHERE ts < until"
        f" GROUP BY {key}, at, until",
        "EMIT ON WINDOW CLOSE",
    )


@dataclass(frozen=True, slots=True)
class Case:
    """Queries over one source, and how its rows come."""

    queries: tuple[Query, ...]
    seed: int
    rows: int
    epochs: int
    partitions: tuple[int, int] = (2, 2)  # before and after a restart
    restart: int = 0  # before this epoch; 0: none
    kill: str = ""  # where the second epoch fails, once
    sends_rows: bool = False  # to tasks as they are, where that is as good


@dataclass(frozen=True, slots=True)
class Relation:
    """What stands behind FROM; *before* stands before the query."""

    text: str
    before: str = ""
    qualifier: str = ""


@dataclass
class Pen:
    """Writes queries, and lets hypothesis choose."""

    draw: Callable[[Any], Any]
    names: list[str] = field(default_factory=list)

    def one(self, options: Sequence[T]) -> T:
        chosen: T = self.draw(st.sampled_from(options))
        return chosen

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        chosen: list[T] = self.draw(
            st.lists(st.sampled_from(options), min_size=least, max_size=most, unique=True)
        )
        return chosen

    def maybe(self, percent: int = 50) -> bool:
        return bool(self.draw(st.integers(0, 99)) < percent)

    def condition(self, percent: int = 50) -> str:
        return f" WHERE {self.one(CONDITIONS)}" if self.maybe(percent) else ""

    # what is read

    def relation(self, depth: int = 2) -> Relation:
        kinds = ["t", "t", "alias"]
        if depth:
            kinds += ["subquery", "with", "union", "distinct"]
        kind = self.one(kinds)
        if kind == "t":
            return Relation("t", qualifier="t")
        if kind == "alias":
            return Relation("t AS q", qualifier="q")
        if kind == "union":
            parts = f"{self.plain(depth - 1)} UNION ALL {self.plain(depth - 1, widens=True)}"
            return Relation(f"({parts})")
        inner = self.distinct_rows(depth - 1) if kind == "distinct" else self.plain(depth - 1)
        if kind == "with":
            name = f"w{len(self.names)}"
            self.names.append(name)
            return Relation(name, f"WITH {name} AS ({inner}) ", name)
        return Relation(f"({inner}) AS z", qualifier="z")

    def plain(self, depth: int, *, widens: bool = False) -> str:
        """Rows without state, with the columns of `t`."""
        inner = self.relation(depth) if depth > 0 else Relation("t")
        while inner.before:
            inner = self.relation(depth)
        where = self.condition()
        if self.maybe(30) and not widens:
            return f"SELECT * FROM {inner.text}{where}"
        changed = {name: self.one(PASSED[name]) for name in self.some(list(PASSED), 0, 3)}
        if widens:
            changed |= {name: WIDER[name] for name in self.some(list(WIDER), 0, 2)}
        listed = ", ".join(changed.get(name, name) for name in NAMES)
        return f"SELECT {listed} FROM {inner.text}{where}"

    def distinct_rows(self, depth: int) -> str:
        inner = self.relation(depth) if depth > 0 else Relation("t")
        while inner.before:
            inner = self.relation(depth)
        return f"SELECT DISTINCT * FROM {inner.text}"

    # aggregates

    def aggregate(self, *, windowed: bool, sets: bool) -> tuple[str, str]:
        """As a stream has it, and as the oracle has it."""
        kinds = ["count", "number", "number", "order", "bool", "by", "moment", "list", "mixed"]
        kinds += [] if sets else ["distinct", "distinct"]
        kinds += ["values"] if windowed else []
        where = f" FILTER (WHERE {self.one(CONDITIONS)})" if self.maybe(30) else ""
        kind, any_of = self.one(kinds), self.one
        if kind == "count":
            call = any_of(("count(*)", "count(k)", "count(g, d)", "count(st)"))
        elif kind == "number":
            call = f"{any_of(('sum', 'avg', 'min', 'max'))}({any_of(NUMBERS)})"
        elif kind == "order":
            call = f"{any_of(('min', 'max'))}({any_of(ORDERED)})"
        elif kind == "bool":
            call = any_of(("bool_and(b)", "bool_or(b)", "bit_xor(l)", "bit_and(g)", "every(l > 0)"))
            if self.maybe(30):
                call = "count_if(b)"
        elif kind == "by":
            kept = any_of((*ORDERED, "struct(k, d)", "a"))
            call = f"{any_of(('min_by', 'max_by'))}({kept}, struct(l, u).u)"
        elif kind == "moment":
            call = f"{any_of(MOMENTS)}(g)" if self.maybe() else f"{any_of(PAIRS)}(l % 9, g)"
        elif kind == "list":
            return self._list(where)
        elif kind == "mixed":
            return self._mixed(where)
        elif kind == "distinct":
            return self._distinct(where)
        else:
            return self._values(where)
        return call + where, call + where

    def _list(self, where: str) -> tuple[str, str]:
        of, limit = self.one((*ORDERED, "struct(ts, s)")), self.one((1, 3, 50))
        call = self.one(("collect_list", "collect_set"))
        order = self.one(("", ", false"))
        text = f"slice(sort_array({call}({of}){where}{order}), 1, {limit})"
        return text, text

    def _mixed(self, where: str) -> tuple[str, str]:
        text = self.one(
            (
                "sum(l){0} + count(*)",
                "CASE WHEN count(*) > 2 THEN max(s){0} ELSE 'few' END",
                "coalesce(sum(m){0}, 0) / nullif(count(m), 0)",
                "struct(min(g){0} AS low, max(d))",
                "to_json(struct(count(*), max(k){0}))",
                "round(avg(d){0}, 2) || '/' || count(k)",
                "-sum(g){0} * 2",
                "transform(array(min(g), max(g){0}), x -> x + 1)",
            )
        ).format(where)
        return text, text

    def _distinct(self, where: str) -> tuple[str, str]:
        call = self.one(
            (
                *(f"count(DISTINCT {c})" for c in (*ORDERED, "k, g", "st", "a")),
                *(f"{call}(DISTINCT {c})" for call in ("sum", "avg") for c in NUMBERS[:6]),
                "max(DISTINCT d)",
                "slice(sort_array(collect_list(DISTINCT k)), 1, 3)",
            )
        )
        if call.startswith("slice"):
            call = call.replace("k))", f"k){where})")
            return call, call
        return call + where, call + where

    def _values(self, where: str) -> tuple[str, str]:
        call = self.one(
            (
                *(f"collect_list({c})" for c in ("k", "d", "st", "ts")),
                *(f"collect_set({c})" for c in ("s", "d", "g")),
                *(f"median({c})" for c in ("g", "m", "d")),
                "percentile(l, array(0.1, 0.9))",
            )
        )
        oracle = f"sort_array({call}{where})" if call.startswith("collect") else call + where
        return call + where, oracle

    # queries

    def rows(self) -> Query:
        read = self.relation()
        items = [f"{e} AS c{i}" for i, e in enumerate(self.some(KEYS, 1, 4))]
        where = self.condition()
        text = f"{read.before}SELECT {', '.join(items)} FROM {read.text}{where}"
        return Query(text, text)

    def distinct(self) -> Query:
        read = self.relation()
        items = [f"{e} AS c{i}" for i, e in enumerate(self.some(KEYS, 1, 3))]
        where = self.condition(30)
        text = f"{read.before}SELECT DISTINCT {', '.join(items)} FROM {read.text}{where}"
        return Query(text, text)

    def groups(self) -> Query:
        read, keys = self.relation(), self.some(KEYS, 0, 3)
        sets = len(keys) == 2 and self.maybe(40)
        aggregates = self.aggregates(windowed=False, sets=sets)
        items = [(f"{e} AS c{i}",) * 2 for i, e in enumerate(keys)]
        told_apart = len(keys)
        if sets:
            group = self.one(SETS).format(*keys)
            items.append(("grouping_id() AS id",) * 2)
            told_apart += 1
        else:
            group = self.grouped(keys)
        if keys and self.maybe(20):
            items.append((f"({keys[0]}) IS NULL AS missing",) * 2)
            items.append((f"struct({', '.join(keys)}) AS together",) * 2)
        return self._aggregated(read, [*items, *aggregates], group, told_apart)

    def grouped(self, keys: Sequence[str]) -> str:
        way = self.one(("words", "words", "numbers", "names", "all"))
        if way == "numbers":
            return ", ".join(str(i + 1) for i in range(len(keys)))
        if way == "names":
            return ", ".join(f"c{i}" for i in range(len(keys)))
        return "ALL" if way == "all" and keys else ", ".join(keys)

    def aggregates(self, *, windowed: bool, sets: bool) -> list[tuple[str, str]]:
        made = [
            self.aggregate(windowed=windowed, sets=sets)
            for _ in range(self.draw(st.integers(1, 4)))
        ]
        return [(f"{ours} AS x{i}", f"{theirs} AS x{i}") for i, (ours, theirs) in enumerate(made)]

    def _aggregated(
        self,
        read: Relation,
        items: Sequence[tuple[str, str]],
        group: str,
        keys: int,
    ) -> Query:
        where = self.condition(30)
        by = f" GROUP BY {group}" if group else ""
        ours, theirs = (
            f"{read.before}SELECT {', '.join(each[side] for each in items)}"
            f" FROM {read.text}{where}{by}"
            for side in (0, 1)
        )
        return Query(ours, theirs, "EMIT ON UPDATE", keys)

    def windows(self) -> Query:
        read, keys, window = self.relation(), self.some(KEYS, 0, 2), self.one(WINDOWS)
        sets = bool(keys) and self.maybe(25)
        closes = self.maybe(70)
        aggregates = self.aggregates(windowed=True, sets=sets)
        items = [(f"{e} AS c{i}",) * 2 for i, e in enumerate(keys)]
        items.append(("window.start AS at",) * 2)
        if self.maybe(30):
            items.append(("window.end AS until",) * 2)
        group = [*(["ROLLUP ({})".format(", ".join(keys))] if sets else keys)]
        told_apart = len(keys) + 1
        if sets:
            items.insert(told_apart, ("grouping_id() AS id",) * 2)
            told_apart += 1
        having = f" HAVING {self.one(HAVING)}" if closes and not sets and self.maybe(40) else ""
        where = self.condition(30)
        ours, theirs = (
            f"{read.before}SELECT {', '.join(each[side] for each in [*items, *aggregates])}"
            f" FROM {read.text}{where} GROUP BY {', '.join([*group, over])}{having}"
            for side, over in ((0, window.text), (1, window.oracle))
        )
        if closes:
            return Query(ours, theirs, "EMIT ON WINDOW CLOSE")
        return Query(ours, theirs, "EMIT ON UPDATE", told_apart)

    def top(self) -> Query:
        read, keys = self.relation(), self.some(KEYS, 0, 2)
        order = self.some((*ORDERED, "struct(g, d)"), 1, 2)
        kept = self.some((*ORDERED, "st", "l % 5"), 1, 4)
        way, limit = self.one(("", " DESC")), self.one((1, 2, 5))
        ways = [way] * len(order)
        if len(order) > 1 and "struct(g, d)" not in order and self.maybe():
            ways[1] = self.one((" DESC", "", " NULLS LAST", " DESC NULLS FIRST"))
        order = [f"{each}{said}" for each, said in zip(order, ways, strict=True)]
        items = [f"{e} AS c{i}" for i, e in enumerate(keys)]
        rest = [f"{e} AS y{i}" for i, e in enumerate(kept)]
        where = self.condition(30)
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        equals = [f"{each}{way}" for each in kept if each not in keys]
        ours, theirs = (
            f"row_number() OVER ({by}ORDER BY {', '.join(listed)})"
            for listed in (order, [*order, *equals])
        )
        told_apart = len(keys) + 1
        if self.maybe():
            inner = ", ".join([*items, "{0} AS n", *rest])
            names = ", ".join([*(f"c{i}" for i in range(len(keys))), "n", *_names(rest)])
            text = f"{read.before}SELECT {names} FROM (SELECT {inner} FROM {read.text}{where})"
            text += f" WHERE {self.one(('n <= {0}', '{0} >= n', 'n BETWEEN 1 AND {0}'))}".format(
                limit
            )
        else:
            listed = ", ".join([*items, "{0} AS n", *rest])
            text = f"{read.before}SELECT {listed} FROM {read.text}{where} QUALIFY n <= {limit}"
        return Query(
            text.replace("{0}", ours), text.replace("{0}", theirs), "EMIT ON UPDATE", told_apart
        )

    def chained(self) -> Query:
        """Windows, and groups over the closed ones."""
        read, key, window = self.relation(), self.one(KEYS), self.one(WINDOWS)
        where = self.condition(30)
        last, closes = "window.end - INTERVAL 1 MICROSECOND AS at", self.maybe()
        ours, theirs = (
            f"{read.before}SELECT c, {'window.start AS at, ' if closes else ''}sum(n) AS n,"
            " count(*) AS windows, max(most) AS most, count(DISTINCT most) AS different FROM"
            f" (SELECT {key} AS c, {last}, count(*) AS n, max(l) AS most"
            f" FROM {read.text}{where} GROUP BY {key}, {over})"
            f" WHERE n <> 3 GROUP BY c{_by_months(closes)}"
            for over in (window.text, window.oracle)
        )
        emit = "EMIT ON WINDOW CLOSE" if closes else "EMIT ON UPDATE"
        return Query(ours, theirs, emit, None if closes else 1)


def _by_months(closes: bool) -> str:
    return ", window(at, '30 days')" if closes else ""


def _names(items: Sequence[str]) -> list[str]:
    return [each.rpartition(" AS ")[2] for each in items]
