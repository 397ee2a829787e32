"""ALLOW LATENESS and LATE ROWS TO: what they say, to which block, and what is refused."""

from __future__ import annotations

import pytest

from lamina.engine.planning import END_US, Watermarks
from lamina.errors import BadPipeline
from lamina.pipeline import Pipeline, check_pipeline, order, parse_pipeline
from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.model import Emit, Lateness
from lamina.pipeline.select import read_select

HEAD = """CREATE SOURCE t (k STRING, a INT, xs ARRAY<INT>, ts TIMESTAMP)
  USING json OPTIONS (path 'in') WATERMARK ts DELAY OF INTERVAL 1 MINUTE;
CREATE STREAM s AS
"""
TAIL = """;
CREATE SINK o FROM s USING parquet OPTIONS (path 'out');
CREATE SINK p FROM behind USING parquet OPTIONS (path 'behind');
"""
COUNTS = "SELECT k, count(*) AS n FROM t GROUP BY k, window(ts, '1 hour')"
HOUR = 3_600_000_000


def pipeline_of(query: str) -> Pipeline:
    pipeline = parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    return pipeline


@pytest.mark.parametrize(
    ("query", "stream", "late"),
    [
        (f"{COUNTS} EMIT ON WINDOW CLOSE LATE ROWS TO behind", "s", Lateness(0, "behind")),
        (f"{COUNTS} EMIT ON WINDOW CLOSE LATE DATA TO behind", "s", Lateness(0, "behind")),
        (
            f"{COUNTS} EMIT ON UPDATE ALLOW LATENESS INTERVAL 1 HOUR LATE ROWS TO behind",
            "s",
            Lateness(HOUR, "behind"),
        ),
        (
            f"{COUNTS} EMIT ON UPDATE LATE ROWS TO `behind` ALLOW LATENESS INTERVAL '2' HOURS",
            "s",
            Lateness(2 * HOUR, "behind"),
        ),
        (
            f"SELECT n + 1 AS n FROM ({COUNTS}) EMIT ON WINDOW CLOSE LATE ROWS TO behind",
            "s.subquery",
            Lateness(0, "behind"),
        ),
        (
            f"SELECT n + 1 AS n FROM ({COUNTS} EMIT ON WINDOW CLOSE LATE ROWS TO behind)",
            "s.subquery",
            Lateness(0, "behind"),
        ),
    ],
)
def test_the_query_with_the_window_has_late_rows(query: str, stream: str, late: Lateness) -> None:
    pipeline = pipeline_of(query)
    assert pipeline.streams[stream].late == late
    assert [name for name, each in pipeline.streams.items() if each.late != Lateness()] == [stream]
    behind = pipeline.streams["behind"]
    assert (behind.late_of, read_select(behind, "p.sql").reads) == (stream, ("t",))
    names = order(pipeline)
    assert names.index("behind") > names.index(stream)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k FROM t EMIT ON UPDATE LATE ROWS TO behind", "LATE ROWS in a query without"),
        (
            "SELECT k, count(*) AS n FROM t GROUP BY k EMIT ON UPDATE ALLOW LATENESS INTERVAL 1 DAY"
            " LATE ROWS TO behind",
            "ALLOW LATENESS in a query without a window",
        ),
        (f"{COUNTS} EMIT ON UPDATE LATE ROWS behind", "TO is expected after LATE ROWS"),
        (f"{COUNTS} EMIT ON UPDATE LATE ROWS TO 'behind'", "the name of a stream is expected"),
        (f"{COUNTS} EMIT ON UPDATE LATE ROWS TO o", "'o' is already the name of a sink"),
        (f"{COUNTS} EMIT ON UPDATE LATE ROWS TO behind now", "'now' is not known in what a stream"),
        (f"{COUNTS} EMIT ON UPDATE LATE ROWS TO x LATE ROWS TO behind", "'LATE' is not known in"),
        (f"{COUNTS} EMIT ON UPDATE ALLOW LATENESS INTERVAL 0 DAYS", "ALLOW LATENESS of nothing"),
        (f"{COUNTS} EMIT ON UPDATE ALLOW LATENESS 5", "INTERVAL is expected after ALLOW LATENESS"),
        (f"{COUNTS} EMIT ON UPDATE ALLOW LATENESS INTERVAL 1 MONTH", "INTERVAL 1 MONTH is not"),
        (
            "SELECT x, count(*) AS n FROM t LATERAL VIEW explode(xs) e AS x"
            " GROUP BY x, window(ts, '1 hour') EMIT ON UPDATE LATE ROWS TO behind",
            "LATE ROWS with LATERAL",
        ),
    ],
)
def test_what_is_not_late_rows_is_refused(query: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        pipeline_of(query)
    assert said in caught.value.message


def test_columns_may_have_the_words_as_names() -> None:
    late = parse_pipeline(
        f"{HEAD} SELECT k AS late, a AS rows, a AS allow, k AS lateness FROM t" + TAIL, {}
    ).streams["s"]
    assert late.late == Lateness()


def test_a_program_says_the_same_in_arguments() -> None:
    built = (
        PipelineBuilder()
        .source("t", "k STRING, ts TIMESTAMP", "trades", watermark=("ts", "1 second"))
        .stream("s", COUNTS, emit=Emit.ON_UPDATE, allow_lateness="1 hour", late_rows_to="behind")
        .build()
    )
    assert built.streams["s"].late == Lateness(HOUR, "behind")
    assert built.streams["behind"].late_of == "s"


def test_lateness_lowers_the_floor_unless_nothing_more_is_to_come() -> None:
    sources = frozenset({"t"})
    assert Watermarks({"t": 100}).floor_of(sources, 30) == 71
    assert Watermarks({"t": END_US}).floor_of(sources, 30) == END_US + 1
    assert Watermarks().floor_of(sources, 30) is None
