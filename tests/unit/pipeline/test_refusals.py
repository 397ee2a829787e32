"""What SQL has and a stream has not: each refusal has its reason, and a way around that works."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import lamina.pipeline
from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.aggregates import AGGREGATES, REFUSED
from lamina.pipeline.compile import compile_select
from lamina.pipeline.refused_words import REFUSED as WORDS
from lamina.pipeline.select import read_select

FILE = "p.sql"
COLUMNS = ("k", "a", "b", "ts")
HEAD = """CREATE SOURCE t (k STRING, a INT, b BINARY, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE SOURCE u (k STRING, a INT, ts TIMESTAMP) USING json OPTIONS (path 'other');
"""
SINK = """;
CREATE STREAM rest AS SELECT * FROM u;
CREATE SINK o FROM s USING parquet OPTIONS (path 'o');
CREATE SINK r FROM rest USING parquet OPTIONS (path 'r');
"""
GROUPS = "SELECT k, window.start AS at, count(*) AS n FROM t GROUP BY k, window(ts, '1 day')"
_GROUPS = re.compile(r"GROUP BY|SELECT (?!rank|lag|lead|sum\(a|row_number)\w+\(")
KNOWN = {*AGGREGATES, *REFUSED, "histogram_numeric"}
REFUSALS = [
    ("SELECT a FROM t ORDER BY a", "no order", "row_number() OVER (ORDER BY x) <= 10"),
    ("SELECT a FROM t SORT BY a", "no order", "row_number()"),
    ("SELECT a FROM t CLUSTER BY a", "placed by their keys", "Leave it out"),
    ("SELECT a FROM t LIMIT 10", "no end to count to", "row_number() OVER (ORDER BY x) <= 10"),
    ("SELECT a FROM t FETCH FIRST 10 ROWS ONLY", "FETCH in a stream", "row_number()"),
    ("SELECT a FROM t OFFSET 10", "no end to count to", "WHERE place <= 20"),
    ("SELECT a FROM t TABLESAMPLE (5 PERCENT)", "after a restart", "pmod(xxhash64(k), 100) < 5"),
    ("SELECT * FROM t PIVOT (sum(a) FOR k IN ('x'))", "depend on the rows", "FILTER (WHERE k ="),
    ("SELECT * FROM t UNPIVOT (v FOR n IN (a))", "several rows of one", "stack(2, 'a', a"),
    ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a))", "no patterns", "keyed step in Python"),
    ("SELECT a FROM t |> WHERE a > 1", "one SELECT", "FROM (SELECT ...)"),
    ("SELECT a FROM t EXCEPT SELECT a FROM u", "take one back", "LEFT ANTI JOIN"),
    ("SELECT a FROM t INTERSECT SELECT a FROM u", "take one back", "LEFT SEMI JOIN"),
    ("SELECT a FROM t UNION SELECT a FROM u", "keep every row", "UNION ALL"),
    ("SELECT a FROM t NATURAL JOIN u", "columns would change", "USING (k)"),
    ("SELECT a FROM 'x'", "expected in FROM", "names of sources"),
    ("SELECT a FROM range(10)", "is not known after FROM", "names of sources"),
    ("SELECT DISTINCT a, count(*) AS n FROM t", "DISTINCT with GROUP BY", "FROM (SELECT"),
    ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "no end", "each level"),
    ("SELECT rank() OVER (PARTITION BY k ORDER BY a) AS r FROM t", "rank() OVER",
     "row_number() <="),
    ("SELECT * FROM (SELECT *, dense_rank() OVER (PARTITION BY k ORDER BY a) AS r FROM t)"
     " WHERE r <= 2", "dense_rank() OVER", "row_number() <="),
    ("SELECT lag(a) OVER (PARTITION BY k ORDER BY ts) AS b FROM t", "lag() OVER",
     "equal rows become one"),
    ("SELECT lead(a) OVER (PARTITION BY k ORDER BY ts) AS b FROM t", "lead() OVER", "keyed step"),
    ("SELECT sum(a) OVER (PARTITION BY k) AS b FROM t", "sum() OVER", "closed windows"),
    ("SELECT row_number() OVER (PARTITION BY k) AS n FROM t", "without ORDER BY", "ORDER BY x"),
    ("SELECT *, row_number() OVER (PARTITION BY k ORDER BY a) AS n FROM t", "without a limit",
     "QUALIFY"),
    ("SELECT * FROM t QUALIFY row_number() OVER (ORDER BY a) <= 99999", "can be kept", "10000"),
    ("SELECT string_agg(k, ',') AS x FROM t", "for ever", "array_join(slice(sort_array("),
    ("SELECT string_agg(k, k) AS x FROM t", "not a constant", "a text in quotes"),
    ("SELECT k, collect_list(a) AS x FROM t GROUP BY k", "for ever", "slice(sort_array"),
    ("SELECT mode(a) AS x FROM t", "for ever", "row_number() OVER (PARTITION BY key ORDER BY n"),
    ("SELECT median(a) AS x FROM t", "for ever", "percentile_approx"),
    ("SELECT first(a) AS x FROM t", "how Spark reads", "min_by(x, ts)"),
    ("SELECT last_value(a) AS x FROM t", "how Spark reads", "max_by(x, ts)"),
    ("SELECT histogram_numeric(a, 3) AS x FROM t", "cannot be kept", "CREATE AGGREGATE FUNCTION"),
    ("SELECT sum(max(a)) AS x FROM t", "inside an aggregate", "a subquery"),
    ("SELECT k, * FROM t GROUP BY k", "* in a stream with GROUP BY", "Name the columns"),
    ("SELECT sum(a) AS x FROM t GROUP BY x", "a key cannot be an aggregate", "a subquery"),
    ("SELECT k FROM t GROUP BY *", "a key cannot be *", "Name the columns"),
    ("SELECT k, count(*) AS n FROM t GROUP BY CUBE (k, session_window(ts, '1 day'))",
     "of GROUP BY without", "Put the window before it"),
    ("SELECT k, count(*) AS n FROM t GROUP BY session_window(ts, '1 day'), CUBE (k)",
     "sessions with GROUPING SETS", "a stream for each set"),
    ("SELECT count(*) AS n FROM t GROUP BY window(ts, '1 day'), window(ts, '1 hour')",
     "one window", "in a subquery"),
    ("SELECT count(*) AS n FROM t GROUP BY window(ts, 5)", "a length of time", "INTERVAL 1 MINUTE"),
    ("SELECT window_time(window) AS x FROM t GROUP BY window(ts, '1 day')", "WINDOW_TIME",
     "window.end - INTERVAL 1 MICROSECOND"),
    ("SELECT count(*) AS n FROM u GROUP BY window(ts, '1 day')", "a window over 'u'", "WATERMARK"),
    ("SELECT k, grouping(a) AS g, count(*) AS n FROM t GROUP BY ROLLUP (k)", "not a key", "k"),
    ("SELECT a FROM t WHERE a > 1 FROM t", "in the wrong place", "The order is SELECT, FROM"),
    ("VALUES (1)", "a SELECT is expected", "SELECT ... FROM"),
    (f"SELECT k, at, n FROM ({GROUPS} EMIT ON UPDATE) WHERE n > 1", "would stay the newest",
     "EMIT CHANGES"),
]  # fmt: skip


def refused(query: str) -> BadPipeline:
    emit = " EMIT ON WINDOW CLOSE" if "window(" in query else " EMIT ON UPDATE"
    emit = "" if " EMIT " in query or not _GROUPS.search(query) else emit
    with pytest.raises(BadPipeline) as raised:
        compiled(f"{HEAD}CREATE STREAM s AS {query}{emit}{SINK}")
    return raised.value


def compiled(text: str) -> None:
    pipeline = parse_pipeline(text, {}, file=FILE)
    check_pipeline(pipeline, file=FILE)
    for stream in pipeline.streams.values():
        compile_select(
            read_select(stream, FILE),
            columns=COLUMNS,
            type_of=lambda _: "double",
            is_aggregate=lambda name: name in KNOWN,
        )


@pytest.mark.parametrize(("query", "said", "advice"), REFUSALS)
def test_a_refusal_has_its_reason_and_a_way_around(query: str, said: str, advice: str) -> None:
    error = refused(query)
    assert said in error.message
    assert advice in error.advice


@pytest.mark.parametrize("advised", [*WORDS.values(), *REFUSED.values()])
def test_each_of_the_tables_has_both(advised: object) -> None:
    assert len(getattr(advised, "reason", "")) > 10
    assert len(getattr(advised, "advice", "")) > 10


SYNTAX = (
    *("follows", "expected", "missing", "nothing", "closed", "closes", "not SQL", "is not known"),
    *("invalid literal", "a comment ends", "is defined twice", "there is no column", "semicolon"),
    *("USING", " after {kind}"),
    *("is given twice", "is not a variable", "not UTF-8", "an input", "to take event times from"),
)
"""What a message says that is of a text that is no SQL: what is missing is all there is to say."""


def test_every_other_refusal_of_the_compiler_has_an_advice() -> None:
    """Looked for in the source: a call of bad() with a message alone."""
    bare = []
    for file in Path(lamina.pipeline.__path__[0]).glob("*.py"):
        if file.name in ("cursor.py", "statements.py", "variables.py", "builder.py", "tokens.py"):
            continue  # they read text, and say what comes next
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or len(node.args) != 2 or node.keywords:
                continue
            is_bad = isinstance(node.func, ast.Attribute) and node.func.attr == "bad"
            said = ast.unparse(node.args[0])
            if is_bad and not any(word in said for word in SYNTAX):
                bare.append(f"{file.name}: {said}")
    assert not bare
