"""What Lamina uses of Spark beyond its public API, on the Spark that is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from lamina.spark.internals import (
    TRIED,
    AnalysedPlan,
    active,
    clone_session,
    executor_count,
    is_aggregate,
    map_in_arrow,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_installed_spark_is_one_that_the_internals_were_tried_with() -> None:
    assert pyspark.__version__ in TRIED
    allowed = re.search(r'^spark = \["pyspark==([\d.]+)"\]', PROJECT.read_text(), re.MULTILINE)
    assert allowed is not None
    assert allowed[1] in TRIED


def test_map_in_arrow_runs_without_pandas(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("pandas was asked for")

    monkeypatch.setattr("pyspark.sql.pandas.utils.require_minimum_pandas_version", refused)

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"n": pa.array([2 * n for n in batch[0].to_pylist()])})

    frame = spark.range(3).selectExpr("id AS `a ``b`")
    assert [row.n for row in map_in_arrow(frame, doubled, "n bigint").collect()] == [0, 2, 4]
    named = map_in_arrow(frame, doubled, "n bigint", ["a `b"])
    assert [row.n for row in named.collect()] == [0, 2, 4]


def test_a_cloned_session_has_views_and_functions_and_keeps_its_settings_to_itself(
    spark: Any,
) -> None:
    users = spark.newSession()
    users.range(2).createOrReplaceTempView("internals_view")
    users.sql("CREATE TEMPORARY FUNCTION internals_plus(x INT) RETURNS INT RETURN x + 1")
    own = clone_session(users)
    assert own.sql("SELECT internals_plus(1) AS n FROM internals_view").count() == 2
    own.conf.set("spark.sql.shuffle.partitions", "3")
    assert users.conf.get("spark.sql.shuffle.partitions") != "3"


def test_the_active_session_is_restored(spark: Any) -> None:
    before, own = type(spark).getActiveSession(), spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    with active(own):
        own.createDataFrame([], "n int")
        inside = type(spark).getActiveSession()
        assert inside.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    after = type(spark).getActiveSession()
    zones = [each and each.conf.get("spark.sql.session.timeZone") for each in (before, after)]
    assert zones[0] == zones[1]


def test_the_driver_counts_as_an_executor(spark: Any) -> None:
    assert executor_count(spark) == 1


def test_aggregates_are_told_from_other_functions(spark: Any) -> None:
    names = ("sum", "stddev_samp", "upper", "no_such_function")
    assert [is_aggregate(spark, name) for name in names] == [True, True, False, False]


def test_plans_say_what_they_are_made_of(spark: Any) -> None:
    spark.range(3).createOrReplaceTempView("internals_rows")
    grouped = spark.sql("SELECT id, count(*) AS n FROM internals_rows WHERE id > 0 GROUP BY id")
    assert [n for n in AnalysedPlan(grouped).spine() if n in ("Aggregate", "Filter")] == [
        "Aggregate",
        "Filter",
    ]
    random = spark.sql("SELECT rand() AS r FROM internals_rows")
    assert AnalysedPlan(grouped).is_deterministic()
    assert not AnalysedPlan(random).is_deterministic()
    nested = spark.sql("SELECT (SELECT max(id) FROM internals_rows) AS m FROM internals_rows")
    assert AnalysedPlan(nested).has_subqueries()
    assert not AnalysedPlan(grouped).has_subqueries()


def test_a_users_function_is_found_wherever_it_is_in_the_plan(spark: Any) -> None:
    users = spark.newSession()
    users.udf.register("internals_shout", lambda text: text)
    deep = users.sql("SELECT upper(internals_shout('a')) AS x, 1 AS y")
    assert AnalysedPlan(deep.select("y")).users_code() == "internals_shout()"
    assert AnalysedPlan(users.sql("SELECT upper('a') AS x")).users_code() is None
