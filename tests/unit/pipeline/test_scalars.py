"""Queries that are a value: what each becomes, and which cannot be one."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.blocks import unfold
from lamina.pipeline.model import JoinKind, Stream
from lamina.pipeline.scalars import relations_of
from lamina.pipeline.select import read_select
from lamina.pipeline.tokens import read_script

FILE = "p.sql"
GROUPS = "(SELECT k, sum(x) AS s FROM a GROUP BY k) AS g"
WINDOWS = (
    "(SELECT k, sum(x) AS s, window.end AS at FROM {0} GROUP BY k, window(ts, '1 minute')) AS {1}"
)


def blocks(select: str) -> list[Stream]:
    return unfold(Stream("s", select, tables=("t", "u")), file=FILE)


def check(query: str) -> None:
    mark = "WATERMARK ts DELAY OF INTERVAL 5 SECONDS"
    text = "".join(
        f"CREATE SOURCE {name} (k INT, x INT, y INT, ts TIMESTAMP) USING json OPTIONS (path "
        f"'{name}') {mark};\n"
        for name in ("a", "b")
    )
    text += "CREATE TABLE t (id INT, p INT) USING json OPTIONS (path 't');\n"
    both = "SELECT a.k FROM a JOIN t ON a.k = t.id UNION ALL SELECT k FROM b"
    for name, select in (("s", query), ("z", both)):
        text += f"CREATE STREAM {name} AS {select};\n"
        text += f"CREATE SINK of_{name} FROM {name} USING parquet OPTIONS (path '{name}');\n"
    pipeline = parse_pipeline(text, {}, file=FILE)
    check_pipeline(pipeline, file=FILE)


def test_a_query_over_tables_is_given_to_spark_as_it_stands() -> None:
    text = (
        "SELECT a.k,\n (SELECT max(p)\n FROM t WHERE id = a.k) AS m,\n"
        " (SELECT max(p)\n FROM t WHERE id = a.k) + 1 AS n FROM a\n"
        "WHERE EXISTS (SELECT 1 FROM u) OR k"
    )
    values, last = blocks(text)
    assert values.values is not None
    assert (values.values.left, values.values.left_alias) == ("a", "a")
    assert values.values.tables == ("t", "u")
    asked = "(SELECT max(p)\n FROM t WHERE id = a.k)"
    assert values.values.columns == (("#1", asked), ("#2", "EXISTS (SELECT 1 FROM u)"))
    assert last.select.index("AS n FROM a") == text.index("AS n FROM a")
    said = "SELECT a.k, `#1`.v AS m, `#1`.v + 1 AS n FROM a WHERE `#2`.v OR k"
    assert " ".join(last.select.split()) == said
    assert read_select(last, FILE).reads == ("s.values",)


def test_a_query_over_streams_is_a_join_with_its_groups() -> None:
    query = (
        "SELECT g.k FROM g WHERE s > (SELECT max(x) FROM b WHERE b.k = g.k AND x > 1 AND g.j = y)"
    )
    value, join, last = blocks(query)
    said = "SELECT max(x) AS v, b.k AS k1, y AS k2 FROM b WHERE (x > 1) GROUP BY b.k, y"
    assert value.select == said
    assert join.join is not None
    assert (join.join.kind, join.join.right_alias) == (JoinKind.LEFT, "#1")
    assert join.join.values == (("g.k", "`#1`.k1"), ("g.j", "`#1`.k2"))
    assert last.select.split("WHERE")[1].strip() == "s > `#1`.v"


@pytest.mark.parametrize(
    ("item", "none"),
    [
        ("count(*)", "0"),
        ("count(x) FILTER (WHERE x > 1) + 1", "0 + 1"),
        ("coalesce(sum(x), 0) - regr_count(x, y)", "coalesce(NULL, 0) - 0"),
        ("collect_list(x)", "array()"),
    ],
)
def test_what_is_not_null_of_no_rows_is_computed(item: str, none: str) -> None:
    _, _, values, _ = blocks(f"SELECT k, (SELECT {item} FROM b WHERE b.k = a.k) AS n FROM a")
    assert values.values is not None
    said = f"CASE WHEN `#1 of`.k1 IS NULL THEN ({none}) ELSE `#1 of`.v END"
    assert values.values.columns == (("#1", said),)


def test_a_value_beside_aggregates_is_asked_of_the_groups() -> None:
    """The SELECT is cut in two; what is a value of a row stays inside."""
    groups, *_, last = blocks(
        "SELECT k, b.s AS r, sum(x) AS s,\n (SELECT max(p) FROM t WHERE id = b.k) + count(*) AS p "
        "FROM a AS b WHERE y > 1\nGROUP BY k, b.s HAVING count(*) > 1 AND max(x) FILTER (WHERE "
        "y > 2) > (SELECT max(y) FROM c) AND s < b.s AND upper(k) = (SELECT min(p) FROM t)"
    )
    assert groups.name == "s.b"
    assert " ".join(groups.select.split()) == (
        "SELECT k AS `k`, b.s AS `r`, sum(x) AS `s`, max(x) FILTER (WHERE y > 2) AS `of group 1`, "
        "count(*) AS `of group 2` FROM a AS b WHERE y > 1 GROUP BY k, b.s HAVING (count(*) > 1) "
        "AND (s < b.s)"
    )
    assert last.select.count("\n") == 2
    after = " ".join(last.select.split())
    assert after.startswith("SELECT `k`, `r`, `s`, `#1`.v + `of group 2` AS `p` FROM (SELECT k AS")
    assert after.endswith("AS `b` WHERE (`of group 1` > `#2`.v ) AND (upper(k) = `#3`.v )")


def test_a_statement_of_queries_is_refused_at_once() -> None:
    many = ", ".join(f"(SELECT {n} FROM t) AS c{n}" for n in range(300))
    with pytest.raises(BadPipeline, match="more than 100 queries inside expressions"):
        check(f"SELECT {many} FROM a")


def test_without_an_aggregate_two_rows_are_an_error() -> None:
    """Where a row outside meets them, and only there."""
    value, _, values, _ = blocks("SELECT k, (SELECT y FROM b WHERE b.k = a.k) AS n FROM a")
    said = "SELECT max(y) AS v, count(*) AS n, b.k AS k1 FROM b GROUP BY b.k"
    assert value.select == said
    assert values.values is not None
    ((_, computed),) = values.values.columns
    assert computed.startswith("CASE WHEN `#1 of`.n > 1 THEN raise_error(")


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT max(p) FROM t", ("t",)),
        ("SELECT 1", ()),
        ("SELECT p FROM t a, U AS b JOIN (SELECT x FROM v WHERE y IN (SELECT z FROM w)) c ON TRUE",
         ("t", "u", "v", "w")),
        ("WITH x AS (SELECT 1 FROM t), y AS (SELECT 2) SELECT p FROM x, y", ("t",)),
        ("SELECT extract(DAY FROM d), p IS DISTINCT FROM q FROM t, range(3)", ("t",)),
        ("SELECT p FROM t UNION ALL SELECT p FROM u", ("t", "u")),
    ],
)  # fmt: skip
def test_what_a_query_reads(query: str, read: tuple[str, ...]) -> None:
    assert relations_of(read_script(query, FILE).words) == read


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k FROM {GROUPS} WHERE s > (SELECT avg(x) FROM b) EMIT CHANGES",
        f"SELECT k FROM {GROUPS} WHERE s > (SELECT sum(y) AS q FROM b GROUP BY k) EMIT CHANGES",
        "SELECT k, sum(x) AS s FROM a GROUP BY k HAVING count(*) > 1 AND sum(x) > (SELECT avg(y) "
        "FROM b) EMIT CHANGES",
        "SELECT k, window.end AS w FROM a GROUP BY k, window(ts, '1 minute') HAVING sum(x) > ("
        "SELECT max(p) FROM t WHERE id = a.k) EMIT ON WINDOW CLOSE",
        f"SELECT k FROM {WINDOWS.format('a', 'g')} WHERE s > (SELECT max(s) FROM "
        f"{WINDOWS.format('b', 'h')} WHERE h.at = g.at) EMIT ON WINDOW CLOSE",
    ],
)
def test_a_query_over_changes_or_closed_windows_is_taken(query: str) -> None:
    check(query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k FROM a WHERE x > (SELECT max(x) FROM b)", "its value changes with the rows"),
        (
            f"SELECT k FROM {WINDOWS.format('a', 'g')} WHERE s > (SELECT max(x) FROM b) "
            "EMIT ON WINDOW CLOSE",
            "its value changes with the rows",
        ),
        (f"SELECT k FROM {GROUPS} WHERE s > (SELECT max(x) FROM b) EMIT ON UPDATE", "replace"),
        (f"SELECT k FROM {GROUPS} WHERE s > (SELECT max(p) FROM t) EMIT CHANGES", "taken back"),
        (f"SELECT k FROM {GROUPS} WHERE s > (SELECT max(p) FROM t) EMIT ON UPDATE", "taken back"),
        ("SELECT k, (SELECT max(p) FROM t) FROM a", "has no name"),
        ("SELECT k FROM a WHERE x > (SELECT max(p) FROM t, b)", "over the table 't' and 'b'"),
        ("SELECT k FROM a WHERE x > (SELECT max(x) FROM nix)", "no source or stream 'nix'"),
        (
            "SELECT k, (SELECT max(p) FROM t) AS p, sum(x) AS s FROM a GROUP BY k EMIT ON UPDATE",
            "taken back or replaced",
        ),
        (
            "SELECT k, sum(x) FROM a GROUP BY k HAVING k > (SELECT max(x) FROM b) EMIT CHANGES",
            "a column without a name",
        ),
        (
            "SELECT k FROM a GROUP BY 1 HAVING sum(x) > (SELECT max(x) FROM b) EMIT CHANGES",
            "keys that are numbers",
        ),
        (
            "SELECT DISTINCT k FROM a GROUP BY k HAVING k > (SELECT max(x) FROM b) EMIT CHANGES",
            "with DISTINCT",
        ),
        ("SELECT k FROM a WHERE x = (SELECT max(x) FROM b WHERE b.k > a.k)", "equal columns only"),
        ("SELECT k FROM a WHERE x = (SELECT max(x) FROM b WHERE b.k = a.k OR y = 1)", "by equal"),
        ("SELECT k FROM a WHERE x = (SELECT max(x) FROM b WHERE b.k + a.k = a.x)", "columns only"),
        ("SELECT k FROM a WHERE x = (SELECT max(x) + a.k FROM b)", "a.k of outside"),
        ("SELECT k FROM a WHERE x = (SELECT y AS z FROM b GROUP BY y HAVING y = a.k)", "a.k of"),
        ("SELECT k FROM a WHERE x = (SELECT p FROM t) STATE TTL INTERVAL 1 DAY", "keeps no rows"),
        ("SELECT k FROM a WHERE x = (SELECT x, y FROM b)", "one column, not 2"),
        ("SELECT k FROM a WHERE x = (SELECT * FROM b)", "* in a query"),
        ("SELECT k FROM a WHERE x = (SELECT sum(y) FROM b GROUP BY k)", "one column with a name"),
        ("SELECT k FROM a WHERE x = (SELECT hll_sketch_agg(x) FROM b)", "of no rows is not known"),
        ("SELECT k FROM a JOIN t ON a.x > (SELECT max(p) FROM t)", "SELECT inside an expression"),
        ("SELECT k FROM a WHERE x > ALL (SELECT p FROM t)", "SELECT inside an expression"),
        ("SELECT k FROM a WHERE x > 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "under OR"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_value_is_refused(query: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        check(query)
    assert said in str(caught.value)
    assert f"{FILE}:4:" in str(caught.value)
