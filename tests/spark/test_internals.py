"""What Lamina uses of Spark beyond its public API, on the Spark that is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import StringType, StructField, StructType

from lamina.spark.internals import (
    TRIED,
    AnalysedPlan,
    ArrowStep,
    ArrowTask,
    Measures,
    active,
    arrow_schema,
    clone_session,
    empty_frame,
    executor_count,
    is_aggregate,
    json_column,
    map_in_arrow,
    query,
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


EVERY_TYPE = (
    "a STRING NOT NULL, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38,9),"
    " i BOOLEAN, j BINARY, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n INTERVAL DAY TO SECOND,"
    " o ARRAY<STRUCT<x: INT, y: ARRAY<TIMESTAMP>>>, p MAP<STRING, DECIMAL(9,2)>,"
    " q STRUCT<r: STRING NOT NULL, s: STRUCT<t: DATE>>, u VARIANT"
)


def test_arrow_types_are_those_of_a_table_that_spark_makes(spark: Any) -> None:
    frame = spark.createDataFrame([], EVERY_TYPE)
    assert arrow_schema(frame).equals(frame.toArrow().schema, check_metadata=True)


def test_an_empty_frame_has_the_columns_that_were_asked_for(spark: Any) -> None:
    frame = spark.createDataFrame([], EVERY_TYPE)
    empty = empty_frame(spark, frame.schema)
    assert empty.schema == frame.schema
    assert empty.toArrow().num_rows == 0


def counted(text: str) -> ArrowTask:
    """A task that says how many rows it has got, and something of its own."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        answer = json.dumps({"rows": rows, "text": text})
        yield pa.record_batch({"answer": pa.array([answer])})

    return count


ANSWER = StructType([StructField("answer", StringType())])
ODD_TEXTS = ["plain", '"], [", \\', "\u20ac \U0001f600\n"]


@pytest.mark.parametrize("text", [*ODD_TEXTS, "long " * 300_000], ids=[*ODD_TEXTS, "long"])
def test_a_step_runs_another_function_every_time(spark: Any, text: str) -> None:
    """Also one that is so large that Spark sends it by another way."""
    step = ArrowStep(spark, ANSWER, ["a `b"])
    for rows in (3, 5):
        frame = spark.range(0, rows, 1, 2).selectExpr("id AS `a ``b`")
        answers = json_column(step.over(frame, counted(text)))
        assert sum(answer["rows"] for answer in answers) == rows
        assert [answer["text"] for answer in answers] == [text, text]


def test_what_was_observed_is_there_when_the_job_has_ended(spark: Any) -> None:
    count, most = F.count(F.lit(1)).alias("rows"), F.max("id").alias("most")
    measures = Measures(spark, "s", [count, most, F.min(F.lit(None).cast("int")).alias("none")])
    for rows in (3, 0):
        measures.of(spark.range(rows)).createOrReplaceTempView("internals_measured")
        text = "SELECT id % 2 AS id, count(*) AS n FROM internals_measured GROUP BY 1"
        job = ArrowStep(spark, ANSWER, ["id", "n"]).over(query(spark, text), counted("x"))
        json_column(job)
        most_seen = rows - 1 if rows else None
        assert Measures.seen(job, ["s"]) == {"s": {"rows": rows, "most": most_seen, "none": None}}


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
