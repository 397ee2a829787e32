"""One SELECT block: what is taken apart, and what is refused by name and with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, order, parse_pipeline
from lamina.pipeline.model import Place, Stream
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.tokens import Script, read_script


def select(text: str) -> Select:
    return read_select(Stream("s", text, place=Place(3, 5)), "p.sql")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT DISTINCT ON a, b FROM t", "DISTINCT ON without its keys"),
        ("SELECT DISTINCT ON () a FROM t", "a key is missing in DISTINCT ON"),
        ("SELECT DISTINCT ON (a,) a FROM t", "a key is missing in DISTINCT ON"),
        ("SELECT DISTINCT ON (a) FROM t", "the columns are missing behind DISTINCT ON"),
        ("SELECT DISTINCT ON (a) a FROM t ORDER BY", "nothing follows ORDER BY"),
        ("SELECT DISTINCT ON (a) a FROM t ORDER BY a,", "nothing follows ORDER BY"),
        ("SELECT DISTINCT ON (a) a FROM t ORDER BY a LIMIT 1", "LIMIT in a stream"),
        ("SELECT DISTINCT a FROM t ORDER BY a", "ORDER BY in a stream"),
        ("SELECT a FROM t ORDER BY a", "ORDER BY in a stream: a stream has no last row"),
        ("SELECT a FROM t ORDER BY (a)", "ORDER BY in a stream"),
        ("SELECT a FROM t WHERE a ORDER /* x */ BY a", "ORDER BY in a stream"),
        ("SELECT a FROM t SORT BY a", "SORT BY in a stream"),
        ("SELECT a FROM t CLUSTER BY a", "CLUSTER BY in a stream"),
        ("SELECT a FROM t DISTRIBUTE BY a", "DISTRIBUTE BY in a stream"),
        ("SELECT a FROM t LIMIT 5", "LIMIT in a stream: a stream has no end"),
        ("SELECT a FROM t WHERE b LIMIT (5)", "LIMIT in a stream"),
        ("SELECT a FROM t OFFSET 5", "OFFSET in a stream"),
        ("SELECT a FROM t UNION ALL TABLE u", "UNION in a stream"),
        ("SELECT a FROM t WHERE b UNION (TABLE u)", "UNION in a stream"),
        ("SELECT a FROM t EXCEPT TABLE u", "EXCEPT in a stream"),
        ("SELECT a FROM t INTERSECT TABLE u", "INTERSECT in a stream"),
        ("SELECT a FROM t MINUS TABLE u", "MINUS in a stream"),
        ("SELECT a FROM t NATURAL JOIN u", "NATURAL JOIN in a stream: its columns would change"),
        ("SELECT a FROM t LEFT JOIN u", "LEFT JOIN without ON"),
        ("SELECT a FROM t JOIN u ON", "a condition follows ON"),
        ("SELECT a FROM t JOIN u USING a", "columns in brackets follow USING"),
        ("SELECT a FROM t JOIN u USING (a + 1)", "the names of columns follow USING"),
        ("SELECT a FROM t x JOIN u X ON x.a = x.b", "two tables of FROM are called 'X'"),
        ("SELECT a FROM t, ", "a source or a stream is missing in FROM"),
        ("SELECT a FROM t JOIN (SELECT b FROM u) ON a = b", "a subquery beside a join has a name"),
        ("SELECT a FROM t JOIN u v w ON a = b", "'w' is not known after FROM u"),
        ("SELECT a FROM t STATE TTL INTERVAL 1 DAY", "STATE TTL without a join"),
        ("SELECT a FROM t JOIN u ON a = b LATERAL VIEW explode(c) e", "LATERAL beside a join"),
        ("SELECT a FROM t LATERAL VIEW explode(c) e AS x JOIN u ON a = b", "the names of columns"),
        (
            "SELECT a FROM t LATERAL VIEW explode(b) AS c",
            "a name follows the function of LATERAL VIEW",
        ),
        ("SELECT a FROM t LATERAL VIEW OUTER", "a function follows LATERAL"),
        ("SELECT a FROM t, LATERAL explode(b)", "a name follows the function of LATERAL"),
        ("SELECT a FROM t, LATERAL explode(b) e x", "'x' is not known behind LATERAL"),
        ("SELECT a FROM t LATERAL VIEW explode(b) e AS c.d", "the names of columns are expected"),
        ("SELECT a FROM t LATERAL VIEW explode(b) e AS", "the names of columns follow AS"),
        ("SELECT a FROM t, LATERAL (SELECT 1)", "SELECT inside an expression"),
        ("SELECT a FROM t LEFT JOIN LATERAL explode(b) e ON c", "'ON' is not known"),
        ("SELECT a FROM t QUALIFY a > 1", "QUALIFY without row_number()"),
        ("SELECT a FROM t WINDOW w AS (PARTITION BY a)", "WINDOW in a stream"),
        ("SELECT a FROM t TABLESAMPLE (5 ROWS)", "TABLESAMPLE in a stream"),
        ("SELECT a FROM t PIVOT (sum(a) FOR b IN (1))", "PIVOT in a stream"),
        ("SELECT a FROM t UNPIVOT (a FOR b IN (c))", "UNPIVOT in a stream"),
        ("SELECT a FROM t WHERE b |> LIMIT 5", "|> in a stream"),
        ("SELECT a FROM t GROUP BY a GROUPING SETS ((a), ())", "GROUPING SETS behind an expr"),
        ("SELECT a FROM t GROUP BY ROLLUP (a) b", "'b' after ROLLUP (...)"),
        ("SELECT a FROM t GROUP BY ROLLUP ()", "an expression is missing"),
        ("SELECT a FROM t GROUP BY CUBE (a,, b)", "an expression is missing"),
        ("SELECT a FROM t GROUP BY GROUPING SETS ((), ())", "the same set twice: ()"),
        ("SELECT a FROM t GROUP BY a, ROLLUP (a, b)", "the same set twice: a; its rows"),
        ("SELECT a FROM t GROUP BY CUBE (a, b, c, d, e, f, g, h, i)", "more than 256 sets"),
        (
            "SELECT a FROM t GROUP BY " + ", ".join(f"CUBE (a{i}, b{i})" for i in range(30)),
            "more than 256 sets",
        ),
        ("SELECT a FROM (TABLE t)", "TABLE inside an expression"),
        ("SELECT a FROM (t)", "a source, a stream or a subquery is expected in FROM"),
        ("SELECT a FROM t WHERE a = (SELECT b FROM u)", "SELECT inside an expression"),
        ("SELECT a FROM t WHERE a IN (TABLE u)", "TABLE inside an expression"),
        ("SELECT a FROM t WHERE a IN (VALUES 1)", "VALUES inside an expression"),
        ("WITH u AS (SELECT 1) SELECT a FROM u", "must begin with SELECT"),
        ("SELECT 1", "reads FROM a source or a stream"),
        ("SELECT a FROM 'x'", "a source, a stream or a subquery is expected in FROM"),
        ("SELECT a FROM range(5)", "'(' is not known after FROM range"),
        ("SELECT a FROM db.t", "'.' is not known after FROM db"),
        ("SELECT a FROM t u v", "'v' is not known after FROM t"),
        ("SELECT a FROM t AS", "a name follows AS"),
        ("SELECT FROM t", "nothing follows SELECT"),
        ("SELECT a FROM", "nothing follows FROM"),
        ("SELECT a FROM t WHERE", "nothing follows WHERE"),
        ("SELECT a FROM t WHERE a WHERE b", "WHERE is in the wrong place"),
        ("SELECT a FROM t GROUP BY a WHERE b", "WHERE is in the wrong place"),
        ("SELECT a,, b FROM t", "an expression is missing"),
        ("SELECT a, FROM t", "an expression is missing"),
        ("SELECT AS b FROM t", "an expression is missing"),
        ("SELECT a AS 'b' FROM t", "the name of a column follows AS"),
        ("SELECT a AS b c FROM t", "the name of a column follows AS"),
        ("SELECT /*+ BROADCAST(x) */ a FROM t", "a hint"),
    ],
)
def test_what_a_stream_cannot_be_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        select(text)
    assert said in caught.value.message
    assert caught.value.where.startswith("p.sql:3:")


def test_the_place_of_a_refusal_counts_from_where_the_select_stands() -> None:
    with pytest.raises(BadPipeline) as caught:
        select("SELECT a\n\tFROM t\n  LIMIT 5")
    assert caught.value.where == "p.sql:5:3"
    with pytest.raises(BadPipeline) as caught:
        read_select(Stream("s", "SELECT a FROM t LIMIT 5"), "p.sql")
    assert caught.value.where == "stream s:1:17"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t.limit, `limit`, limit.x, t.offset AS union FROM t",
        "SELECT left(a, 2) AS l, window.start, window, t.cube, cube, over FROM t",
        "SELECT * EXCEPT (a) FROM t WHERE a IS NOT DISTINCT FROM b",
        "SELECT extract(day FROM ts) AS d, trim(BOTH ' ' FROM s) AS s FROM t WHERE s LIKE '('",
        "SELECT a FROM t WHERE a = 'x LIMIT 5' -- ORDER BY a\n",
        "SELECT explode(m) AS (k, v) FROM t",
        "SELECT t.select, t.from, t.where FROM t",
    ],
)
def test_keywords_are_names_where_nothing_else_can_be_meant(text: str) -> None:
    assert select(text).table.text == "t"


@pytest.mark.parametrize(
    ("item", "words", "alias"),
    [
        ("a b", "a", "b"),
        ("a", "a", None),
        ("t.a b", "t.a", "b"),
        ("t.a", "t.a", None),
        ("a `b c`", "a", "b c"),
        ("x IS NULL y", "x IS NULL", "y"),
        ("x IS NOT NULL", "x IS NOT NULL", None),
        ("NOT x", "NOT x", None),
        ("CASE WHEN a THEN b END c", "CASE WHEN a THEN b END", "c"),
        ("CASE WHEN a THEN b END", "CASE WHEN a THEN b END", None),
        ("CASE WHEN a THEN b ELSE c END", "CASE WHEN a THEN b ELSE c END", None),
        ("window.end", "window.end", None),
        ("window.end e", "window.end", "e"),
        ("1 one", "1", "one"),
        ("1L", "1L", None),
        ("1L one", "1L", "one"),
        ("interval 1 day d", "interval 1 day", "d"),
        ("interval 1 day", "interval 1 day", None),
        ("interval 1 day 2 hours", "interval 1 day 2 hours", None),
        ("interval '1-2' year to month", "interval '1-2' year to month", None),
        ("interval (1 + 1) days", "interval (1 + 1) days", None),
        ("interval -1 day", "interval -1 day", None),
        ("a + interval 1 day d", "a + interval 1 day", "d"),
        ("date '2020-01-01' d", "date '2020-01-01'", "d"),
        ("date '2020-01-01'", "date '2020-01-01'", None),
        ("a AND b", "a AND b", None),
        ("a AND b c", "a AND b", "c"),
        ("a DIV b", "a DIV b", None),
        ("a LIKE b", "a LIKE b", None),
        ("a RLIKE b c", "a RLIKE b", "c"),
        ("a BETWEEN b AND c", "a BETWEEN b AND c", None),
        ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b", None),
        ("a[0] b", "a[0]", "b"),
        ("a[0]", "a[0]", None),
        ("a::int", "a::int", None),
        ("a::int b", "a::int", "b"),
        ("NULL n", "NULL", "n"),
        ("'x'", "'x'", None),
        ("'x' y", "'x'", "y"),
        ("sum(a) FILTER (WHERE b) c", "sum(a) FILTER (WHERE b)", "c"),
        ("sum(a)c", "sum(a)", "c"),
        ("cast(a AS int) AS b", "cast(a AS int)", "b"),
        ("a COLLATE UTF8_BINARY", "a COLLATE UTF8_BINARY", None),
        ("x'4142'", "x'4142'", None),
    ],
)
def test_an_expression_ends_where_its_name_begins(item: str, words: str, alias: str | None) -> None:
    read = select(f"SELECT {item} FROM t")
    assert [(read.text(i.words), i.alias) for i in read.items] == [(words, alias)]


def test_a_comment_between_two_words_of_a_clause_hides_no_group_by() -> None:
    read = select("SELECT a FROM t WHERE b GROUP /* not */\n-- here\nBY a, b + 1")
    assert [read.text(key) for key in read.keys] == ["a", "b + 1"]
    assert read.text(read.where) == "b"


def test_a_select_was_parsed_seven_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each of the checks, the order of streams and the compiler."""
    parsed: list[str] = []

    def counted(text: str, *where: Any) -> Script:
        parsed.append(text)
        return read_script(text, *where)

    monkeypatch.setattr("lamina.pipeline.select.read_script", counted)
    text = (
        "CREATE SOURCE t (only_here STRING) USING json;"
        "CREATE STREAM s AS SELECT only_here, count(*) AS n FROM t GROUP BY only_here"
        " EMIT ON UPDATE; CREATE SINK o FROM s USING console;"
    )
    pipeline = parse_pipeline(text, file="once.sql")
    for _ in range(2):
        check_pipeline(pipeline, file="once.sql")
        assert order(pipeline, file="once.sql") == ("s",)
        assert read_select(pipeline.streams["s"], "once.sql").table.text == "t"
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("written", "keys", "sets"),
    [
        ("a, (b, c)", ["a", "(b, c)"], []),
        ("ALL", ["a", "b + 1"], []),
        ("GROUPING SETS ((a, b))", ["a", "b"], []),
        ("GROUPING SETS ((A, b), a, ())", ["A", "b"], [(0, 1), (0,), ()]),
        ("ROLLUP (a, b)", ["a", "b"], [(0, 1), (0,), ()]),
        ("rollup (a, (b, c))", ["a", "b", "c"], [(0, 1, 2), (0,), ()]),
        ("a, b WITH ROLLUP", ["a", "b"], [(0, 1), (0,), ()]),
        ("CUBE (a, f(b, 1))", ["a", "f(b, 1)"], [(0, 1), (0,), (1,), ()]),
        ("c, CUBE (a)", ["c", "a"], [(0, 1), (0,)]),
        ("ROLLUP (a), ROLLUP (b)", ["a", "b"], [(0, 1), (0,), (1,), ()]),
        ("GROUPING SETS (ROLLUP (a, b), c)", ["a", "b", "c"], [(0, 1), (0,), (), (2,)]),
    ],
)
def test_what_rows_are_grouped_by(
    written: str, keys: list[str], sets: list[tuple[int, ...]]
) -> None:
    text = f"SELECT a, b + 1 AS n, 7 AS c, sum(x) AS s FROM t GROUP BY {written}"
    select = read_select(Stream("s", text), "p.sql")
    assert [select.text(key) for key in select.keys] == keys
    assert list(select.grouping.sets) == sets
