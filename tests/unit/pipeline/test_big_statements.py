"""Long and deep statements: they take seconds, and no stack."""

from __future__ import annotations

from time import process_time

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline

HEAD = """CREATE SOURCE t (k STRING, a BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in');
CREATE STREAM s AS """
TAIL = ";CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
MEGABYTE = 1 << 20
SECONDS_MAX = 60.0  # of one processor; it takes a tenth of that


def check(query: str) -> None:
    started = process_time()
    pipeline = parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    assert process_time() - started < SECONDS_MAX


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k FROM t WHERE a IN ({', '.join(map(str, range(MEGABYTE // 8)))})",
        f"SELECT k /* {'x' * MEGABYTE} */ FROM t",
        f"SELECT '{'x' * MEGABYTE}' AS x FROM t",
    ],
    ids=["list", "comment", "literal"],
)
def test_a_statement_of_a_megabyte_is_checked_in_seconds(query: str) -> None:
    check(query)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT {'abs(' * 8000}a{')' * 8000} AS x FROM t",
        f"SELECT {'(' * 20000}a{')' * 20000} AS x FROM t",
        " UNION ALL ".join(["SELECT k FROM t"] * 1000),
        f"SELECT {', '.join(f'a + {i} AS a{i}' for i in range(4000))} FROM t",
    ],
    ids=["calls", "brackets", "union", "columns"],
)
def test_many_parts_and_deep_ones_are_checked_in_seconds(query: str) -> None:
    check(query)


def test_queries_inside_of_each_other_end_somewhere() -> None:
    with pytest.raises(BadPipeline, match="more than 50 queries inside of each other"):
        check("SELECT k FROM (" * 5000 + "SELECT k FROM t" + ")" * 5000)


def test_a_query_that_reads_itself_is_refused() -> None:
    with pytest.raises(BadPipeline, match="WITH RECURSIVE: a stream has no end to come to"):
        check("WITH RECURSIVE r AS (SELECT k FROM t UNION ALL SELECT k FROM r) SELECT k FROM r")
    with pytest.raises(BadPipeline, match="there is no source or stream 'r'"):
        check("WITH r AS (SELECT k FROM r) SELECT k FROM r")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT k FROM t WHERE a = (SELECT max(a) FROM t)",
            "a query inside an expression over 't'",
        ),
        ("SELECT k FROM t GROUP BY k HAVING k IN (SELECT a FROM t)", "SELECT inside an expression"),
        (
            "SELECT k, (SELECT max(a) FROM t) AS most FROM t",
            "a query inside an expression over 't'",
        ),
        ("SELECT k, a FROM (SELECT k, a FROM t WHERE a > (SELECT avg(a) FROM t))", "over 't'"),
    ],
)
def test_a_value_that_is_never_complete_is_refused(query: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        check(query)
    assert said in caught.value.message
    assert "closed windows" in caught.value.advice
    assert caught.value.where.startswith("p.sql:2:")
