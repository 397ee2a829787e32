"""CUMULATE(time, step, size): what Spark is asked, and what tells its windows apart."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.compile import compile_select
from lamina.pipeline.model import Emit, Stream
from lamina.pipeline.plans import Aggregation
from lamina.pipeline.select import read_select

WINDOW = "CUMULATE(ts, INTERVAL 1 HOUR, INTERVAL 1 DAY)"


def compiled(query: str) -> Aggregation:
    plan = compile_select(
        read_select(Stream("s", query, Emit.ON_UPDATE), "p.sql"),
        columns=("k", "ts"),
        type_of=lambda _: "bigint",
        is_aggregate=lambda name: name == "count",
    )
    assert isinstance(plan, Aggregation)
    return plan


def test_the_end_tells_windows_that_cumulate_apart() -> None:
    both = compiled(
        f"SELECT k, window.start AS a, window.end AS b, count(*) AS n FROM t GROUP BY k, {WINDOW}"
    )
    assert both.key_outputs == ("k", "b")
    start = compiled(f"SELECT k, window.start AS a, count(*) AS n FROM t GROUP BY k, {WINDOW}")
    assert start.key_outputs is None
    assert start.meanings[1:3] == (
        "cumulate(ts, '1 day', '1 hour').start",
        "cumulate(ts, '1 day', '1 hour').end",
    )


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("CUMULATE(ts, INTERVAL 1 HOUR)", "wrong arguments for CUMULATE"),
        ("CUMULATE(ts, INTERVAL 7 HOURS, INTERVAL 1 DAY)", "not a multiple of its step"),
        ("CUMULATE(ts, INTERVAL 1 DAY, INTERVAL 1 HOUR)", "not a multiple of its step"),
        ("CUMULATE(ts, INTERVAL 1 MONTH, INTERVAL 1 YEAR)", "not a multiple of its step"),
        ("CUMULATE(ts, INTERVAL 0 DAYS, INTERVAL 1 DAY)", "not a multiple of its step"),
    ],
)
def test_other_lengths_are_refused(window: str, said: str) -> None:
    with pytest.raises(BadPipeline, match=said):
        compiled(f"SELECT count(*) AS n FROM t GROUP BY {window}")


@pytest.mark.parametrize(
    ("column", "is_whole"),
    [("b", True), ("w", True), ("w.end", True), ("a", False), ("w.start", False)],
)
def test_a_rank_is_by_the_end_of_windows_that_cumulate(column: str, is_whole: bool) -> None:
    text = (
        "CREATE SOURCE t (k STRING, ts TIMESTAMP) USING json OPTIONS (path 'in')"
        " WATERMARK ts DELAY OF INTERVAL 1 MINUTE;"
        f"CREATE STREAM s AS SELECT k, rank() OVER (PARTITION BY {column} ORDER BY n) AS r FROM"
        " (SELECT k, window AS w, window.start AS a, window.end AS b, count(*) AS n FROM t"
        f" GROUP BY k, {WINDOW});"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )
    pipeline = parse_pipeline(text, {}, file="p.sql")
    assert pipeline.streams["s"].whole == is_whole
    if not is_whole:
        with pytest.raises(BadPipeline, match="OVER in a stream"):
            check_pipeline(pipeline, file="p.sql")
