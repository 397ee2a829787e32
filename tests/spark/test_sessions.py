"""Sessions in epochs: those that come out are the ones that one batch over all rows has."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.ports import CHANGE, Change
from lamina.errors import BadPipeline
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.changes import applied
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text
from tests.spark.together import Together

COLUMNS = "k STRING, v BIGINT, d DOUBLE, m DECIMAL(9,2), g INT, ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 30 SECONDS"
START = datetime(2024, 1, 1, tzinfo=UTC)
CLOSE = "EMIT ON WINDOW CLOSE"
EPOCHS_SEED = 15  # four epochs


def epochs_of(seed: int, rows: int = 400) -> list[list[dict[str, Any]]]:
    """Out of order by less than the delay; whole seconds, so that sessions often just touch."""
    rng = random.Random(seed)
    made = []
    for number in range(rows):
        at = START + timedelta(seconds=number * 2 - rng.randint(0, 29))
        made.append(
            {
                "k": rng.choice(["a", "b", "ü", None, *(f"k{i}" for i in range(20))]),
                "v": rng.choice([None, rng.randint(-(10**6), 10**6)]),
                "d": rng.choice([None, "NaN", -0.0, 1.5, 2.25]),
                "m": rng.choice([None, "12.50", "-1.25", "9999999.99"]),
                "g": rng.choice([None, -3, 0, 5, 10, 60]),
                "ts": at.isoformat().replace("+00:00", "Z"),
            }
        )
    cuts = sorted(rng.sample(range(1, rows), rng.randint(0, 4)))
    return [made[i:j] for i, j in zip([0, *cuts], [*cuts, rows], strict=True)]


BOUNDS = "session_window.start AS starts, session_window.end AS ends"
MINE = "SELECT k, {bounds}, {what} FROM t GROUP BY k, {window}".format
QUERIES = [
    MINE(
        bounds=BOUNDS,
        what="count(*) AS n, sum(v) AS total, sum(m) AS money, min(d) AS least, max(v) AS most",
        window="session_window(ts, '10 seconds')",
    ),
    MINE(
        bounds=BOUNDS,
        what="sort_array(collect_list(v)) AS vs, sort_array(collect_set(v)) AS set,"
        " percentile(v, 0.5) AS middle, round(stddev(v), 3) AS spread, max_by(v, v) AS last,"
        " avg(m) AS mean",
        window="session_window(ts, '7 seconds')",
    ),
    MINE(
        bounds=BOUNDS,
        what="count(v) AS n, sum(v) FILTER (WHERE v > 0) AS gains",
        window="session_window(ts, CASE WHEN g > 5 THEN '20 seconds' ELSE '3 seconds' END)",
    ),
    MINE(  # rows whose gap is null, zero or less are in no session
        bounds="session_window.start, session_window.end",
        what="count(*) AS n",
        window="session_window(ts, make_interval(0, 0, 0, 0, 0, 0, g))",
    ),
    "SELECT session_window.end - session_window.start AS length, count(*) AS n FROM t"
    " WHERE v % 4 = 0 GROUP BY session_window(ts, '4 seconds') HAVING count(*) > 1",
    "SELECT session_window(ts, '9 seconds').end AS ends, upper(k) || 'x' AS name, v % 3 AS third,"
    " count(*) AS n FROM t AS t GROUP BY session_window(t.ts, '9 seconds'), upper(k) || 'x', v % 3",
]


TENS = "session_window(ts, '10 seconds')"
WHAT = (
    "count(DISTINCT v % 5) AS n, count(DISTINCT d) AS ds, count(DISTINCT g, m) AS pairs,"
    " count(DISTINCT g) FILTER (WHERE v > 0) AS gs, sum(DISTINCT m) AS money,"
    " avg(DISTINCT g) AS mean, sum(DISTINCT d) AS total, max(DISTINCT v) AS most,"
    " sort_array(collect_list(DISTINCT g)) AS listed, count(*) AS rows"
)
DISTINCT = MINE(bounds=BOUNDS, what=WHAT, window=TENS)
OF_DISTINCT = (
    f"WITH s AS (SELECT k AS of, {BOUNDS} FROM t GROUP BY k, {TENS}) SELECT k, starts, ends, {WHAT}"
    " FROM t JOIN s ON k <=> of AND ts >= starts AND ts < ends GROUP BY k, starts, ends"
)
"""Spark counts a value twice that two parts of a session have, if it groups by the session."""
CHANGED = [
    DISTINCT,
    MINE(bounds=BOUNDS, what="count(*) AS n", window="session_window(ts, '20 seconds')")
    + " HAVING count(*) > 2",
    "SELECT n, count(*) AS sessions, max(v) AS most FROM (SELECT k, count(*) AS n, max(v) AS v"
    " FROM t GROUP BY k, session_window(ts, '10 seconds') EMIT CHANGES) GROUP BY n",
]
"""With EMIT CHANGES; in the last one of groups over the changes of sessions."""
VISITS = (
    "WITH visits AS (SELECT k, session_window.end - INTERVAL 1 MICROSECOND AS last,"
    " count(*) AS n FROM t GROUP BY k, session_window(ts, '10 seconds'))"
    " SELECT window.start AS minute, count(*) AS visits, sum(n) AS rows"
    " FROM visits GROUP BY window(last, '1 minute')"
)
SPELLINGS = [
    MINE(bounds=BOUNDS, what="count(*) AS n", window=window)
    for window in (
        "session_window(ts, '10 seconds')",
        "SESSION(ts, INTERVAL 10 SECONDS)",
        "session_window(ts, CASE WHEN g = 77 THEN INTERVAL '1' DAY ELSE INTERVAL 10 SECONDS END)",
    )
]
ASKED = [*QUERIES, VISITS, *SPELLINGS, DISTINCT]


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline, killed once and rescaled; the view `t` has all rows at once."""
    place = Place(tmp_path_factory.mktemp("sessions"))
    place.put_json(epochs_of(EPOCHS_SEED))
    head = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
    changed = [(query, "EMIT CHANGES") for query in CHANGED]
    together = Together(head, [*((query, CLOSE) for query in ASKED), *changed])
    with pytest.raises(Killed):
        together.run(Run(spark, place, partitions=2, fail_point=Bomb("before COMMIT", 2)))
    run = Run(spark, place, partitions=4, drain=True)
    together.run(run)
    assert sum(report.late for report in run.reports) == 0
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return together


@pytest.mark.parametrize("query", QUERIES)
def test_sessions_equal_one_batch(spark: Any, outputs: Together, query: str) -> None:
    found = outputs.rows(ASKED.index(query))
    assert comparable(found) == comparable(batch(spark, query))
    assert len(found) > 5


def test_values_of_a_session_count_once(spark: Any, outputs: Together) -> None:
    found = comparable(outputs.rows(ASKED.index(DISTINCT)))
    assert found == comparable(batch(spark, OF_DISTINCT))
    assert len(found) > 50


@pytest.mark.parametrize("number", range(len(CHANGED)))
def test_changes_of_sessions_come_to_one_batch(spark: Any, outputs: Together, number: int) -> None:
    epochs = outputs.epochs(len(ASKED) + number)
    query = OF_DISTINCT if number == 0 else CHANGED[number].replace(" EMIT CHANGES", "")
    assert applied(epochs) == comparable(batch(spark, query))
    kinds = {row[CHANGE] for epoch in epochs for row in epoch}
    assert number or "-D" in kinds


def test_windows_over_sessions_count_them_when_they_end(spark: Any, outputs: Together) -> None:
    assert comparable(outputs.rows(ASKED.index(VISITS))) == comparable(batch(spark, VISITS))


def test_the_other_spelling_is_the_same_window(outputs: Together) -> None:
    first, *others = (comparable(outputs.rows(ASKED.index(query))) for query in SPELLINGS)
    assert first
    assert all(other == first for other in others)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_a_session_is_open_until_the_watermark_is_at_its_end(spark: Any, tmp_path: Path) -> None:
    """The second epoch joins what the first has left apart."""
    mark = "WATERMARK ts DELAY OF INTERVAL 15 SECONDS"
    rows = [
        [("a", 0), ("a", 20), ("b", 20)],
        [("a", 10), ("c", 30)],  # it touches both of a: they become one
        [("c", 5), ("d", 45)],  # the session of c would end at 15, where the watermark is: late
    ]
    place = Place(tmp_path)
    place.put_json([[{"k": k, "ts": at(t)} for k, t in epoch] for epoch in rows])
    query = MINE(bounds=BOUNDS, what="count(*) AS n", window="session_window(ts, '10 seconds')")
    run = Run(spark, place)
    run(pipeline_text("k STRING, ts TIMESTAMP", query, emit=CLOSE, mark=mark))
    found = [sorted((row["k"], row["n"], row["ends"]) for row in each) for each in place.epochs()]
    thirty = START + timedelta(seconds=30)
    assert found == [[("a", 3, thirty), ("b", 1, thirty)]]
    assert [report.late for report in run.reports] == [0, 0, 1, 0]


def test_rows_of_sessions_that_are_over_are_the_late_ones(spark: Any, tmp_path: Path) -> None:
    """Those that an epoch's rows form by themselves: a row is not late beside one that is not."""
    mark = "WATERMARK ts DELAY OF INTERVAL 0 SECONDS"
    rows = [
        [("a", 0, 1), ("b", 100, 2)],
        [("a", 1, 3), ("a", 8, 4), ("b", 89, 5), ("b", 95, 6), ("c", 90, 7), ("c", 80, 8),
         ("d", 90, 9), (None, 50, 10), (None, 60, 11), ("e", 95, -12)],
        [("a", 300, 13), ("b", 105, 14)],
    ]  # fmt: skip
    place = Place(tmp_path)
    place.put_json([[{"k": k, "ts": at(t), "n": n} for k, t, n in epoch] for epoch in rows])
    window = "session_window(ts, CASE WHEN k = 'c' THEN '10 seconds' ELSE '10 second' END)"
    query = "SELECT k, session_window.end AS ends, count(*) AS n FROM t WHERE n > 0"
    emit = f"{CLOSE} LATE ROWS TO late"
    text = pipeline_text(
        "k STRING, n INT, ts TIMESTAMP", f"{query} GROUP BY k, {window}", emit=emit, mark=mark
    )
    text += "CREATE STREAM l AS SELECT n, k FROM late;\n"
    text += "CREATE SINK lo FROM l USING parquet OPTIONS (path 'late');\n"
    run = Run(spark, place, drain=True)
    run(text)
    late = place.rows("late")
    assert [(row["n"], row["k"]) for row in sorted(late, key=lambda row: row["n"])] == [
        (3, "a"), (4, "a"), (7, "c"), (8, "c"), (9, "d"), (10, None), (11, None),
    ]  # fmt: skip
    assert sum(report.late for report in run.reports) == len(late)


def test_the_end_tells_the_sessions_of_a_key_apart(spark: Any) -> None:
    query = MINE(bounds=BOUNDS, what="count(*) AS n", window="session_window(ts, '1 minute')")
    output = compiled(spark, pipeline_text(COLUMNS, query, emit=CLOSE, mark=MARK)).outputs["o"]
    assert output.change is Change.APPEND
    assert output.keys == ("k", "ends")


@pytest.mark.parametrize(
    ("query", "emit", "message"),
    [
        (QUERIES[0], "EMIT ON UPDATE", "the bounds of a session change"),
        (QUERIES[0], "EMIT CHANGES EVERY INTERVAL 1 MINUTE", "EMIT EVERY with sessions"),
        (VISITS.replace("seconds'))", "seconds') EMIT CHANGES)"), CLOSE,
         "the end of a session can move on"),
        ("SELECT k, count(*) AS n FROM t GROUP BY session_window(ts, '1 day'), ROLLUP (k, v)",
         CLOSE, "sessions with GROUPING SETS"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k, SESSION(ts)", CLOSE, "wrong arguments"),
        (MINE(bounds="window.start AS s", what="1 AS one", window="SESSION(ts, '1 day')"), CLOSE,
         "window"),
    ],
)  # fmt: skip
def test_what_sessions_cannot_do_is_said(spark: Any, query: str, emit: str, message: str) -> None:
    with pytest.raises(BadPipeline, match=message):
        compiled(spark, pipeline_text(COLUMNS, query, emit=emit, mark=MARK))


def test_sessions_without_a_watermark_would_never_end(spark: Any) -> None:
    with pytest.raises(BadPipeline, match="no watermark: it would never close"):
        compiled(spark, pipeline_text(COLUMNS, QUERIES[0], emit=CLOSE))
