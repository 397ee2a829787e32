"""Pipelines run epoch by epoch: their rows equal those of plain Spark, and of DuckDB, at once."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lamina.engine.plans import EngineSettings
from lamina.errors import BadPipeline, Overflow, Refused, StateChanged
from lamina.inspect import open_view
from tests.spark.projects import Project
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text

COLUMNS = "k STRING, a BIGINT, b BIGINT, d DOUBLE, ts TIMESTAMP"


def test_outputs_were_computed_of_the_row_that_carries_a_tasks_result(
    spark: Any, tmp_path: Path
) -> None:
    """It is null in every column: a division by zero there failed every epoch."""
    select = (
        "SELECT k, coalesce(sum(a), 0) / coalesce(sum(b), 0) AS r,"
        " 1 + coalesce(sum(a), 0) / coalesce(sum(b), 0) AS again,"
        " CASE WHEN sum(b) > 3 THEN coalesce(sum(a), 0) / coalesce(sum(b), 0)"
        " ELSE coalesce(sum(a), 0) / coalesce(sum(b), 0) END AS both,"
        " element_at(split(coalesce(k, ''), '-'), 2) AS part FROM t GROUP BY k"
    )
    place = Place(tmp_path)
    epochs = [[{"k": f"x-{i % 3}", "a": i, "b": i + 1} for i in range(e, e + 4)] for e in (0, 5)]
    place.put_json(epochs)
    Run(spark, place)(pipeline_text(COLUMNS, select))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    assert comparable(place.latest(1)) == comparable(batch(spark, select))


def test_having_was_computed_of_the_row_that_carries_a_tasks_result(
    spark: Any, tmp_path: Path
) -> None:
    select = (
        "SELECT k, window.start AS at, sum(a) AS a FROM t GROUP BY k, window(ts, '1 minute')"
        " HAVING 100 / coalesce(sum(a), 0) > 10"
    )
    place = Place(tmp_path)
    place.put_json(
        [
            [{"k": "x", "a": i, "ts": f"2024-01-01T0{hour}:00:00Z"} for i in (1, 2, hour * 7)]
            for hour in (1, 2, 3)
        ]
    )
    mark = "WATERMARK ts DELAY OF INTERVAL 0 SECONDS"
    Run(spark, place)(pipeline_text(COLUMNS, select, emit="EMIT ON WINDOW CLOSE", mark=mark))
    assert [row["a"] for row in place.rows()] == []
    other = Place(tmp_path / "other")
    other.put_json([[{"k": "x", "a": h, "ts": f"2024-01-01T0{h}:00:00Z"}] for h in (1, 2, 3)])
    Run(spark, other)(pipeline_text(COLUMNS, select, emit="EMIT ON WINDOW CLOSE", mark=mark))
    assert [row["a"] for row in other.rows()] == [1, 2]


MOMENTS = (
    "SELECT k, stddev(d) AS sd, var_pop(d) AS vp, avg(a) AS mean, count(d) AS n,"
    " {first}(b, a) AS first, {last}(b, a) AS last, bool_and(d > 0) AS every,"
    " bool_or(d > 9) AS some, count(*) FILTER (WHERE d > 0) AS up FROM t GROUP BY k"
)


def test_aggregates_of_several_columns_equal_spark_and_duckdb(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(3)
    order = rng.sample(range(10_000), 600)  # no two rows are equally early
    rows = [
        {
            "k": rng.choice("abcd"),
            "a": order[i],
            "b": rng.randint(0, 99),
            "d": rng.choice([None, rng.uniform(-10, 10)]),
        }
        for i in range(600)
    ]
    place = Place(tmp_path)
    place.put_json([rows[:50], rows[50:51], rows[51:400], rows[400:]])
    select = MOMENTS.format(first="min_by", last="max_by")
    Run(spark, place)(pipeline_text(COLUMNS, select))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    ours = {row["k"]: row for row in place.latest(1)}
    with duckdb.connect() as db:
        db.register("t", pa.Table.from_pylist(rows))
        duck = db.sql(MOMENTS.format(first="arg_min", last="arg_max")).to_arrow_table()
    for oracle in (batch(spark, select), duck.to_pylist()):
        assert {row["k"] for row in oracle} == set(ours)
        for row in oracle:
            for name, value in row.items():
                found = ours[row["k"]][name]
                same = math.isclose(found, value) if isinstance(value, float) else found == value
                assert same, (row["k"], name, found, value)


@pytest.mark.parametrize("select", ["SELECT array() AS x FROM t", "SELECT map() AS x FROM t"])
def test_an_array_of_nothing_was_a_raw_error(spark: Any, select: str) -> None:
    with pytest.raises(BadPipeline, match=r"'x' of type .*void.* has values of no type") as refused:
        compiled(spark, pipeline_text(COLUMNS, select, emit=""))
    assert "CAST" in refused.value.advice
    compiled(spark, pipeline_text(COLUMNS, "SELECT CAST(array() AS ARRAY<INT>) x FROM t", emit=""))


def test_nulls_in_a_column_that_is_not_null_name_the_column(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": "x"}]])
    text = pipeline_text("k STRING, a BIGINT NOT NULL", "SELECT k, a FROM t", emit="")
    with pytest.raises(Refused, match="the column 'a' is NOT NULL, and a row has no value for it"):
        Run(spark, place)(text)


@pytest.mark.parametrize(
    ("select", "epochs", "said"),
    [
        ("SELECT k, sum(a) * 4 AS x FROM t GROUP BY k", 1, "(sum(a)) * 4 does not fit"),
        ("SELECT k, a * 4 AS x FROM t", 1, "a * 4 does not fit"),
        ("SELECT k, count(*) AS n, sum( A ) AS x FROM t GROUP BY k", 2, "'sum(a)' does not fit"),
    ],
)
def test_an_overflow_names_the_users_expression_and_what_helps(
    spark: Any, tmp_path: Path, select: str, epochs: int, said: str
) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": "x", "a": 1 << 62}]] * epochs)
    emit = "EMIT ON UPDATE" if "GROUP" in select else ""
    with pytest.raises(Overflow) as refused:
        Run(spark, place)(pipeline_text(COLUMNS, select, emit=emit))
    assert said in refused.value.message
    assert "wider type" in str(refused.value)
    assert "ansi" not in str(refused.value).lower()


SWAP = """
CREATE SOURCE s (k STRING, j STRING, a BIGINT, b BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM sums AS SELECT {items} FROM s AS t GROUP BY {keys} EMIT ON UPDATE;
CREATE SINK out FROM sums USING parquet OPTIONS (path 'out');
"""


def test_reused_state_follows_columns_that_have_changed_places(spark: Any, tmp_path: Path) -> None:
    """Sums went on as those of the column that stood in their place."""
    first = SWAP.format(items="k, j, sum(a) AS a, sum(b) + 0 AS b", keys="k, j")
    project = Project(tmp_path, spark, first)
    project.put("in/1.json", '{"k":"x","j":"y","a":1,"b":100}', at=1)
    project.run()
    project.put("in/2.json", '{"k":"x","j":"y","a":2,"b":200}', at=2)
    project.sql = SWAP.format(items="sum( B ) AS b, k, j, sum(t.a) AS a, count(*) AS n", keys="k,j")
    with pytest.raises(StateChanged, match="--reuse-state"):
        project.run()
    project.engine = EngineSettings(limits=project.engine.limits, reuse_state=frozenset({"sums"}))
    project.run()
    project.put("in/3.json", '{"k":"x","j":"y","a":4,"b":400}', at=3)
    project.engine = EngineSettings(limits=project.engine.limits)
    project.run()
    wanted = [("x", "y", 1, 100), (300, "x", "y", 3, 1), (700, "x", "y", 7, 2)]
    assert project.rows() == sorted(wanted, key=repr)
    project.engine = EngineSettings(limits=project.engine.limits, reuse_state=frozenset({"sums"}))
    project.sql = SWAP.format(items="k, j, sum(b) AS b, sum(a) AS a, count(*) AS n", keys="j, k")
    with pytest.raises(StateChanged, match="the keys are j, k, and k, j in its state"):
        project.run()
    with open_view(tmp_path / "store") as view:
        shown = view.to_arrow("sums").to_pylist()
    assert shown == [{"k": "x", "j": "y", "sum(b)": 700, "sum(a)": 7, "count(*)": 2}]


def test_rows_made_of_an_updating_row_are_refused_because_older_ones_would_stay(spark: Any) -> None:
    text = (
        f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');"
        "CREATE STREAM s AS SELECT k, count(*) AS n FROM t GROUP BY k EMIT ON UPDATE;"
        "CREATE STREAM r AS SELECT * FROM s;"
        "CREATE STREAM q AS SELECT explode({made}) AS i FROM {reads};"
        "CREATE SINK o FROM q USING parquet OPTIONS (path 'out');"
        "CREATE SINK p FROM r USING parquet OPTIONS (path 'other');"
    )
    with pytest.raises(BadPipeline, match="several rows of one, over the updating stream 'r'"):
        compiled(spark, text.format(made="sequence(1, n)", reads="r"))
    compiled(spark, text.format(made="array(a, b)", reads="t"))
