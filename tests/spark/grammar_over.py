"""More of the grammar: changes, window functions over closed windows, several rows of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.spark.grammar_words import CONDITIONS, HAVING, KEYS, WINDOWS
from tests.spark.query_grammar import CHANGES, Case, Pen, Query, cumulated

_KINDS = (
    *("rows", "distinct", "groups", "groups", "windows", "windows", "top", "chained"),
    *("changes", "changed_top", "over_changes", "over_windows", "exploded"),
    *("values_of_windows", "values_of_changes"),
    *("sessions", "cumulated", "every", "first_of_keys"),
)
_VALUES = (
    *("max(v.n)", "count(*)", "sum(v.most) + 1", "coalesce(min(v.most), -1) * count(v.most)"),
    *("avg(v.n)", "count(DISTINCT v.most)", "stddev(v.n)"),
)
_OVER = (
    "rank() OVER (PARTITION BY at ORDER BY n DESC)",
    "dense_rank() OVER (PARTITION BY at ORDER BY most)",
    "sum(n) OVER (PARTITION BY at)",
    "count(*) OVER (PARTITION BY at, n)",
    "max(most) OVER (PARTITION BY at ORDER BY n RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "n / sum(n) OVER (PARTITION BY at)",
)
_CUMULATED = ("count(*)", "sum(l)", "max(s)", "count(DISTINCT g)", "avg(m)", "min(ts)")
_PLAIN = ("k", "g", "b", "s", "dt", "l % 3", "upper(k)", "st.x", "coalesce(k, s, 'none')", "bi")
_MADE = (
    "{0} LATERAL VIEW explode(a) e AS y",
    "{0} LATERAL VIEW OUTER posexplode(a) e AS p, y",
    "{0}, LATERAL explode(array(g, y0)) AS e(y)",
)


class Writer(Pen):
    def query(self) -> Query:
        return getattr(self, self.one(_KINDS))()  # type: ignore[no-any-return]

    def changes(self) -> Query:
        """Groups, or windows, of which some are taken back."""
        made = self.groups() if self.maybe(70) else self.windows()
        having = f" HAVING {self.one(HAVING)}" if self.maybe() else ""
        if " HAVING " in made.text or "grouping_id()" in made.text or "WITH ROLLUP" in made.text:
            having = ""
        return Query(made.text + having, made.oracle + having, CHANGES)

    def changed_top(self) -> Query:
        return replace(self.top(), emit=CHANGES, keys=None)

    def over_changes(self) -> Query:
        """A condition over groups, whose rows come and go."""
        key, read = self.one(KEYS), self.relation()
        inner = (
            f"SELECT {key} AS c, count(*) AS n, max(l) AS most, sum(m) AS m, min(a) AS a"
            f" FROM {read.text}{self.condition(30)} GROUP BY {key}"
        ).replace("min(a)", "slice(sort_array(collect_list(g)), 1, 2)")
        where = self.one(("n % 2 = 0", "most > 0 OR c IS NULL", "m IS NOT NULL"))
        shown = self.one(("c, n", "n, most", "c, explode(a) AS each", "n"))
        text = f"{read.before}SELECT {shown} FROM ({inner}) WHERE {where}"
        if self.maybe(30):
            text += " UNION ALL " + text.removeprefix(read.before).replace("% 2 = 0", "% 2 = 1")
        return Query(text, text, CHANGES)

    def over_windows(self) -> Query:
        """Window functions over closed windows."""
        key, window, over = self.one(KEYS), self.one(WINDOWS), self.some(_OVER, 1, 3)
        read, where = self.relation(), self.condition(30)
        functions = ", ".join(f"{each} AS x{i}" for i, each in enumerate(over))
        kept = f" QUALIFY {over[0]} > 1" if self.maybe(30) else ""
        ours, theirs = (
            f"{read.before}SELECT c, at, n, {functions} FROM (SELECT {key} AS c, window.start AS"
            f" at, count(*) AS n, max(l) AS most FROM {read.text}{where} GROUP BY {key}, {words})"
            f"{kept}"
            for words in (window.text, window.oracle)
        )
        return Query(ours, theirs, "EMIT ON WINDOW CLOSE")

    def values_of_windows(self) -> Query:
        """Queries that are values, of windows that close together."""
        key, window, read = self.one(KEYS), self.one(WINDOWS), self.relation()
        of, equal = self.some(_VALUES, 2, 2), self.one(("", " AND v.n = w.n", " AND n > 1"))
        where = self.condition(30)
        ours, theirs = (
            f"{read.before}SELECT w.c, w.at, w.n, (SELECT {of[0]} FROM ({inner}) AS v WHERE v.at ="
            f" w.at{equal}) AS x FROM ({inner}) AS w WHERE w.n >= (SELECT {of[1]} FROM ({inner})"
            " AS v WHERE w.at = v.at) OR w.most > 0"
            for inner in (
                f"SELECT {key} AS c, window.end AS at, count(*) AS n, max(l) % 99 AS most"
                f" FROM {read.text}{where} GROUP BY {key}, {words}"
                for words in (window.text, window.oracle)
            )
        )
        return Query(ours, theirs, "EMIT ON WINDOW CLOSE")

    def values_of_changes(self) -> Query:
        """Queries that are values, of groups that come and go."""
        key, read, having = self.one(KEYS), self.relation(), self.one(("", " HAVING count(*) > 1"))
        inner = (
            f"SELECT {key} AS c, count(*) AS n, max(l) % 99 AS most FROM {read.text}"
            f"{self.condition(30)} GROUP BY {key}{having}"
        )
        equal = self.one(("", " WHERE v.n = w.n", " WHERE v.most = w.n AND v.n > 1"))
        name = f"w{len(self.names)}"
        text = (
            f"{read.before or 'WITH '}{', ' if read.before else ''}{name} AS ({inner}) SELECT w.n,"
            f" w.most, (SELECT {self.one(_VALUES)} FROM {name} AS v{equal}) AS x FROM {name}"
            f" AS w WHERE w.n >= (SELECT {self.one(_VALUES[:4])} FROM {name} AS v) OR w.n % 2 = 0"
        )
        return Query(text, text, CHANGES)

    def sessions(self) -> Query:
        read, keys = self.relation(), self.some(KEYS, 0, 2)
        aggregates = self.aggregates(windowed=True, sets=False)
        items = [(f"{e} AS c{i}",) * 2 for i, e in enumerate(keys)]
        items += [("session_window.start AS at",) * 2, ("session_window.end AS until",) * 2]
        hours, where = self.one((1, 30, 240)), self.condition(30)
        ours, theirs = (
            f"{read.before}SELECT {', '.join(each[side] for each in [*items, *aggregates])}"
            f" FROM {read.text}{where} GROUP BY {', '.join([*keys, over])}"
            for side, over in (
                (0, f"SESSION(ts, INTERVAL {hours} HOURS)"),
                (1, f"session_window(ts, '{hours} hours')"),
            )
        )
        emit = self.one(("EMIT ON WINDOW CLOSE", "EMIT ON WINDOW CLOSE", CHANGES))
        return Query(ours, theirs, emit)

    def cumulated(self) -> Query:
        read, key, listed = self.relation(), self.one(KEYS), self.some(_CUMULATED, 1, 3)
        named = ", ".join(f"{each} AS x{i}" for i, each in enumerate(listed))
        return cumulated(read.text, key, self.condition(30), named, before=read.before)

    def every(self) -> Query:
        """Groups whose rows come out once in so much event time."""
        keys, where = self.some(KEYS, 1, 2), self.condition(30)
        items = [f"{e} AS c{i}" for i, e in enumerate(keys)]
        items += [each for each, _ in self.aggregates(windowed=False, sets=False)]
        text = f"SELECT {', '.join(items)} FROM t{where} GROUP BY {', '.join(keys)}"
        return Query(text, text, f"EMIT EVERY INTERVAL {self.one((1, 40))} DAYS", len(keys))

    def first_of_keys(self) -> Query:
        """DISTINCT ON of no more than its keys, so that any of their rows is the same."""
        read, keys = self.relation(), self.some(_PLAIN, 1, 2)
        items = ", ".join(f"{e} AS c{i}" for i, e in enumerate(keys))
        ours, theirs = (
            f"{read.before}SELECT DISTINCT {on}{items} FROM {read.text}"
            for on in (f"ON ({', '.join(keys)}) ", "")
        )
        where = self.condition(30)
        return Query(ours + where, theirs + where)

    def exploded(self) -> Query:
        """Several rows of one, alone or as groups."""
        read = self.one(_MADE).format("(SELECT *, g + 1 AS y0 FROM t) AS z")
        if self.maybe():
            text = f"SELECT k AS c0, y AS c1, window(ts, '4 days', '1 day').start AS at FROM {read}"
            return Query(text, text)
        text = (
            f"SELECT y AS c0, count(*) AS x0, count(DISTINCT k) AS x1, sum(l) AS x2 FROM {read}"
            f" WHERE {self.one(CONDITIONS)} GROUP BY y"
        )
        return Query(text, text, "EMIT ON UPDATE", 1)


@st.composite
def cases(draw: Callable[[Any], Any], queries: int = 5) -> Case:
    pen = Writer(draw)
    epochs = draw(st.integers(1, 5))
    return Case(
        queries=tuple(pen.query() for _ in range(queries)),
        seed=draw(st.integers(0, 10**6)),
        rows=pen.one((200, 60, 200, 7, 0)),
        epochs=epochs,
        partitions=(pen.one((1, 2, 4)), pen.one((1, 2, 4))),
        restart=draw(st.integers(0, epochs - 1)),
        kill=pen.one(("", "", "before COMMIT", "before publish")),
        sends_rows=pen.maybe(),
    )
