"""row_number(): which forms are known, how many rows they keep, and what is said of the others."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.compile import compile_select
from lamina.pipeline.model import Place, Stream
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.select import read_select

HEAD = """CREATE SOURCE t (k STRING, a INT, b INT, ts TIMESTAMP) USING json OPTIONS (path 'in');
CREATE STREAM s AS
"""
TAIL = """ EMIT ON UPDATE;
CREATE SINK o FROM s USING parquet OPTIONS (path 'out');
"""
OVER = "row_number() OVER (PARTITION BY k ORDER BY a DESC)"


def kept(query: str) -> int | None:
    """How many rows of a key the block that ranks keeps."""
    pipeline = parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    (ranked,) = (
        (stream, select.ranked)
        for stream in pipeline.streams.values()
        if (select := read_select(stream, "p.sql")).ranked is not None
    )
    stream, rank = ranked
    return rank.limit if rank is not None and rank.limit is not None else stream.top


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        (f"SELECT k, a FROM t QUALIFY {OVER} = 1", 1),
        (f"SELECT k, a FROM t QUALIFY {OVER} <= 5", 5),
        (f"SELECT k, a, {OVER} AS n FROM t QUALIFY n < 5", 4),
        (f"SELECT k, a, {OVER} AS n FROM t QUALIFY 5 >= {OVER}", 5),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= 3", 3),
        (f"SELECT x.a FROM (SELECT *, {OVER} AS n FROM t) x WHERE k = '' AND x.n BETWEEN 1 AND 4",
         4),
        (f"SELECT * FROM (SELECT *, {OVER} n FROM t) WHERE 3 > n", 2),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n = 2", 2),
        (f"WITH r AS (SELECT *, {OVER} AS n FROM t) SELECT * FROM r WHERE n <= 3 AND n <= 9", 3),
    ],
)  # fmt: skip
def test_a_condition_says_how_many_rows_are_kept(query: str, limit: int) -> None:
    assert kept(query) == limit


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (f"SELECT k, {OVER} AS n FROM t", "without a limit would keep every row"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t)", "without a limit would keep every row"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= 3 OR k = ''", "without a limit"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n > 3", "without a limit"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= a", "without a limit"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= 0", "between 1 and 10000"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM t) WHERE n <= 3 AND a > 5",
         "WHERE over the updating stream 's.subquery'"),
        (f"SELECT k FROM t QUALIFY {OVER} = 2", "QUALIFY is row_number() <= n, or = 1"),
        (f"SELECT k FROM t QUALIFY {OVER} <= 2 AND a > 1", "QUALIFY is row_number() <= n"),
        ("SELECT k FROM t QUALIFY a > 1", "QUALIFY without row_number()"),
        (f"SELECT {OVER} AS n FROM t QUALIFY row_number() OVER (ORDER BY b) = 1", "another rank"),
        (f"SELECT {OVER} AS n, row_number() OVER (ORDER BY b) AS m FROM t", "two ranks"),
        ("SELECT row_number() OVER (PARTITION BY k) AS n FROM t", "without ORDER BY"),
        ("SELECT row_number() OVER (ORDER BY a NULLS b) AS n FROM t", "NULLS FIRST or NULLS LAST"),
        ("SELECT row_number() OVER (ORDER BY a, DESC) AS n FROM t", "an expression is missing"),
        ("SELECT row_number() OVER (SORT BY a ORDER BY b) AS n FROM t", "PARTITION BY is expected"),
        ("SELECT rank() OVER (PARTITION BY k ORDER BY a) AS n FROM t", "rank() OVER in a stream"),
        ("SELECT lag(a) OVER (PARTITION BY k ORDER BY a) AS n FROM t", "lag() OVER in a stream"),
        ("SELECT sum(a) OVER (PARTITION BY k) AS n FROM t", "sum() OVER in a stream"),
        ("SELECT a + sum(b) FILTER (WHERE b > 1) OVER w AS n FROM t", "sum() OVER in a stream"),
        (f"SELECT {OVER} + 1 AS n FROM t", "row_number() inside an expression"),
        (f"SELECT k, count(*) AS c, {OVER} AS n FROM t GROUP BY k QUALIFY n <= 3",
         "row_number() beside GROUP BY"),
        (f"SELECT * FROM (SELECT *, {OVER} AS n FROM (SELECT k, sum(a) AS a FROM t GROUP BY k))"
         " WHERE n <= 3", "EMIT ON UPDATE over the changes of"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_with_the_reason(query: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        kept(query)
    assert said in caught.value.message
    assert caught.value.where.startswith("p.sql:3:")


def test_a_single_row_of_each_key_is_found_without_a_list_of_all() -> None:
    for way, function in (("DESC", "max"), ("ASC", "min")):
        over = f"row_number() OVER (PARTITION BY k ORDER BY a {way})"
        text = _partial(f"SELECT k, a FROM t QUALIFY {over} = 1")
        assert f"array_compact(array({function}(named_struct('o0', a, 'c1', a)))) AS p0" in text
        assert "collect_list" in _partial(f"SELECT k, a FROM t QUALIFY {over} <= 2")


def test_what_goes_the_other_way_is_turned_around() -> None:
    """Lists are sorted in one direction: that of the first."""
    over = "row_number() OVER (PARTITION BY k ORDER BY a DESC NULLS FIRST, b, k ASC NULLS LAST)"
    text = _partial(f"SELECT k, a FROM t QUALIFY {over} <= 2", kind="bigint")
    fields = "'n0', (a) IS NULL, 'o0', a, 'n1', (b) IS NULL, 'o1', ~(b), 'n2', (k) IS NOT NULL, "
    assert f"named_struct({fields}'o2', ~(k), 'c1', a)), false)" in text
    plain = "row_number() OVER (PARTITION BY k ORDER BY a NULLS FIRST, b ASC)"
    assert "named_struct('o0', a, 'o1', b, 'c1', a)" in _partial(
        f"SELECT k, a FROM t QUALIFY {plain} = 1"
    )
    with pytest.raises(BadPipeline, match="in one ORDER BY, over map<int,int>"):
        _partial(f"SELECT k, a FROM t QUALIFY {over} = 1", kind="map<int,int>")


def _partial(text: str, kind: str = "") -> str:
    select = read_select(Stream("s", text, place=Place(1, 1)), "p.sql")
    plan = compile_select(
        select,
        columns=["k", "a", "b"],
        type_of=lambda text: (
            kind if kind and "sort_array" not in text else "array<struct<a:bigint>>"
        ),
        is_aggregate=lambda _: False,
    )
    assert isinstance(plan, Aggregation)
    return plan.partial("V")
