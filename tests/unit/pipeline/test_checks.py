"""Whole pipelines: what would not work is refused before anything runs."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, order, parse_pipeline

TRADES = (
    "CREATE SOURCE trades (sym STRING, vol BIGINT, ts TIMESTAMP, m MAP<STRING, INT>, v VARIANT,"
    " y INTERVAL YEAR TO MONTH, c STRING COLLATE UNICODE_CI, d INTERVAL DAY, u STRING COLLATE"
    " UTF8_BINARY, z STRUCT<a: MAP<STRING, INT>>) USING json"
)
MARKED = f"{TRADES} WATERMARK ts DELAY OF INTERVAL 5 SECONDS;\n"
PLAIN = f"{TRADES};\n"
SINK = "\nCREATE SINK o FROM s USING x OPTIONS (path 'o');"
WINDOW = "SELECT sym, count(*) AS n FROM trades GROUP BY sym, window(ts, '1 minute')"


def checked(text: str) -> None:
    check_pipeline(parse_pipeline(text, {}, file="p.sql"), file="p.sql")


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN}CREATE STREAM s AS SELECT * FROM Trades;{SINK}",
        f"{MARKED}CREATE STREAM s AS {WINDOW} EMIT ON WINDOW CLOSE;{SINK}",
        f"{MARKED}CREATE STREAM s AS {WINDOW} EMIT ON UPDATE;{SINK}",
        f"{PLAIN}CREATE STREAM s AS SELECT count(*) AS n FROM trades EMIT ON UPDATE;{SINK}",
        f"{PLAIN}CREATE STREAM s AS SELECT z.m AS m FROM trades GROUP BY z.m EMIT ON UPDATE;{SINK}",
        f"{PLAIN}CREATE STREAM s AS SELECT d, u FROM trades GROUP BY d, u EMIT ON UPDATE;{SINK}",
        f"{MARKED}CREATE STREAM S AS SELECT n FROM w;"
        f"CREATE STREAM w AS {WINDOW} EMIT ON UPDATE;{SINK}",
        f"{PLAIN}CREATE STREAM s AS SELECT n FROM w;CREATE STREAM w AS SELECT count(*) AS n"
        f" FROM trades EMIT ON UPDATE;{SINK}",
    ],
)
def test_what_works_is_not_refused(text: str) -> None:
    checked(text)


@pytest.mark.parametrize(
    ("text", "where", "said", "advice"),
    [
        (f"CREATE STREAM s AS SELECT a FROM trade;{SINK}", "2:34", "no source or stream 'trade'",
         "Did you mean 'trades'?"),
        (f"CREATE STREAM s AS SELECT a FROM q;{SINK}", "2:34", "no source or stream 'q'",
         "There are trades, s"),
        ("CREATE STREAM votes AS SELECT vol FROM trades;\nCREATE SINK o FROM vote USING x", "3:13",
         "no stream 'vote'", "Did you mean 'votes'?"),
        ("CREATE SINK o FROM trades USING x", "2:13", "reads the source 'trades'", "Put a stream"),
        (f"CREATE STREAM s AS SELECT a FROM s;{SINK}", "2:34", "'s' reads itself", "a source"),
        (f"CREATE STREAM s AS SELECT a FROM r; CREATE STREAM r AS SELECT a FROM S;{SINK}", "2:34",
         "s -> r -> s read each other", "a source"),
        (f"CREATE STREAM s AS SELECT sym FROM trades EMIT ON WINDOW CLOSE;{SINK}", "2:20",
         "EMIT ON WINDOW CLOSE in a stream without aggregates", "Leave it out"),
        (f"CREATE STREAM s AS SELECT sym FROM trades EMIT ON UPDATE;{SINK}", "2:20",
         "EMIT ON UPDATE in a stream without aggregates", "Leave it out"),
        (f"CREATE STREAM s AS\n  SELECT sym FROM trades GROUP BY sym EMIT ON WINDOW CLOSE;{SINK}",
         "3:3", "no row would ever come out", "EMIT ON UPDATE"),
        (f"CREATE STREAM s AS SELECT sym FROM trades GROUP BY sym;{SINK}", "2:20",
         "without a window is never complete", "EMIT ON UPDATE"),
        (f"CREATE STREAM s AS SELECT max(vol) AS m FROM trades;{SINK}", "2:20",
         "without a window is never complete", "EMIT ON UPDATE"),
        (f"CREATE STREAM s AS {WINDOW} EMIT ON WINDOW CLOSE;{SINK}", "2:72", "it would never close",
         "WATERMARK"),
        (f"CREATE STREAM s AS {WINDOW} EMIT ON UPDATE;{SINK}", "2:72", "it would never close",
         "WATERMARK"),
        (f"CREATE STREAM r AS SELECT * FROM trades; CREATE STREAM s AS SELECT count(*) AS n FROM r"
         f" GROUP BY TUMBLE(ts, '1 day');{SINK}", "2:98", "a window over 'trades'", "WATERMARK"),
        ("CREATE STREAM r AS SELECT sym FROM trades GROUP BY sym EMIT ON UPDATE;\nCREATE STREAM q"
         " AS SELECT * FROM r; CREATE STREAM s AS SELECT count(*) AS n FROM q"
         " EMIT ON UPDATE;" + SINK,
         "3:82", "over the updating stream 'r'", "EMIT ON WINDOW CLOSE"),
        (f"CREATE STREAM s AS SELECT * FROM trades; CREATE STREAM r AS SELECT * FROM s;{SINK}",
         "2:61", "nothing reads the stream 'r'", "CREATE SINK"),
        (f"CREATE SOURCE q (a INT) USING x; CREATE STREAM s AS SELECT * FROM trades;{SINK}", "2:15",
         "nothing reads the source 'q'", "Leave it out"),
        (f"CREATE STREAM s AS SELECT * FROM trades;{SINK}\nCREATE SINK b FROM s USING x OPTIONS ("
         "PATH './o/')", "4:13", "'o' and 'b' have the same path", "a path of its own"),
        *((f"CREATE STREAM s AS SELECT 1 AS x FROM trades t GROUP BY vol, {q}{c} EMIT ON UPDATE;"
           f"{SINK}", "2:62", f"'{c}' of type", "") for c in "mvycz" for q in ("", "t.")),
    ],
)  # fmt: skip
def test_what_would_not_work_is_refused_with_place_and_advice(
    text: str, where: str, said: str, advice: str
) -> None:
    with pytest.raises(BadPipeline) as caught:
        checked(PLAIN + text)
    error = caught.value
    assert (error.where, said in error.message) == (f"p.sql:{where}", True), error
    assert advice in error.advice


def test_a_window_that_does_not_say_when_its_rows_come_out_is_refused() -> None:
    with pytest.raises(BadPipeline, match="says when its rows come out"):
        checked(f"{MARKED}CREATE STREAM s AS {WINDOW};{SINK}")


def test_a_window_over_another_time_than_the_watermark_s_is_refused() -> None:
    text = MARKED.replace("vol BIGINT", "late TIMESTAMP")
    select = "SELECT count(*) AS n FROM trades t GROUP BY window(t.late, '1 day')"
    with pytest.raises(BadPipeline, match="a window over 'late', but the watermark") as caught:
        checked(f"{text}CREATE STREAM s AS {select};{SINK}")
    assert caught.value.where == "p.sql:2:64"
    checked(f"{text}CREATE STREAM s AS {select.replace('late', 'TS')} EMIT ON UPDATE;{SINK}")


@pytest.mark.parametrize("kind", ["STRING", "DATE", "TIMESTAMP_NTZ", "BIGINT"])
def test_event_times_are_timestamps(kind: str) -> None:
    text = f"CREATE SOURCE t (a {kind}) USING x WATERMARK a DELAY OF INTERVAL 1 DAY"
    with pytest.raises(BadPipeline, match=f"the watermark column 'a' of 't' is {kind}"):
        checked(text)


def test_streams_come_after_what_they_read() -> None:
    text = (
        f"{PLAIN}CREATE STREAM c AS SELECT * FROM B; CREATE STREAM b AS SELECT * FROM a;"
        "CREATE STREAM a AS SELECT * FROM trades; CREATE STREAM d AS SELECT * FROM a"
    )
    assert order(parse_pipeline(text)) == ("a", "b", "c", "d")


def test_a_field_that_is_called_map_was_taken_for_a_map() -> None:
    source = "CREATE SOURCE t (s STRUCT<map: INT, variant: STRING>) USING json;\n"
    checked(f"{source}CREATE STREAM s AS SELECT s FROM t GROUP BY s EMIT ON UPDATE;{SINK}")


@pytest.mark.parametrize("kind", ["CHAR(3)", "varchar (20)", "ARRAY<CHAR(1)>"])
def test_padded_text_is_refused_before_spark_calls_it_an_internal_error(kind: str) -> None:
    with pytest.raises(BadPipeline, match="'a' of 't' is") as caught:
        checked(f"CREATE SOURCE t (a {kind}) USING json;CREATE STREAM s AS SELECT a FROM t;{SINK}")
    assert "write STRING" in caught.value.advice


UPDATING = (
    f"{MARKED}CREATE STREAM w AS SELECT sym, window.start AS at, count(*) AS n FROM trades"
    " GROUP BY sym, window(ts, '1 minute') EMIT ON UPDATE;\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{PLAIN}CREATE STREAM s AS SELECT sym, count(*) AS n FROM trades GROUP BY sym"
         f" HAVING n < 3 EMIT ON UPDATE;{SINK}", "HAVING with EMIT ON UPDATE"),
        (f"{UPDATING}CREATE STREAM s AS SELECT * FROM w WHERE n < 3;{SINK}", "stream 'w'"),
        (f"{UPDATING}CREATE STREAM s AS SELECT * FROM w WHERE sym = 'a' AND w.n < 3;{SINK}", "'w'"),
        (f"{UPDATING}CREATE STREAM r AS SELECT sym AS n, n AS sym FROM w;"
         f"CREATE STREAM s AS SELECT * FROM r WHERE sym < 3;{SINK}", "stream 'w'"),
        (f"{UPDATING}CREATE STREAM r AS SELECT *, n + 1 AS m FROM w;"
         f"CREATE STREAM s AS SELECT sym FROM r AS q WHERE q.m < 3;{SINK}", "stream 'w'"),
    ],
)  # fmt: skip
def test_a_row_that_no_longer_qualifies_stayed_the_newest(text: str, said: str) -> None:
    with pytest.raises(BadPipeline, match=said) as refused:
        checked(text)
    assert "would stay the newest" in refused.value.message
    assert "keys alone" in refused.value.advice


@pytest.mark.parametrize(
    "text",
    [
        f"{UPDATING}CREATE STREAM s AS SELECT * FROM w WHERE sym = 'a' AND at > '2020';{SINK}",
        f"{UPDATING}CREATE STREAM r AS SELECT sym AS k, n FROM w;"
        f"CREATE STREAM s AS SELECT n FROM r AS q WHERE upper(q.k) = 'A' OR `K` IS NULL;{SINK}",
        f"{MARKED}CREATE STREAM w AS {WINDOW} HAVING n < 3 EMIT ON WINDOW CLOSE;"
        f"CREATE STREAM s AS SELECT * FROM w WHERE n > 1;{SINK}",
    ],
)
def test_conditions_over_keys_and_over_closed_windows_are_taken(text: str) -> None:
    checked(text)


@pytest.mark.parametrize(
    "passed_on",
    [
        "SELECT sym, seen AS ts, vol FROM two",
        "SELECT seen AS ts FROM two AS x",
        "SELECT two.seen AS ts FROM two",
        "SELECT * EXCEPT (ts, seen), seen AS ts FROM two",
    ],
)
def test_windows_over_another_time_column_came_through_a_stateless_stream(passed_on: str) -> None:
    source = (
        "CREATE SOURCE two (sym STRING, vol BIGINT, ts TIMESTAMP, seen TIMESTAMP) USING json"
        " WATERMARK ts DELAY OF INTERVAL 5 SECONDS;"
    )
    window = "SELECT count(*) AS n FROM r GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE"
    text = f"{source}CREATE STREAM q AS {passed_on};CREATE STREAM r AS SELECT * FROM q;"
    with pytest.raises(BadPipeline, match="a window over 'seen', but the watermark of 'two' is on"):
        checked(f"{text}CREATE STREAM s AS {window};{SINK}")


def test_windows_over_what_a_stateless_stream_computes_are_taken() -> None:
    source = (
        "CREATE SOURCE two (ts TIMESTAMP, at TIMESTAMP, z STRUCT<at: TIMESTAMP>) USING json"
        " WATERMARK ts DELAY OF INTERVAL 5 SECONDS;"
    )
    window = "SELECT count(*) AS n FROM r GROUP BY window(t, '1 minute') EMIT ON WINDOW CLOSE"
    for time in ("ts", "two.ts", "z.at", "ts + INTERVAL 1 SECOND"):
        text = f"{source}CREATE STREAM r AS SELECT {time} AS t FROM two;"
        checked(f"{text}CREATE STREAM s AS {window};{SINK}")


def test_an_aggregate_called_like_a_key_is_no_key() -> None:
    """The key is the column `sym` of the source; the condition is over the greatest volume."""
    inner = "SELECT vol AS v, max(vol) AS sym FROM trades GROUP BY vol, sym"
    with pytest.raises(BadPipeline, match="WHERE over the updating stream"):
        checked(
            f"{PLAIN}CREATE STREAM s AS SELECT v FROM ({inner}) WHERE sym > 1 EMIT ON UPDATE;{SINK}"
        )


def test_a_window_over_the_changes_of_sessions_is_refused() -> None:
    """An epoch may extend a session whose old end is behind the watermark already."""
    sessions = (
        f"{MARKED}CREATE STREAM v AS SELECT session_window.end - INTERVAL 1 MICROSECOND AS last"
        " FROM trades GROUP BY sym, session_window(ts, '1 minute') EMIT {};\n"
        "CREATE STREAM s AS SELECT count(*) AS n FROM v GROUP BY window(last, '1 hour')"
        f" EMIT ON WINDOW CLOSE;{SINK}"
    )
    checked(sessions.format("ON WINDOW CLOSE"))
    with pytest.raises(BadPipeline, match="the end of a session can move on"):
        checked(sessions.format("CHANGES"))


@pytest.mark.parametrize(
    "emit", ["EMIT EVERY INTERVAL 1 HOUR", "EMIT CHANGES EVERY INTERVAL 1 HOUR"]
)
def test_intervals_are_of_event_time(emit: str) -> None:
    stream = f"CREATE STREAM s AS SELECT sym, count(*) AS n FROM trades GROUP BY sym {emit};{SINK}"
    checked(f"{MARKED}{stream}")
    with pytest.raises(BadPipeline, match="its intervals are those of event time") as caught:
        checked(f"{PLAIN}{stream}")
    assert "METADATA FROM 'epoch_time'" in caught.value.advice
