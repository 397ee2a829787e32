"""What queries of query_grammar.py are made of: conditions, keys, windows."""

from __future__ import annotations

from dataclasses import dataclass

CONDITIONS = (
    "l > 0",
    "k IS NOT NULL",
    "d < 1.5",
    "b",
    "NOT b OR g = 1",
    "k IN ('a', 'b', '')",
    "g BETWEEN 1 AND 2 AND l IS NOT NULL",
    "s LIKE '%a%' OR k IS NULL",
    "NOT (l <=> 3)",
    "exists(a, x -> x > 0)",
    "st.x >= 0",
    "CASE WHEN g = 1 THEN l > 0 ELSE d > 0 END",
    "m IS DISTINCT FROM 0",
)
KEYS = (
    *("k", "g", "d", "b", "s", "dt", "bi", "st", "st.x", "a", "m", "l % 3", "upper(k)"),
    "CASE WHEN l > 0 THEN 'up' WHEN l < 0 THEN s END",
    "CASE g WHEN 1 THEN b END",
    "struct(g, b, d)",
    "(g, k)",
    "array(g, CAST(l % 2 AS INT))",
    "struct(st, array(d) AS ds)",
    "date_trunc('YEAR', ts)",
    "CAST(ts AS DATE)",
    "CAST(d AS FLOAT)",
    "coalesce(k, s, 'none')",
    "nullif(g, 1)",
    "length(s)",
    "k || '-' || s",
    "-d",
    "g = 1",
    "l IS NULL",
    "CAST(l AS DECIMAL(20,3)) / 2",
    "date_trunc('DAY', ts) - TIMESTAMP '1970-01-01'",
    "CAST(ts AS TIMESTAMP_NTZ)",
    "transform(a, x -> x + 1)",
    "size(a)",
)
NUMBERS = ("g", "l", "m", "w", "d", "l + g", "m * 2", "CAST(g AS TINYINT)", "l % 7", "-d")
ORDERED = (*NUMBERS, "k", "s", "b", "dt", "bi", "ts", "CAST(ts AS DATE)")
MOMENTS = ("stddev", "var_pop", "variance", "stddev_pop")
PAIRS = ("corr", "covar_samp", "regr_slope", "regr_count")
SETS = (
    "GROUPING SETS (({0}, {1}), ({0}), ())",
    "ROLLUP ({0}, {1})",
    "CUBE ({0}, {1})",
    "{0}, ROLLUP ({1})",
    "{0}, {1} WITH ROLLUP",
)
PASSED = {
    "k": ("upper(k) AS k", "CASE WHEN g = 1 THEN k ELSE s END AS k", "nullif(k, 'a') AS k"),
    "l": ("-l AS l", "l + 1 AS l", "CAST(g AS BIGINT) AS l"),
    "m": ("-m AS m", "TRY_CAST(m / 2 AS DECIMAL(12,2)) AS m"),
    "d": ("-d AS d", "d * 2 AS d", "CAST(g AS DOUBLE) AS d"),
    "b": ("NOT b AS b",),
    "s": ("concat(s, 'x') AS s", "lower(s) s"),
}
"""What a query inside may make of a column; the type stays."""
WIDER = {"g": "l AS g", "m": "CAST(w AS DECIMAL(30,4)) AS m", "d": "g AS d", "b": "b"}


@dataclass(frozen=True, slots=True)
class Window:
    text: str
    oracle: str


WINDOWS = (
    *(Window(text, text) for text in ("window(ts, '1 day')", "window(ts, '3650 days')")),
    *(
        Window(text, text)
        for text in ("window(ts, '4 days', '1 day')", "window(ts, '9 days', '9 days', '2 days')")
    ),
    Window("TUMBLE(ts, INTERVAL 7 DAYS)", "window(ts, '7 days')"),
    Window("HOP(ts, INTERVAL 5 DAYS, INTERVAL 10 DAYS)", "window(ts, '10 days', '5 days')"),
)
HAVING = ("count(*) > 1", "sum(l) IS NOT NULL", "max(g) = 3 OR count(DISTINCT k) > 1", "min(d) < 1")
