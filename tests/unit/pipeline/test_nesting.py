"""Windows over windows: which of them would lose rows that are late by construction."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline


def check(first: str, time: str, then: str, *, between: str = "at") -> None:
    """Streams `a` with windows, `b` without, `c` with windows over the time of `a`."""
    check_pipeline(
        parse_pipeline(
            f"""
            CREATE SOURCE s (k STRING, ts TIMESTAMP) USING json OPTIONS (path 'in')
              WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
            CREATE STREAM a AS SELECT k, {time} AS at, max(ts) AS most, count(*) AS n
              FROM s GROUP BY k, {first} EMIT ON WINDOW CLOSE;
            CREATE STREAM b AS SELECT {between} FROM a WHERE n > 1;
            CREATE STREAM c AS SELECT count(*) AS n FROM b GROUP BY {then} EMIT ON WINDOW CLOSE;
            CREATE SINK o FROM c USING parquet OPTIONS (path 'out');
            """,
            {},
        )
    )


@pytest.mark.parametrize(
    ("first", "time", "then", "between"),
    [
        ("window(ts, '1 minute')", "window.start", "window(at, '10 minutes')", "at"),
        ("window(ts, '1 minute')", "window.start", "window(at, '1 minute')", "*"),
        ("TUMBLE(ts, INTERVAL 30 SECONDS)", "window.START", "TUMBLE(b.at, INTERVAL 1 HOUR)", "at"),
        ("window(ts, '1 minute')", "window.start", "window(at, '1 hour', '5 minutes')", "a.at"),
        ("HOP(ts, INTERVAL 1 MINUTE, INTERVAL 5 MINUTES)", "window.end", "window(at, '7 minutes')",
         "*"),
        ("window(ts, '10 minutes')", "window.end - INTERVAL 1 MICROSECOND", "window(x, '1 minute')",
         "at AS x"),
        ("window(ts, '1 minute 30 seconds')", "window.start", "window(at, '3 minutes')", "at"),
    ],
)  # fmt: skip
def test_windows_that_are_made_of_whole_ones_are_taken(
    first: str, time: str, then: str, between: str
) -> None:
    check(first, time, then, between=between)


@pytest.mark.parametrize(
    ("first", "time", "then", "between"),
    [
        ("window(ts, '10 minutes')", "window.start", "window(at, '1 minute')", "at"),
        ("window(ts, '2 minutes')", "window.start", "window(at, '5 minutes')", "at"),
        ("window(ts, '1 minute')", "window.start", "window(at, '1 hour', '90 seconds')", "at"),
        ("HOP(ts, INTERVAL 5 MINUTES, INTERVAL 10 MINUTES)", "window.start",
         "window(at, '10 minutes')", "at"),
        ("window(ts, '1 minute')", "window.start", "window(most, '10 minutes')", "most"),
        ("window(ts, '1 minute')", "window.start - INTERVAL 1 DAY", "window(at, '10 minutes')",
         "at"),
        ("window(ts, '1 minute')", "window.start", "window(at, '10 minutes')",
         "at - INTERVAL 1 DAY AS at"),
        ("window(ts, '1 minute')", "window.start", "window(at + INTERVAL 0 DAYS, '10 minutes')",
         "at"),
        ("window(ts, '1 minute', '1 minute', '7 seconds')", "window.start",
         "window(at, '10 minutes')", "at"),
    ],
)  # fmt: skip
def test_windows_that_would_close_before_their_rows_come_are_refused(
    first: str, time: str, then: str, between: str
) -> None:
    """They were taken, and every row of them was late."""
    with pytest.raises(BadPipeline, match="some would close before"):
        check(first, time, then, between=between)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM s GROUP BY window(current_timestamp(), '1 minute')",
        "SELECT count(*) AS n FROM s GROUP BY TUMBLE(now(), INTERVAL 1 MINUTE)",
        "SELECT count(*) AS n FROM (SELECT *, current_timestamp AS at FROM s)"
        " GROUP BY window(at, '1 minute')",
        "WITH a AS (SELECT localtimestamp() - INTERVAL 1 DAY AS x FROM s), b AS (SELECT x AS y"
        " FROM a) SELECT count(*) AS n FROM (SELECT * FROM b WHERE true) GROUP BY window(y,"
        " '1 minute')",
    ],
)
def test_a_window_over_the_time_of_the_epoch_is_refused(query: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        check_pipeline(
            parse_pipeline(
                "CREATE SOURCE s (k STRING, ts TIMESTAMP) USING json OPTIONS (path 'in')"
                " WATERMARK ts DELAY OF INTERVAL 5 SECONDS;"
                f"CREATE STREAM q AS {query} EMIT ON WINDOW CLOSE;"
                "CREATE SINK o FROM q USING parquet OPTIONS (path 'out');",
                {},
            )
        )
    assert "a window over the time at which an epoch runs" in caught.value.message
    assert "METADATA FROM 'timestamp'" in caught.value.advice
    assert "METADATA FROM 'epoch_time'" in caught.value.advice


def test_windows_that_cumulate_are_over_whole_steps() -> None:
    hours = "CUMULATE(at, INTERVAL 1 HOUR, INTERVAL 1 DAY)"
    check("window(ts, '30 minutes')", "window.start", hours)
    check("CUMULATE(ts, INTERVAL 1 HOUR, INTERVAL 1 DAY)", "window.end", "window(at, '1 day')")
    with pytest.raises(BadPipeline, match="close before their last row"):
        check("window(ts, '40 minutes')", "window.start", hours)
    with pytest.raises(BadPipeline, match="close before their last row"):
        check(
            "CUMULATE(ts, INTERVAL 1 HOUR, INTERVAL 1 DAY)", "window.start", "window(at, '1 day')"
        )
