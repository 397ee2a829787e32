"""Groups and window functions over closed windows: in epochs, equal to one batch over all rows."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.spark.running import Place, Run, batch, comparable, compiled, job_count

COLUMNS = "k STRING, a BIGINT, m DECIMAL(9,2), ts TIMESTAMP"
SOURCE = (
    f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in')"
    " WATERMARK ts DELAY OF INTERVAL 30 MINUTES;\n"
)
TUMBLES = (
    "SELECT window.start AS at, k, count(*) AS n, sum(a) AS s, max(m) AS m FROM t"
    " GROUP BY k, window(ts, '10 minutes')"
)
HOPS = (
    "SELECT window.end AS ends, k, count(*) AS n FROM t"
    " GROUP BY k, window(ts, '10 minutes', '4 minutes')"
)
QUERIES = {
    "ranks": f"SELECT at, k, rank() OVER (PARTITION BY at ORDER BY n DESC) AS r, dense_rank() OVER"
    f" (PARTITION BY at ORDER BY s) AS d, ntile(2) OVER (PARTITION BY at ORDER BY k) AS half"
    f" FROM ({TUMBLES})",
    "frames": f"SELECT *, lag(n) OVER w AS b, lead(s, 2, -1L) OVER w AS c, sum(n) OVER (PARTITION"
    f" BY at ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two, avg(m) OVER (PARTITION"
    f" BY at ORDER BY k) AS mean FROM ({TUMBLES})".replace(
        "OVER w", "OVER (PARTITION BY at ORDER BY k)"
    ),
    "shares": f"SELECT at, k, round(n / sum(n) OVER (PARTITION BY at), 9) AS share FROM ({TUMBLES})"
    " WHERE n > 1",
    "first_two": f"SELECT at, k, n FROM ({TUMBLES})"
    " QUALIFY rank() OVER (PARTITION BY at ORDER BY n DESC, s) <= 2",
    "most": "SELECT ends, k, n FROM (SELECT *, max(n) OVER (PARTITION BY ends) AS most FROM"
    f" ({HOPS})) WHERE n = most",
    "numbered": "SELECT ends, k, place FROM (SELECT *, row_number() OVER (PARTITION BY ends ORDER"
    f" BY n DESC, k) AS place FROM ({HOPS})) WHERE place <= 2",
    "nothing": "SELECT at, k, r FROM (SELECT at, k, rank() OVER (PARTITION BY at ORDER BY k) AS r"
    f" FROM ({TUMBLES}) WHERE n > 1000) WHERE r = 1",
    "twice": f"WITH r AS (SELECT at, k, n, row_number() OVER (PARTITION BY at ORDER BY n, k) AS r"
    f" FROM ({TUMBLES})) SELECT at, k, r FROM r WHERE r = 1 UNION ALL SELECT at, k, -r FROM r",
    "ranked_again": "SELECT at, k, sum(r) OVER (PARTITION BY at ORDER BY r) AS q FROM (SELECT at,"
    f" k, row_number() OVER (PARTITION BY at ORDER BY n, k) AS r FROM ({TUMBLES}))",
    "groups": "SELECT at, max(n) AS most, count(DISTINCT k) AS keys, median(s) AS middle FROM"
    f" ({TUMBLES}) GROUP BY at HAVING count(*) > 1",
    "groups_of_structs": "SELECT w, w.start AS starts, max_by(k, struct(n, k)) AS busiest FROM"
    " (SELECT window(ts, '10 minutes', '4 minutes') AS w, k, count(*) AS n FROM t GROUP BY 1, 2)"
    " GROUP BY w",
    "groups_again": "SELECT at, max(many) AS most FROM (SELECT at, n, count(*) AS many FROM"
    f" ({TUMBLES}) GROUP BY at, n) GROUP BY at",
}
WINS = (
    "SELECT window.start AS half_hour, k, count(*) AS wins FROM (SELECT k, ends FROM (SELECT *,"
    " rank() OVER (PARTITION BY ends ORDER BY n DESC) AS r FROM (SELECT window.end - INTERVAL 1"
    " MICROSECOND AS ends, k, count(*) AS n FROM t GROUP BY k, window(ts, '10 minutes')))"
    " WHERE r = 1) GROUP BY k, window(ends, '30 minutes')"
)


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "k": rng.choice(["a", "b", "ü", "", None]),
            "a": rng.choice([None, -3, 0, 1, 1 << 40]),
            "m": rng.choice([None, "1.25", "-1.25"]),
            "ts": f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z",
        }
        for minute in (n + rng.randint(0, 25) for n in range(count))
    ]


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """All queries in one pipeline, over four epochs; what is open in the end is drained."""
    place, rows = Place(tmp_path_factory.mktemp("windows")), rows_of(4, 180)
    place.put_json([rows[:70], [], rows[70:130], rows[130:]])
    text = SOURCE
    for name, query in [*QUERIES.items(), ("wins", WINS)]:
        emit = " EMIT ON WINDOW CLOSE" if name in ("wins", "most") else ""
        text += (
            f"CREATE STREAM {name} AS {query}{emit};\n"
            f"CREATE SINK {name}_out FROM {name} USING parquet OPTIONS (path '{name}');\n"
        )
    Run(spark, place, partitions=2, drain=True)(text)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return place


@pytest.mark.parametrize("name", [*QUERIES, "wins"])
def test_functions_over_closed_windows_equal_one_batch(spark: Any, place: Place, name: str) -> None:
    query = WINS if name == "wins" else QUERIES[name]
    assert comparable(place.rows(name)) == comparable(batch(spark, query))
    assert len(place.epochs(name)) > 1 or name == "nothing"


def test_windows_that_close_are_one_more_job_and_others_none(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    at = "2024-01-01T{}:00Z".format
    place.put_json([[{"k": "a", "ts": at(time)}] for time in ("10:00", "10:01", "12:00", "12:01")])
    run = Run(spark, place)
    jobs = list[int]()
    run.fail_point = lambda at: jobs.append(job_count(spark)) if at == "before COMMIT" else None
    run(
        f"{SOURCE}CREATE STREAM s AS {QUERIES['ranks']};"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )
    assert [after - before for before, after in pairwise(jobs)] == [1, 1, 2, 1]
    assert [row["r"] for row in place.rows()] == [1]


def test_ranks_that_two_queries_read_are_computed_once(spark: Any) -> None:
    """Of equal rows Spark takes any: two computations could differ."""
    text = f"{SOURCE}CREATE STREAM s AS {{}};CREATE SINK o FROM s USING parquet OPTIONS (path 'o');"
    plan = compiled(spark, text.format(QUERIES["twice"]))
    assert [stream.name for stream in plan.streams] == ["s.r.subquery", "s.r", "s"]
    plan = compiled(spark, text.format(QUERIES["numbered"]))
    assert [stream.name for stream in plan.streams] == ["s.subquery.subquery", "s"]
    plan = compiled(spark, text.format(f"{WINS} EMIT ON WINDOW CLOSE"))
    assert len(plan.streams) == 3
