"""Groups and window functions over closed windows: which are, and what is said of others."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.model import Emit
from lamina.pipeline.select import read_select

HEAD = """CREATE SOURCE t (k STRING, a INT, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 1 MINUTE;
CREATE SOURCE u (k STRING, a INT, ts TIMESTAMP) USING json OPTIONS (path 'in2')
  WATERMARK ts DELAY OF INTERVAL 1 MINUTE;
CREATE STREAM other AS SELECT k, window.start AS at, count(*) AS n FROM u
  GROUP BY k, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK other_out FROM other USING parquet OPTIONS (path 'other');
CREATE STREAM all_of_t AS SELECT * FROM t;
CREATE SINK all_out FROM all_of_t USING parquet OPTIONS (path 'all');
CREATE STREAM s AS
"""
TAIL = ";\nCREATE SINK o FROM s USING parquet OPTIONS (path 'out');\n"
ROWS = (
    "SELECT k, window.start AS at, window.end AS ends, count(*) AS n FROM t"
    " GROUP BY k, window(ts, '1 minute')"
)


def over(query: str) -> bool:
    """Whether the window functions of a query are over whole windows."""
    pipeline = parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    (select,) = (
        select
        for stream in pipeline.streams.values()
        if (select := read_select(stream, "p.sql")).overs
    )
    return select.is_whole


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, rank() OVER (PARTITION BY at ORDER BY n) AS r FROM ({ROWS})",
        f"SELECT n / sum(n) OVER (PARTITION BY ends) AS share FROM ({ROWS}) EMIT ON WINDOW CLOSE",
        f"SELECT k, lag(n) OVER (PARTITION BY k, q.at ORDER BY n) AS b FROM ({ROWS}) AS q",
        f"WITH c AS ({ROWS}), d AS (SELECT at AS b, k FROM c WHERE n > 1)"
        " SELECT count(*) FILTER (WHERE k > '') OVER (PARTITION BY b) AS n FROM d",
        f"SELECT k FROM ({ROWS}) QUALIFY row_number() OVER (PARTITION BY at ORDER BY n) = 1",
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY at ORDER BY n) AS place"
        f" FROM ({ROWS})) WHERE place <= 3 AND n > 2",
        "SELECT first(n) OVER (PARTITION BY at ORDER BY k ROWS 2 PRECEDING) AS f FROM other",
        "SELECT k, max(n) OVER (PARTITION BY w.start) AS m FROM (SELECT window AS w, k, count(*)"
        " AS n FROM t GROUP BY k, window(ts, '1 minute', '20 seconds'))",
        "SELECT k, max(n) OVER (PARTITION BY w) AS m FROM (SELECT window(ts, '1 minute') AS w, k,"
        " count(*) AS n FROM t GROUP BY 1, 2)",
        "SELECT k, max(n) OVER (PARTITION BY at) AS m FROM (SELECT k, count(*) AS n,"
        " window.end - INTERVAL 1 MICROSECOND AS at FROM t GROUP BY k, TUMBLE(ts, INTERVAL 1 DAY))",
    ],
)  # fmt: skip
def test_a_partition_by_the_window_is_whole(query: str) -> None:
    assert over(query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT lag(a) OVER (PARTITION BY k ORDER BY ts) AS b FROM t", "lag() OVER in a stream"),
        (f"SELECT sum(n) OVER (PARTITION BY k) AS b FROM ({ROWS})", "sum() OVER in a stream"),
        (f"SELECT sum(n) OVER (PARTITION BY n) AS b FROM ({ROWS})", "sum() OVER in a stream"),
        (f"SELECT sum(n) OVER (PARTITION BY date(at)) AS b FROM ({ROWS})", "sum()"),
        (f"SELECT sum(n) OVER (ORDER BY at) AS b FROM ({ROWS})", "sum() OVER in a stream"),
        (f"SELECT sum(n) OVER (PARTITION BY at) AS b, rank() OVER (ORDER BY n) AS r FROM"
         f" ({ROWS})",
         "sum() OVER in a stream"),
        (f"SELECT sum(n) OVER (PARTITION BY at) AS b FROM ({ROWS} EMIT ON UPDATE)", "sum()"),
        (f"SELECT sum(n) OVER (PARTITION BY at) AS b FROM ({ROWS}) EMIT ON UPDATE", "sum()"),
        (f"SELECT sum(n) OVER (PARTITION BY at) AS b FROM ("
         f"{ROWS.replace(', window.end AS ends', '')}"
         " UNION ALL SELECT * FROM other)", "sum() OVER in a stream"),
        (f"SELECT at, sum(n) AS n, rank() OVER (PARTITION BY at ORDER BY sum(n)) AS r"
         f" FROM ({ROWS}) GROUP BY at EMIT ON UPDATE", "rank() OVER in a stream"),
    ],
)  # fmt: skip
def test_others_would_need_rows_of_other_epochs(query: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        over(query)
    assert said in caught.value.message
    assert "PARTITION BY" in caught.value.advice


def test_ranks_that_emit_on_update_are_kept_as_state() -> None:
    query = f"SELECT k FROM ({ROWS}) QUALIFY row_number() OVER (PARTITION BY at ORDER BY n) = 1"
    assert not over(f"{query} EMIT ON UPDATE")


def emits(query: str) -> list[tuple[bool, Emit | None]]:
    """Of each block of a query: whether it is over whole windows, and when its rows come out."""
    pipeline = parse_pipeline(HEAD + query + TAIL, {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    blocks = [each for each in pipeline.streams.values() if each.name.split(".")[0] == "s"]
    return [(read_select(each, "p.sql").is_whole, each.emit) for each in blocks]


CLOSED = (False, Emit.ON_WINDOW_CLOSE)
WHOLE = (True, None)


@pytest.mark.parametrize("emit", ["", " EMIT ON WINDOW CLOSE"])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT at, max(n) AS n FROM ({ROWS}) GROUP BY at",
        f"SELECT ends, at, median(n) AS n FROM ({ROWS}) q GROUP BY q.at, q.ends HAVING max(n) > 1",
        f"SELECT ends AS e, max(n) AS n FROM ({ROWS}) GROUP BY e",
        f"SELECT ends, count(*) AS n FROM ({ROWS}) GROUP BY ALL",
    ],
)
def test_groups_by_a_closed_window_are_whole(query: str, emit: str) -> None:
    assert emits(query + emit) == [CLOSED, WHOLE]


def test_groups_over_groups_of_a_window_are_whole_too() -> None:
    inner = f"SELECT at, k, max(n) AS n FROM ({ROWS}) GROUP BY at, k"
    assert emits(f"SELECT at, sum(n) AS n FROM ({inner}) GROUP BY at") == [CLOSED, WHOLE, WHOLE]


@pytest.mark.parametrize(
    ("query", "emit"),
    [
        (f"SELECT k, max(n) AS n FROM ({ROWS}) GROUP BY k", Emit.ON_UPDATE),
        (f"SELECT date(at) AS d, max(n) AS n FROM ({ROWS}) GROUP BY date(at)", Emit.ON_UPDATE),
        (f"SELECT at, max(n) AS n FROM ({ROWS}) GROUP BY at", Emit.CHANGES),
        (f"SELECT at, k, max(n) AS n FROM ({ROWS}) GROUP BY ROLLUP(at, k)", Emit.ON_UPDATE),
    ],
)
def test_other_groups_are_kept_as_state(query: str, emit: Emit) -> None:
    assert emits(f"{query} EMIT {emit.value.upper()}") == [CLOSED, (False, emit)]


def test_the_first_of_a_closed_window_is_still_a_guess() -> None:
    with pytest.raises(BadPipeline, match="without a window is never complete"):
        emits(f"SELECT at, first(n) AS n FROM ({ROWS}) GROUP BY at")


def test_a_rollup_of_closed_windows_is_not_whole() -> None:
    """The row of all windows would be of those that close in one epoch."""
    with pytest.raises(BadPipeline, match="without a window is never complete"):
        emits(f"SELECT at, max(n) AS n FROM ({ROWS}) GROUP BY ROLLUP(at)")


@pytest.mark.parametrize("key", ["k", "n", "date(at)", "at + INTERVAL 1 DAY"])
def test_groups_without_the_window_are_never_complete(key: str) -> None:
    with pytest.raises(BadPipeline, match="without a window is never complete"):
        emits(f"SELECT {key} AS key, max(n) AS n FROM ({ROWS}) GROUP BY {key}")
