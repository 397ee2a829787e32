"""Queries inside of queries: which blocks they are, what each reads, and where errors point."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, order, parse_pipeline
from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.model import Emit, Pipeline
from lamina.pipeline.select import read_select

HEAD = """CREATE SOURCE t (k STRING, a INT, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE SOURCE u (b INT, at TIMESTAMP) USING json OPTIONS (path 'other')
  WATERMARK at DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM s AS
"""
TAIL = """;
CREATE SINK o FROM s USING parquet OPTIONS (path 'out');
CREATE STREAM rest AS SELECT * FROM u;
CREATE SINK o2 FROM rest USING parquet OPTIONS (path 'out2');
CREATE STREAM more AS SELECT * FROM t;
CREATE SINK o3 FROM more USING parquet OPTIONS (path 'out3');
"""


def parsed(query: str) -> Pipeline:
    return parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")


def blocks(query: str) -> dict[str, tuple[str, ...]]:
    """The blocks of the stream, in order, and what each reads."""
    pipeline = parsed(query)
    check_pipeline(pipeline, file="p.sql")
    mine = {n: s for n, s in pipeline.streams.items() if n == "s" or s.block_of == "s"}
    assert [n for n in order(pipeline) if n in mine] == list(mine)
    return {name: read_select(stream, "p.sql").reads for name, stream in mine.items()}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT a FROM (SELECT a FROM t)", {"s.subquery": ("t",), "s": ("s.subquery",)}),
        ("SELECT x.a FROM (SELECT a FROM t) AS X", {"s.x": ("t",), "s": ("s.x",)}),
        ("SELECT a FROM ((SELECT a FROM t)) y", {"s.y": ("t",), "s": ("s.y",)}),
        (
            "WITH p AS (SELECT a FROM t), q AS (SELECT a FROM P WHERE a > 1) SELECT a FROM q",
            {"s.p": ("t",), "s.q": ("s.p",), "s": ("s.q",)},
        ),
        (
            "SELECT a FROM t UNION ALL SELECT b FROM u",
            {"s.1": ("t",), "s.2": ("u",), "s": ("s.1", "s.2")},
        ),
        (
            "(SELECT a FROM t) UNION ALL (SELECT b FROM u) UNION ALL SELECT 1 AS a FROM t",
            {"s.1": ("t",), "s.2": ("u",), "s.3": ("t",), "s": ("s.1", "s.2", "s.3")},
        ),
        (
            "WITH p AS (SELECT a FROM t) SELECT a FROM p UNION ALL SELECT a FROM p",
            {"s.p": ("t",), "s.1": ("s.p",), "s.2": ("s.p",), "s": ("s.1", "s.2")},
        ),
        (
            "SELECT a FROM (SELECT a FROM t UNION ALL SELECT b FROM u) z",
            {"s.z.1": ("t",), "s.z.2": ("u",), "s.z": ("s.z.1", "s.z.2"), "s": ("s.z",)},
        ),
        (  # a name of WITH hides a source, but not in its own text
            "WITH t AS (SELECT a FROM t) SELECT a FROM t",
            {"s.t": ("t",), "s": ("s.t",)},
        ),
        ("(SELECT a FROM t)", {"s": ("t",)}),
        (
            "SELECT `union`, a.union FROM (SELECT 1 AS `union` FROM t) a",
            {"s.a": ("t",), "s": ("s.a",)},
        ),
    ],
)
def test_each_query_inside_is_a_block(query: str, wanted: dict[str, tuple[str, ...]]) -> None:
    assert blocks(query) == wanted


@pytest.mark.parametrize(
    ("query", "said", "place"),
    [
        (
            "SELECT a FROM (SELECT nothing\n  FROM missing) x",
            "no source or stream 'missing'",
            "7:8",
        ),
        ("SELECT a FROM (SELECT a FROM t LIMIT 5)", "LIMIT in a stream", "6:32"),
        ("SELECT a FROM t UNION SELECT b FROM u", "UNION would keep every row", "6:17"),
        ("WITH RECURSIVE x AS (SELECT a FROM t) SELECT a FROM x", "WITH RECURSIVE", "6:6"),
        ("WITH x (b) AS (SELECT a FROM t) SELECT b FROM x", "a list of columns", "6:8"),
        ("WITH x AS (SELECT a FROM t)", "a SELECT follows WITH", "6:28"),
        ("WITH x AS (a) SELECT a FROM x", "a SELECT is expected in the brackets", "6:12"),
        ("WITH x AS (SELECT a FROM t), x AS (SELECT a FROM t) SELECT a FROM x", "twice", "6:30"),
        ("SELECT a FROM t UNION ALL", "UNION in a stream", "6:17"),
        (
            "SELECT a FROM (SELECT k, sum(a) AS a FROM t GROUP BY k) UNION ALL SELECT b FROM u",
            "UNION ALL over the updating stream 's.1.subquery'",
            "6:1",
        ),
        (
            "SELECT sum(a) AS a FROM (SELECT k, sum(a) AS a FROM t GROUP BY k EMIT ON UPDATE)"
            " EMIT ON UPDATE",
            "an aggregate over the updating stream 's.subquery'",
            "6:25",
        ),
        (
            "SELECT sum(n) AS n FROM (SELECT a AS n, ts FROM t UNION ALL SELECT 1, at + INTERVAL 1"
            " DAY FROM u) GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE",
            "",
            "",
        ),
        (
            "SELECT sum(n) AS n FROM (SELECT a AS n, ts FROM t UNION ALL SELECT b, at FROM v)"
            " GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE",
            "there is no source or stream 'v'",
            "6:79",
        ),
    ],
)
def test_errors_inside_point_at_their_place_in_the_file(query: str, said: str, place: str) -> None:
    if not said:
        blocks(query)
        return
    with pytest.raises(BadPipeline) as caught:
        blocks(query)
    assert said in caught.value.message
    assert caught.value.where == f"p.sql:{place}"


def test_an_event_time_is_followed_through_every_part_of_a_union() -> None:
    query = (
        "SELECT count(*) AS n FROM (SELECT k, ts FROM t UNION ALL SELECT 'x', ts FROM w) GROUP BY"
        " window(ts, '1 minute') EMIT ON WINDOW CLOSE"
    )
    other = (
        "CREATE SOURCE w (ts TIMESTAMP, real TIMESTAMP) USING json OPTIONS (path 'w')"
        " WATERMARK real DELAY OF INTERVAL 1 SECOND;"
    )
    pipeline = parse_pipeline(other + HEAD + query + TAIL, {}, file="p.sql")
    with pytest.raises(BadPipeline, match="the watermark of 'w' is on 'real'"):
        check_pipeline(pipeline, file="p.sql")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        # without a word a window inside closes, and other state emits on update
        ("SELECT n FROM (SELECT count(*) AS n FROM t GROUP BY window(ts, '1 minute'))",
         {"s.subquery": Emit.ON_WINDOW_CLOSE, "s": None}),
        ("SELECT n FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
         {"s.subquery": Emit.ON_UPDATE, "s": None}),
        # the EMIT of a stream without state is meant for what is inside
        ("SELECT n FROM (SELECT count(*) AS n FROM t GROUP BY window(ts, '1 day')) EMIT ON UPDATE",
         {"s.subquery": Emit.ON_UPDATE, "s": None}),
        # and the one inside for itself
        ("SELECT max(n) AS n FROM (SELECT window.start AS w, count(*) AS n FROM t"
         " GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE) EMIT ON UPDATE",
         {"s.subquery": Emit.ON_WINDOW_CLOSE, "s": Emit.ON_UPDATE}),
        ("SELECT k FROM (SELECT DISTINCT k FROM t)", {"s.subquery": None, "s": None}),
        ("WITH p AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT n FROM p EMIT ON UPDATE",
         {"s.p": Emit.ON_UPDATE, "s": None}),
    ],
)  # fmt: skip
def test_when_the_rows_of_each_block_come_out(query: str, wanted: dict[str, Emit | None]) -> None:
    pipeline = parsed(query)
    check_pipeline(pipeline, file="p.sql")
    assert {n: pipeline.streams[n].emit for n in wanted} == wanted


def test_a_block_cannot_have_the_name_of_a_stream() -> None:
    query = "SELECT a FROM (SELECT a FROM t) AS b"
    other = "CREATE STREAM `s.b` AS SELECT a FROM t;"
    with pytest.raises(BadPipeline, match=r"'s\.b' is already the name of a stream"):
        parse_pipeline(other + HEAD + query + TAIL, {}, file="p.sql")


def test_queries_can_stand_only_so_deep() -> None:
    query = "SELECT a FROM " + "(SELECT a FROM " * 60 + "t" + ")" * 60
    with pytest.raises(BadPipeline, match="more than 50 queries"):
        parsed(query)


def test_a_name_of_with_that_nothing_reads_is_refused() -> None:
    pipeline = parsed("WITH x AS (SELECT a FROM t) SELECT b AS a FROM u")
    with pytest.raises(BadPipeline, match=r"nothing reads the stream 's\.x'"):
        check_pipeline(pipeline, file="p.sql")


def test_a_program_may_build_twice() -> None:
    builder = PipelineBuilder().source("t", "a INT", "json", {"path": "in"})
    builder.stream("s", "WITH x AS (SELECT a FROM t) SELECT a FROM x")
    assert list(builder.build().streams) == list(builder.build().streams) == ["s.x", "s"]


def test_a_variable_belongs_to_the_block_it_stands_in() -> None:
    query = "SELECT k FROM (SELECT k FROM t WHERE k = '${ONE}') WHERE k <> '${TWO}'"
    pipeline = parse_pipeline(HEAD + query + TAIL, {"ONE": "1", "TWO": "2"}, file="p.sql")
    assert pipeline.streams["s.subquery"].variables == {"ONE": "1"}


@pytest.mark.parametrize("word", ["EXCEPT", "INTERSECT", "EXCEPT ALL", "MINUS"])
def test_other_sets_of_two_queries_are_refused_with_the_joins_that_do_it(word: str) -> None:
    name = word.removesuffix(" ALL")
    with pytest.raises(BadPipeline, match=f"{name} of two streams: a row that") as said:
        parsed(f"SELECT a FROM t {word} SELECT b FROM u")
    assert "LEFT SEMI JOIN" in said.value.advice
    assert blocks("SELECT * EXCEPT (a) FROM (SELECT * FROM t)")
