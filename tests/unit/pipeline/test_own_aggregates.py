"""CREATE AGGREGATE FUNCTION, and where the user's own aggregates may be called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import PipelineBuilder, check_pipeline, parse_pipeline
from lamina.pipeline.aggregate_model import Own
from lamina.pipeline.blocks import keeps_state
from lamina.pipeline.compile import compile_select
from lamina.pipeline.digests import words_of
from lamina.pipeline.model import Code, Column, DeclaredFunction
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.select import read_select
from lamina.state.merge import Merge

SOURCE = (
    "CREATE SOURCE t (k STRING, x DOUBLE, ts TIMESTAMP) USING json OPTIONS (path 'in')"
    " WATERMARK ts DELAY OF INTERVAL 1 SECOND;"
)
OWN = "CREATE AGGREGATE FUNCTION Mine(x DOUBLE) RETURNS INT LANGUAGE PYTHON AS 'm:C'"
SINK = "CREATE SINK o FROM s USING parquet OPTIONS (path 'out')"


def pipeline_of(select: str, own: str = OWN) -> Any:
    return parse_pipeline(f"{SOURCE}CREATE STREAM s AS {select};{SINK};{own};")


def compiled(select: str, **more: Any) -> Aggregation:
    stream = pipeline_of(f"{select} EMIT ON UPDATE").streams["s"]
    plan = compile_select(
        read_select(stream, "p.sql"),
        columns=["k", "x", "ts"],
        type_of=lambda text: "struct<a0:double>" if text.startswith("named") else "double",
        is_aggregate=lambda name: name in ("sum", "count"),
        **more,
    )
    assert isinstance(plan, Aggregation)
    return plan


def test_an_aggregate_is_declared_as_functions_are() -> None:
    declared = pipeline_of("SELECT k FROM t", f"{OWN} VERSION '7'").functions["Mine"]
    assert declared == DeclaredFunction(
        "Mine", (Column("x", "DOUBLE"),), "INT", Code("m:C", "7"), is_aggregate=True
    )
    builder = PipelineBuilder().source("t", "x DOUBLE", "json", {"path": "in"})
    built = builder.aggregate("Mine", Code, "x DOUBLE", "INT", version="7").build()
    assert replace(built.functions["Mine"], code=declared.code) == declared
    assert built.functions["Mine"].code.made is Code


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (OWN.replace("PYTHON", "PYTHON PARAMETER STYLE ARROW"), "always called with Arrow columns"),
        (OWN.replace("(x DOUBLE)", "()"), "a column"),
        (OWN.replace("AGGREGATE FUNCTION", "AGGREGATE"), "AGGREGATE FUNCTION is expected"),
        (OWN.replace("'m:C'", "m"), "as 'module:Class'"),
        (f"{OWN}; {OWN.replace('AGGREGATE ', '')}", "the function 'Mine' is defined twice"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(own: str, said: str) -> None:
    with pytest.raises(BadPipeline) as raised:
        pipeline_of("SELECT k FROM t", own)
    assert said in str(raised.value)


def test_a_select_that_calls_one_keeps_state() -> None:
    """Also where nothing else says so: no GROUP BY, GROUP BY ALL, a subquery."""
    streams = pipeline_of("SELECT mine(x) AS m FROM t EMIT ON UPDATE").streams
    assert keeps_state(read_select(streams["s"], "p"))
    streams = pipeline_of("SELECT k, 1 + MINE(x) AS m FROM t GROUP BY ALL EMIT ON UPDATE").streams
    assert [words[0].text for words in read_select(streams["s"], "p").keys] == ["k"]
    streams = pipeline_of("SELECT m FROM (SELECT mine(x) AS m FROM t)").streams
    assert keeps_state(read_select(streams["s.subquery"], "p"))
    assert streams["s.subquery"].emit is not None


def test_its_column_has_arguments_of_rows_and_a_name_of_its_own() -> None:
    plan = compiled(
        "SELECT k, mine(x) AS a, mine(x) FILTER (WHERE x > 1) AS b, sum(x) AS c FROM t GROUP BY k"
    )
    assert plan.own == (("p0", Own("Mine")), ("p1", Own("Mine")))
    assert plan.merges == (
        Merge("python", ("p0",)),
        Merge("python", ("p1",)),
        Merge("sum", ("p2",)),
    )
    assert plan.meanings == ("k", "mine(x)", "mine(x) filter (where x > 1)", "sum(x)")
    partial = plan.partial("v")
    assert "collect_list(named_struct('a0', CAST(x AS DOUBLE))) AS p0" in partial
    assert "CAST(x AS DOUBLE))) FILTER (WHERE x > 1) AS p1" in partial
    assert plan.of_rows is not None
    assert "CASE WHEN x > 1 THEN named_struct('a0', CAST(x AS DOUBLE)) END AS p1" in plan.of_rows


def test_rows_of_windows_go_to_it_as_they_are() -> None:
    query = "SELECT k, {} AS a FROM t GROUP BY k, {}"
    assert compiled(query.format("mine(x)", "window(ts, '1 minute')")).of_rows is not None
    assert compiled(query.format("count(x)", "window(ts, '1 minute')")).of_rows is None
    assert compiled(query.format("mine(x)", "session_window(ts, '1 minute')")).of_rows is None


def test_over_changes_it_keeps_the_arguments_themselves() -> None:
    plan = compiled(
        "SELECT k, mine(x) AS a, mine(DISTINCT x) AS b FROM t GROUP BY k", over_changes=True
    )
    assert [merge.function for merge in plan.merges] == ["bag", "bag", "count"]
    assert dict(plan.own) == {
        "p0": Own("Mine", of_bag=True),
        "p1": Own("Mine", of_bag=True, distinct=True),
    }


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT k FROM t WHERE mine(x) > 1", "the aggregate mine() in WHERE"),
        ("SELECT count(*) AS n FROM t GROUP BY mine(x)", "the aggregate mine() in GROUP BY"),
        ("SELECT k, mine(x) OVER (PARTITION BY k) AS m FROM t", "it is for GROUP BY only"),
    ],
)
def test_where_no_aggregate_can_be_it_is_refused(select: str, said: str) -> None:
    with pytest.raises(BadPipeline) as raised:
        check_pipeline(pipeline_of(select), file="p.sql")
    assert said in str(raised.value)


def test_its_version_is_part_of_what_a_stream_means() -> None:
    def words(own: str, select: str = "SELECT k, mine(x) AS m FROM t GROUP BY k") -> Any:
        pipeline = pipeline_of(f"{select} EMIT ON UPDATE", own)
        stream = pipeline.streams["s"]
        return words_of(read_select(stream, "p"), stream, pipeline.functions)

    other = f"{OWN} VERSION '2'"
    assert words(OWN) == words(f"{OWN} VERSION '1'") != words(other)
    plain = "SELECT k, sum(x) AS m FROM t GROUP BY k"
    assert words(OWN, plain) == words(other, plain)
