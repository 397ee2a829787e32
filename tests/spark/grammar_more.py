"""Fixed cases for the queries in epochs, each with several features, a kill and a rescale.

Written as the grammar would write them. They are what every run of the tests tries; hypothesis
draws others if it is asked to.
"""

from __future__ import annotations

from tests.spark.query_grammar import CHANGES, Case, Query, cumulated


def _found(text: str, emit: str = "EMIT ON UPDATE", keys: int | None = None) -> Query:
    return Query(text, text, emit, keys)


def _both(ours: str, theirs: str, emit: str, keys: int | None = None) -> Query:
    return Query(ours, theirs, emit, keys)


_SESSIONS = (
    "SELECT k AS c0, session_window.start AS at, session_window.end AS until, count(*) AS x0,"
    " count(DISTINCT g) AS x1, min_by(s, u) AS x2 FROM"
    " (SELECT * FROM t WHERE l IS NOT NULL UNION ALL SELECT * FROM t WHERE g = 1)"
    " GROUP BY k, {window}"
)
_RANKED = (
    "SELECT k AS c0, n, l AS y0, s AS y1 FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY"
    " g DESC NULLS FIRST, l, d DESC{more}) AS n, l, s FROM t) WHERE n <= 5"
)
_CHAINED = (
    "WITH w AS (SELECT upper(k) AS c, window.end - INTERVAL 1 MICROSECOND AS at, count(*) AS n,"
    " max(l) AS most FROM t WHERE k IS NOT NULL GROUP BY upper(k), window(ts, '1 day'))"
    " SELECT c, window.start AS at, sum(n) AS n, count(*) AS windows, count(DISTINCT most) AS x"
    " FROM w WHERE n <> 3 GROUP BY c, window(at, '30 days')"
)
_OVER = (
    "SELECT c, at, n, rank() OVER (PARTITION BY at ORDER BY n DESC) AS x0, sum(n) OVER (PARTITION"
    " BY at) AS x1 FROM (SELECT g AS c, window.start AS at, count(*) AS n FROM t GROUP BY g,"
    " {window})"
)
WITH_WINDOWS = Case(
    queries=(
        _both(
            _SESSIONS.format(window="SESSION(ts, INTERVAL 3 HOURS)"),
            _SESSIONS.format(window="session_window(ts, '3 hours')"),
            "EMIT ON WINDOW CLOSE",
        ),
        cumulated("t", "k", "WHERE b", "sum(g) AS x0, max(s) AS x1, count(DISTINCT l % 3) AS x2"),
        _found(_CHAINED, "EMIT ON WINDOW CLOSE"),
        _both(
            _OVER.format(window="HOP(ts, INTERVAL 5 DAYS, INTERVAL 10 DAYS)"),
            _OVER.format(window="window(ts, '10 days', '5 days')"),
            "EMIT ON WINDOW CLOSE",
        ),
        _both(
            "SELECT g AS c0, window_start AS at, grouping_id() AS id, string_agg(s, '+') WITHIN"
            " GROUP (ORDER BY u DESC) AS x0, mode(k, true) AS x1, median(d) AS x2 FROM"
            " TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '7' DAY))"
            " GROUP BY window_start, window_end, ROLLUP (g)",
            "SELECT g AS c0, window.start AS at, grouping_id() AS id, string_agg(s, '+') WITHIN"
            " GROUP (ORDER BY u DESC) AS x0, mode(k, true) AS x1, median(d) AS x2 FROM t"
            " GROUP BY window(ts, '7 days'), ROLLUP (g)",
            "EMIT ON WINDOW CLOSE",
        ),
    ),
    seed=11,
    rows=200,
    epochs=4,
    partitions=(2, 4),
    restart=2,
    kill="before publish",
)
WITH_CHANGES = Case(
    queries=(
        _found(
            "SELECT c, explode(a) AS each FROM (SELECT dt AS c, count(*) AS n,"
            " slice(sort_array(collect_list(g)), 1, 2) AS a FROM t GROUP BY dt) WHERE n % 2 = 0"
            " UNION ALL SELECT dt, g FROM t WHERE d < 0",
            CHANGES,
        ),
        _found(
            "SELECT n, count(*) AS x0, count(DISTINCT most) AS x1, median(most) AS x2 FROM (SELECT"
            " k, g, count(*) AS n, max(l) AS most FROM t GROUP BY k, g HAVING sum(l) IS NOT NULL)"
            " GROUP BY n",
            CHANGES,
        ),
        _both(
            _RANKED.format(more=""),
            _RANKED.format(more=", l DESC, s DESC"),
            "EMIT ON UPDATE",
            2,
        ),
        _found(
            "SELECT g AS c0, b AS c1, grouping_id() AS id, sum(m) AS x0, avg(w) AS x1, bit_xor(l)"
            " AS x2 FROM t GROUP BY CUBE (g, b)",
            keys=3,
        ),
        _found(
            "SELECT k AS c0, count(*) AS x0, try_sum(l) AS x1, kurtosis(g) AS x2 FROM t GROUP BY k",
            "EMIT EVERY INTERVAL 1 DAY",
            1,
        ),
        _both(
            "SELECT DISTINCT ON (upper(k), g) upper(k) AS c0, g AS c1 FROM t WHERE l > 0",
            "SELECT DISTINCT upper(k) AS c0, g AS c1 FROM t WHERE l > 0",
            "",
        ),
        _found("SELECT DISTINCT st, a, d FROM t", ""),
    ),
    seed=12,
    rows=200,
    epochs=4,
    partitions=(4, 1),
    restart=3,
    kill="before COMMIT",
    sends_rows=True,
)
