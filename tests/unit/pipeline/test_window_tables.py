"""Windows as tables of FROM and TUMBLE_START: what they become, and what they cannot be."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.model import Stream

HEAD = """CREATE SOURCE t (k STRING, a INT, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM s AS
"""
SIZE = "INTERVAL '10' SECOND"
TUMBLE = f"TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), {SIZE}))"
SESSION = "SESSION(TABLE t PARTITION BY {}, DESCRIPTOR(ts), INTERVAL '5' MINUTE)".format
WINDOW = f"TUMBLE(ts, {SIZE})"


def streams(query: str, emit: str = "EMIT ON WINDOW CLOSE") -> dict[str, Stream]:
    sink = "CREATE SINK o FROM s USING parquet OPTIONS (path 'o');"
    pipeline = parse_pipeline(f"{HEAD}{query} {emit};{sink}", {}, file="p.sql")
    check_pipeline(pipeline, file="p.sql")
    return dict(pipeline.streams)


def text(query: str) -> str:
    return streams(query)["s"].select


@pytest.mark.parametrize(
    "table",
    [
        TUMBLE,
        f"TABLE(TUMBLE(t, DESCRIPTOR(ts), {SIZE}))",
        f"TUMBLE(TABLE t, DESCRIPTOR(ts), {SIZE})",
        f"TUMBLE(t, ts, {SIZE})",
        f"TABLE(TUMBLE(SIZE => {SIZE}, DATA => TABLE t, TIMECOL => DESCRIPTOR(ts)))",
    ],
)
def test_every_spelling_becomes_the_window_of_group_by(table: str) -> None:
    said = text(f"SELECT k, window_start, count(*) AS n FROM {table} GROUP BY k, window_start")
    assert said == (
        f"SELECT k, window.start AS window_start, count(*) AS n FROM t GROUP BY k, {WINDOW}"
    )


@pytest.mark.parametrize(
    ("table", "window"),
    [
        (f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL 2 SECONDS, {SIZE})",
         f"HOP(ts, INTERVAL 2 SECONDS, {SIZE})"),
        (f"CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL 2 SECONDS, {SIZE})",
         f"CUMULATE(ts, INTERVAL 2 SECONDS, {SIZE})"),
        (f"TUMBLE(TABLE t, DESCRIPTOR(ts), {SIZE}, INTERVAL 1 SECOND)",
         f"window(ts, {SIZE}, {SIZE}, INTERVAL 1 SECOND)"),
        (f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL 2 SECONDS, {SIZE}, INTERVAL 1 SECOND)",
         f"window(ts, {SIZE}, INTERVAL 2 SECONDS, INTERVAL 1 SECOND)"),
        (SESSION("(k)"), "SESSION(ts, INTERVAL '5' MINUTE)"),
        ("SESSION(TABLE t PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
         "SESSION(ts, INTERVAL '5' MINUTE)"),
    ],
)  # fmt: skip
def test_each_kind_of_window(table: str, window: str) -> None:
    query = f"SELECT count(*) AS n FROM TABLE({table}) GROUP BY window_start, window_end, k"
    assert text(query) == f"SELECT count(*) AS n FROM t GROUP BY {window}, k"


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("window_start, k, window_end", f"{WINDOW}, k"),
        ("t.window_end", WINDOW),
        ("at, k", f"{WINDOW}, k"),
        ("1, 2", f"{WINDOW}, 2"),
        ("ALL", f"{WINDOW}, 2"),
        ("k, (window_start, window_end)", f"k, ({WINDOW})"),
        ("window_start, window_end, ROLLUP (k)", f"{WINDOW}, ROLLUP (k)"),
        ("GROUPING SETS ((window_start, window_end, k), (window_start, window_end))",
         f"GROUPING SETS (({WINDOW}, k), ({WINDOW}))"),
    ],
)  # fmt: skip
def test_keys_may_be_written_in_any_way(keys: str, wanted: str) -> None:
    query = f"SELECT window_start AS at, k, count(*) AS n FROM {TUMBLE} GROUP BY {keys}"
    assert text(query) == f"SELECT window.start AS at, k, count(*) AS n FROM t GROUP BY {wanted}"


def test_columns_of_the_window_stand_anywhere_behind_it_and_lines_stay() -> None:
    said = text(
        f"SELECT x.window_start, window_time,\n unix_micros(window_end) AS u\nFROM\n{TUMBLE}\nx\n"
        "GROUP BY x.window_start,\n x.window_end\nHAVING x.window_end > '2024-01-01'"
    )
    assert said == (
        "SELECT window.start AS window_start, window.end - INTERVAL 1 MICROSECOND AS window_time,"
        f"\n unix_micros((window.end)) AS u\nFROM\nt\nx\nGROUP BY {WINDOW}\n\n"
        "HAVING (window.end) > '2024-01-01'"
    )


def test_without_the_keys_each_row_has_its_window() -> None:
    found = streams(f"SELECT k FROM (SELECT * FROM {TUMBLE} WHERE window_start > ts)", emit="")
    inner = found["s.subquery.t"].select
    assert inner.startswith("SELECT *, window(ts, '10 SECOND').start AS window_start, window(ts, ")
    assert inner.endswith(".end - INTERVAL 1 MICROSECOND AS window_time FROM t")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("TUMBLE_START", "window.start"),
        ("TUMBLE_END", "window.end"),
        ("TUMBLE_ROWTIME", "window.end - INTERVAL 1 MICROSECOND"),
        ("HOP_START", "window.start"),
        ("SESSION_START", "session_window.start"),
        ("SESSION_END", "session_window.end"),
    ],
)
def test_functions_of_the_window_of_group_by(name: str, wanted: str) -> None:
    kind = name.partition("_")[0]
    lengths = f"INTERVAL 2 SECONDS, {SIZE}" if kind == "HOP" else SIZE
    window = f"{kind}(x.ts, {lengths})"
    said = text(f"SELECT k, {name}(ts, {lengths}) AS at FROM t AS x GROUP BY k, {window}")
    assert said == f"SELECT k, {wanted} AS at FROM t AS x GROUP BY k, {window}"


@pytest.mark.parametrize(
    ("query", "at", "said", "advice"),
    [
        ("SELECT TUMBLE_START(ts, '1 day') AS s FROM t GROUP BY TUMBLE(ts, '1 hour')",
         "TUMBLE_START", "of a window that GROUP BY does not have", "the same arguments"),
        (f"SELECT 1 AS a FROM {TUMBLE} WHERE window_end > ts GROUP BY window_start",
         "window_end", "window_end in WHERE", "Write it in HAVING"),
        ("SELECT k FROM TUMBLE(t, ts)", "TUMBLE", "wrong arguments for TUMBLE", "Write TUMBLE"),
        ("SELECT k FROM HOP(t, ts, INTERVAL 1 DAY)", "HOP", "wrong arguments for HOP", "slide"),
        (f"SELECT k FROM SESSION(t ORDER BY k, ts, {SIZE})", "SESSION", "wrong arguments",
         "PARTITION BY k"),
        (f"SELECT k FROM TUMBLE(t, DESCRIPTOR(a, b), {SIZE})", "DESCRIPTOR", "of one column",
         "DESCRIPTOR(ts)"),
        (f"SELECT k FROM CUMULATE(t, ts, {SIZE}, {SIZE}, INTERVAL 1 DAY)", "INTERVAL 1 DAY",
         "with an offset", "Leave it out"),
        (f"SELECT 1 AS a FROM CUMULATE(t, ts, {SIZE}, {SIZE}) GROUP BY window_start",
         "window_start", "does not tell them apart", "GROUP BY window_start, window_end"),
        (f"SELECT 1 AS a FROM {SESSION('a')} GROUP BY window_start, window_end, k",
         "window_start", "the sessions are those of each a", "the columns of PARTITION BY"),
        (f"SELECT k FROM {SESSION('k')}", "SESSION", "SESSION in FROM without GROUP BY",
         "a subquery"),
        (f"SELECT 1 AS a FROM {TUMBLE} GROUP BY CUBE (window_start, k)", "window_start",
         "window_start inside of CUBE", "behind them"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_a_way_around(
    query: str, at: str, said: str, advice: str
) -> None:
    with pytest.raises(BadPipeline, match=said) as raised:
        streams(query)
    assert raised.value.where == f"p.sql:4:{query.index(at) + 1}"
    assert advice in raised.value.advice
