"""Queries inside of queries, UNION ALL, DISTINCT: run in epochs, equal to one batch over all."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.running import Place, Run, batch, comparable, compiled, job_count, pipeline_text
from tests.spark.together import Together

COLUMNS = "k STRING, g STRING, a BIGINT, d DOUBLE, m DECIMAL(9,2), ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 3 HOURS"  # nothing that `rows_of` makes is late
HOUR = "WATERMARK ts DELAY OF INTERVAL 1 HOUR"


def rows_of(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "k": rng.choice(["a", "b", "ü", "", None]),
            "g": rng.choice(["x", "y", None]),
            "a": rng.choice([None, *range(-3, 6), 1 << 40]),
            "d": rng.choice([None, "NaN", -0.0, 0.0, 1.5, "-Infinity"]),
            "m": rng.choice([None, "1.25", "-1.25", "1234567.89"]),
            "ts": f"2024-01-01T{rng.randint(0, 1):02}:{rng.randint(0, 59):02}:00Z",
        }
        for _ in range(count)
    ]


def cut(rows: list[dict[str, Any]], seed: int) -> list[list[dict[str, Any]]]:
    """In two to five epochs; one may be empty."""
    rng = random.Random(seed)
    at = sorted(rng.choices(range(len(rows) + 1), k=rng.randint(1, 4)))
    return [rows[i:j] for i, j in zip([0, *at], [*at, len(rows)], strict=True)]


SOURCE = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
APPENDING = [
    "SELECT k, b + 1 AS c FROM (SELECT k, a * 2 AS b FROM t WHERE a > 0) WHERE b < 9",
    "WITH p AS (SELECT k, a FROM t), q AS (SELECT * FROM p WHERE k = 'a') SELECT a FROM q",
    "SELECT k, a FROM t WHERE a > 2 UNION ALL SELECT g, -a FROM t WHERE a < 2",
    "SELECT k, a FROM t UNION ALL SELECT g, m FROM t",  # types become one
    "WITH p AS (SELECT k, a FROM t WHERE a IS NOT NULL) SELECT x.k FROM p AS x UNION ALL"
    " SELECT y.k FROM (SELECT k, a FROM p UNION ALL SELECT k, a + 1 FROM p) y WHERE y.a > 1",
    "SELECT DISTINCT k, g FROM t",
    "SELECT DISTINCT d, a % 2 AS even FROM t WHERE a > 0",
    "SELECT DISTINCT * FROM (SELECT g, m FROM t)",
    "SELECT DISTINCT t.* FROM t",
    "SELECT g, n FROM (SELECT DISTINCT k, g, 1 AS n FROM t) WHERE k IS NOT NULL",
    "SELECT DISTINCT k FROM (SELECT DISTINCT k, a FROM t UNION ALL SELECT g, 1 FROM t)",
]
UPDATING = [  # with the number of columns that are keys
    ("SELECT k, count(DISTINCT a) AS n FROM t GROUP BY k", 1),
    (
        "SELECT k, g, count(DISTINCT a) AS n, sum(a) AS s, count(*) AS rows, max(a) AS most,"
        " sum(DISTINCT a) AS sd, avg(DISTINCT m) AS md, round(stddev(d), 9) AS sv FROM t"
        " WHERE d IS NULL OR d < 9 GROUP BY k, g",
        2,
    ),
    (  # what others keep is untouched by rows that have only distinct values
        "SELECT g, count(DISTINCT a) AS n, round(corr(a, m), 9) AS c, regr_count(a, m) AS cp,"
        " bit_xor(a) AS x, bool_and(a > 0) AS every, any_value(g) AS v, avg(m) AS mean,"
        " slice(sort_array(collect_set(k)), 1, 3) AS ks, round(skewness(a), 9) AS sk FROM t"
        " GROUP BY g",
        1,
    ),
    ("SELECT count(DISTINCT k, g) AS both, count(DISTINCT d) AS ds, count(k) AS n FROM t", 0),
    (
        "SELECT k, count(DISTINCT a) FILTER (WHERE g = 'x') AS x, count(DISTINCT a) AS every,"
        " count(DISTINCT a % 2) AS even, min(DISTINCT a) AS least FROM t GROUP BY k",
        1,
    ),
    ("SELECT z.k, sum(z.b) AS b FROM (SELECT k, a + 1 AS b FROM t) z GROUP BY z.k", 1),
    ("SELECT k, sum(n) AS n FROM (SELECT DISTINCT k, a AS n FROM t) GROUP BY k", 1),
    (
        "SELECT k, sum(a) AS a, count(DISTINCT a) AS n FROM (SELECT k, a FROM t UNION ALL"
        " SELECT g, m FROM t) GROUP BY k",
        1,
    ),
    ("SELECT k, n * 2 AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k)", 1),
]


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline, over two epochs; the view `t` has all rows at once."""
    place = Place(tmp_path_factory.mktemp("blocks"))
    rows = rows_of(7, 240)
    place.put_json([rows[:150], rows[150:]])
    updating = [(query, "EMIT ON UPDATE") for query, _ in UPDATING]
    together = Together(SOURCE, [*((query, "") for query in APPENDING), *updating])
    together.run(Run(spark, place, partitions=2))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return together


@pytest.mark.parametrize("query", APPENDING)
def test_rows_that_never_change_equal_one_batch(spark: Any, outputs: Together, query: str) -> None:
    found = outputs.rows(APPENDING.index(query))
    assert comparable(found) == comparable(batch(spark, query))
    assert found


@pytest.mark.parametrize(("query", "keys"), UPDATING)
def test_groups_over_blocks_equal_one_batch(
    spark: Any, outputs: Together, query: str, keys: int
) -> None:
    found = outputs.latest(len(APPENDING) + UPDATING.index((query, keys)), keys)
    assert comparable(found) == comparable(batch(spark, query))
    assert found


WINDOWED = (
    "SELECT g, window.start AS at, count(DISTINCT k) AS ks, count(DISTINCT a) FILTER (WHERE a > 0)"
    " AS n, sum(a) AS s FROM t GROUP BY g, window(ts, '10 minutes')"
)


def test_distinct_values_of_closed_windows_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    """A last row far ahead closes every window."""
    place = Place(tmp_path)
    last = {"k": "end", "g": "end", "a": 1, "ts": "2024-01-02T00:00:00Z"}
    place.put_json([*cut(rows_of(3, 300), 2), [last], [last]])
    Run(spark, place)(pipeline_text(COLUMNS, WINDOWED, emit="EMIT ON WINDOW CLOSE", mark=MARK))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = [row for row in batch(spark, WINDOWED) if row["g"] != "end"]
    assert comparable(place.rows()) == comparable(wanted)
    assert len(wanted) > 20


def test_late_rows_are_late_for_distinct_values_and_for_all_others(
    spark: Any, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    at = "2024-01-01T{}:00Z".format
    place.put_json(
        [
            [{"g": "x", "k": "a", "a": 1, "ts": at("10:00")}],
            [{"g": "x", "k": "b", "a": 2, "ts": at("12:00")}],
            [{"g": "x", "k": "late", "a": 4, "ts": at("10:01")},
             {"g": "x", "k": "c", "a": 8, "ts": at("12:01")}],
            [{"g": "x", "k": "z", "a": 16, "ts": at("23:00")}],
            [{"g": "x", "k": "z", "a": 16, "ts": at("23:00")}],
        ]
    )  # fmt: skip
    run = Run(spark, place)
    run(pipeline_text(COLUMNS, WINDOWED, emit="EMIT ON WINDOW CLOSE", mark=HOUR))
    assert sum(report.late for report in run.reports) == 1
    assert [(row["ks"], row["n"], row["s"]) for row in place.rows()] == [(1, 1, 1), (2, 2, 10)]


def test_distinct_rows_with_their_event_time_are_forgotten_behind_the_watermark(
    spark: Any, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    at = "2024-01-01T{}:00Z".format
    place.put_json(
        [
            [{"k": "a", "ts": at("10:00")}, {"k": "a", "ts": at("10:00")}],
            [{"k": "a", "ts": at("10:00")}, {"k": "b", "ts": at("12:00")}],
            [{"k": "a", "ts": at("10:00")}, {"k": "b", "ts": at("12:00")}],  # the first is late
            [{"k": "c", "ts": at("12:00")}],
        ]
    )
    query = "SELECT DISTINCT k, ts FROM (SELECT * FROM t)"
    Run(spark, place)(pipeline_text(COLUMNS, query, emit="", mark=HOUR))
    assert [[row["k"] for row in epoch] for epoch in place.epochs()] == [["a"], ["b"], ["c"]]


def test_killed_epochs_count_no_distinct_value_twice(spark: Any, tmp_path: Path) -> None:
    """Three kills of one home, each at another place of an epoch, and a rescale after each."""
    query = "SELECT k, count(DISTINCT a) AS n, count(*) AS rows FROM t GROUP BY k"
    place, rows = Place(tmp_path), rows_of(11, 200)
    place.put_json([rows[:60], rows[60:110], rows[110:160], rows[160:]])
    text = pipeline_text(COLUMNS, query)
    for where, partitions in (
        ("before COMMIT", 4),
        ("after s.distinct bigint", 2),
        ("before publish", 4),
    ):
        with pytest.raises(Killed):
            Run(spark, place, partitions, fail_point=Bomb(where, 2))(text)
    Run(spark, place, partitions=2)(text)
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    assert comparable(place.latest(1)) == comparable(batch(spark, query))


def test_a_block_without_state_is_no_job_of_its_own(spark: Any, tmp_path: Path) -> None:
    query = (
        "SELECT k, sum(b) AS b FROM (SELECT k, a + 1 AS b FROM (SELECT * FROM t) UNION ALL"
        " SELECT g, 1 FROM t) GROUP BY k"
    )
    assert jobs_of_epochs(spark, tmp_path, query) == [1, 1]


def test_distinct_values_of_one_type_are_one_more_job(spark: Any, tmp_path: Path) -> None:
    query = (
        "SELECT k, count(DISTINCT a) AS n, count(DISTINCT a + 0) FILTER (WHERE a > 1) AS m,"
        " sum(DISTINCT a * 2) AS twice FROM t GROUP BY k"
    )
    assert jobs_of_epochs(spark, tmp_path, query) == [2, 2]


def jobs_of_epochs(spark: Any, folder: Path, query: str) -> list[int]:
    """Of the second epoch and of the third: from one COMMIT to the next."""
    place, counts = Place(folder), list[int]()
    place.put_json([rows_of(epoch, 20) for epoch in range(3)])

    def count(point: str) -> None:
        if point == "before COMMIT":
            counts.append(job_count(spark))

    Run(spark, place, fail_point=count)(pipeline_text(COLUMNS, query))
    return [after - before for before, after in pairwise(counts)]


def test_parts_of_a_union_with_other_columns_are_refused(spark: Any) -> None:
    text = pipeline_text(COLUMNS, "SELECT k FROM t UNION ALL SELECT k, a FROM t", emit="")
    with pytest.raises(BadPipeline, match="different numbers of columns: 1, 2"):
        compiled(spark, text)


def test_a_union_of_types_that_do_not_meet_is_refused(spark: Any) -> None:
    text = pipeline_text(COLUMNS, "SELECT array(a) AS x FROM t UNION ALL SELECT k FROM t", emit="")
    with pytest.raises(BadPipeline, match="the stream 's'"):
        compiled(spark, text)


PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
EXAMPLES = [
    text
    for text in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    if text.startswith(("SELECT", "WITH"))
]
SOURCES = {
    "trades": "symbol STRING, price DECIMAL(9,2), volume BIGINT, side STRING, ts TIMESTAMP",
    "quotes": "symbol STRING, ts TIMESTAMP",
    "clicks": "user STRING, page STRING, country STRING, ts TIMESTAMP",
    "requests": "user STRING, latency DOUBLE, ts TIMESTAMP",
    "sales": "country STRING, city STRING, amount DECIMAL(9,2), ts TIMESTAMP",
    "bid": "auction BIGINT, dateTime TIMESTAMP",
    "orders": "id BIGINT, customer BIGINT, customer_id BIGINT, total DECIMAL(9,2), currency STRING,"
    " ts TIMESTAMP",
    "payments": "order_id BIGINT, amount DECIMAL(9,2), ts TIMESTAMP",
}
TABLES = {"customers": "id BIGINT, region STRING", "rates": "currency STRING, rate DECIMAL(9,4)"}


CHANGING = """CREATE SOURCE people (id BIGINT, name STRING, country STRING)
  USING json OPTIONS (path 'p');
CREATE STREAM customers AS SELECT id, max(name) AS name, max(country) AS country FROM people
  GROUP BY id EMIT CHANGES;
"""


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_compiles(spark: Any, example: str) -> None:
    is_temporal = "PROCTIME()" in example
    sources = CHANGING if is_temporal else ""
    sources += "".join(
        f"CREATE SOURCE {name} ({columns}) USING json OPTIONS (path '{name}')"
        f" WATERMARK {columns.split()[-2]} DELAY OF INTERVAL 5 SECONDS;\n"
        for name, columns in SOURCES.items()
        if re.search(rf"\b{name}\b", example)
    )
    sources += "".join(
        f"CREATE TABLE {name} ({columns}) USING json OPTIONS (path '{name}');\n"
        for name, columns in TABLES.items()
        if re.search(rf"\b{name}\b", example) and not is_temporal
    )
    sources += "".join(
        f"CREATE SINK late_out FROM {name} USING parquet OPTIONS (path 'late');\n"
        for name in re.findall(r"LATE ROWS TO (\w+)", example)
    )
    is_complete = "EMIT" in example or "JOIN" in example
    emit = "" if is_complete or "DISTINCT" in example.partition("FROM")[0] else "EMIT ON UPDATE"
    sink = "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    plan = compiled(spark, f"{sources}CREATE STREAM s AS {example} {emit};\n{sink}")
    assert "s" in [stream.name for stream in plan.streams]


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4
