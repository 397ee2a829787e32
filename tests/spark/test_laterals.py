"""Rows that become several rows, and keys of every kind: in epochs, equal to one batch over all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text

COLUMNS = (
    "k STRING, a BIGINT, d DOUBLE, xs ARRAY<BIGINT>, m MAP<STRING, BIGINT>,"
    " st STRUCT<p: STRING, q: ARRAY<INT>>, ts TIMESTAMP"
)
MARK = "WATERMARK ts DELAY OF INTERVAL 36500 DAYS"  # nothing is late


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    lists = [None, [], [1], [None, 2, 2], [3, -1, 1 << 40, None]]
    return [
        {
            "k": rng.choice(["a", "b", "ü", "", None]),
            "a": rng.choice([None, -2, 0, 1, 5]),
            "d": rng.choice([None, "NaN", -0.0, 0.0, 1.5]),
            "xs": rng.choice(lists),
            "m": rng.choice([None, {}, {"x": 1}, {"x": None, "ß": 3}]),
            "st": rng.choice([None, {"p": None, "q": [1, None]}, {"p": "s", "q": []}]),
            "ts": f"{rng.choice([1969, 2024])}-01-01T00:{rng.randint(0, 59):02}:07.000001Z",
        }
        for _ in range(count)
    ]


def epochs_of(rows: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(seed)
    at = sorted(rng.choices(range(len(rows) + 1), k=rng.randint(1, 4)))
    return [rows[i:j] for i, j in zip([0, *at], [*at, len(rows)], strict=True)]


def run_all(spark: Any, folder: Path, queries: list[str]) -> None:
    """All queries in one pipeline; those with GROUP BY are compared by their first columns."""
    place = Place(folder)
    place.put_json(epochs_of(rows_of(5, 150), len(queries)))
    text = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
    for number, query in enumerate(queries):
        emit = "EMIT ON UPDATE" if " GROUP BY " in query else ""
        text += (
            f"CREATE STREAM s{number} AS {query} {emit};\n"
            f"CREATE SINK o{number} FROM s{number} USING parquet OPTIONS (path 'o{number}');\n"
        )
    Run(spark, place)(text)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    for number, query in enumerate(queries):
        keys = query.partition(" GROUP BY ")[2].count(" & ") + 1
        grouped = " GROUP BY " in query
        found = place.latest(keys, f"o{number}") if grouped else place.rows(f"o{number}")
        assert comparable(found) == comparable(batch(spark, query)), query
        assert found, query


def test_rows_made_of_one_row_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    run_all(
        spark,
        tmp_path,
        [
            "SELECT k, x FROM t LATERAL VIEW explode(xs) e AS x",
            "SELECT t.k, e.x, p FROM t LATERAL VIEW OUTER posexplode(xs) e AS p, x WHERE k <> 'a'",
            "SELECT u.k, x, key, v FROM t AS u LATERAL VIEW explode(xs) e AS x"
            " LATERAL VIEW OUTER explode(m) f AS key, v",
            "SELECT k, x FROM t, LATERAL explode(xs) AS e(x) WHERE x > 0",
            "SELECT k, e.col FROM t LEFT JOIN LATERAL explode(xs) e ON TRUE",
            "SELECT * FROM (SELECT k, xs FROM t) CROSS JOIN LATERAL explode(xs) AS e(x)",
            "SELECT k, w, n FROM t LATERAL VIEW stack(2, a, 'one', a + 1, 'two') s AS w, n",
            "SELECT k, inline(array(struct(a AS x1, 'a' AS y1), struct(1L AS x1, 'b' AS y1)))"
            " FROM t",
            "SELECT stack(2, k, a, 'z', a * 2) AS (name, value) FROM t",
            "SELECT k, a, posexplode_outer(xs) AS (p, x) FROM t",
            "SELECT k, window(ts, '10 minutes', '4 minutes').start AS at FROM t",
            "SELECT k, w.end AS ends FROM (SELECT k, window(ts, '2 minutes', '30 seconds',"
            " '7 seconds') AS w FROM t)",
            "SELECT DISTINCT * FROM (SELECT k, xs FROM t) q LATERAL VIEW explode(q.xs) e AS x",
            "SELECT x, count(*) AS n, sum(t.a) AS s FROM t LATERAL VIEW explode(xs) e AS x"
            " GROUP BY x",
        ],
    )


def test_keys_of_every_kind_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    run_all(
        spark,
        tmp_path,
        [
            "SELECT st, count(*) AS n FROM t GROUP BY st",
            "SELECT xs, max(a) AS most FROM t GROUP BY xs",
            "SELECT (k, a) AS both, count(d) AS n FROM t GROUP BY (k, a)",
            "SELECT named_struct('d', d, 'l', array(d, 0.0D)) AS s, count(*) AS n FROM t"
            " GROUP BY named_struct('d', d, 'l', array(d, 0.0D))",
            "SELECT CASE WHEN a > 0 THEN 'more' WHEN a IS NULL THEN NULL ELSE k END AS c,"
            " count(*) AS n FROM t GROUP BY CASE WHEN a > 0 THEN 'more' WHEN a IS NULL THEN NULL"
            " ELSE k END",
            "SELECT st.p AS p, count(DISTINCT st) AS n FROM t GROUP BY st.p",
            "SELECT transform(xs, x -> x % 2) AS odd, count(*) AS n FROM t"
            " GROUP BY transform(xs, x -> x % 2)",
            "SELECT d, count(*) AS n FROM t GROUP BY d",
        ],
    )


@pytest.mark.parametrize("made", ["window(at, '4 minutes', '2 minutes') AS w", "x"])
def test_several_rows_of_an_updating_row_are_refused(spark: Any, made: str) -> None:
    view = "LATERAL VIEW explode(array(n, 1)) e AS x" if made == "x" else ""
    inner = "SELECT k, max(ts) AS at, count(*) AS n FROM t GROUP BY k"
    text = pipeline_text(COLUMNS, f"SELECT k, {made} FROM ({inner}) {view}", mark=MARK)
    with pytest.raises(BadPipeline, match="several rows of one, over the updating stream"):
        compiled(spark, text)


def test_windows_that_cumulate_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    """Before 1970, too; Spark has no such windows, so it is asked in other words."""
    place = Place(tmp_path)
    place.put_json(epochs_of(rows_of(8, 120), 3))
    query = (
        "SELECT k, window.end AS ends, window.start AS starts, count(*) AS n, sum(a) AS s,"
        " count(DISTINCT a) AS c FROM t"
        " GROUP BY k, CUMULATE(ts, INTERVAL 15 MINUTES, INTERVAL 1 HOUR)"
    )
    Run(spark, place)(pipeline_text(COLUMNS, query, mark=MARK))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = batch(
        spark,
        "SELECT k, starts + i * INTERVAL '15' MINUTE AS ends, starts, count(*) AS n, sum(a) AS s,"
        " count(DISTINCT a) AS c FROM (SELECT *, window(ts, '1 hour').start AS starts FROM t)"
        " LATERAL VIEW explode(array(1, 2, 3, 4)) e AS i"
        " WHERE ts < starts + i * INTERVAL '15' MINUTE GROUP BY ALL",
    )
    assert comparable(place.latest(2)) == comparable(wanted)
    assert any(row["ends"].year == 1969 for row in wanted)


def test_a_name_that_two_columns_have_is_refused(spark: Any) -> None:
    text = pipeline_text(
        COLUMNS, "SELECT a FROM t LATERAL VIEW explode(xs) e AS a", emit="", mark=MARK
    )
    with pytest.raises(BadPipeline, match=r"AMBIGUOUS_REFERENCE.*`a` is ambiguous"):
        compiled(spark, text)
