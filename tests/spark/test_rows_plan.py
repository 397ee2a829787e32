"""Where few rows share a key they come to the state as they are, and the result is Spark's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import LaminaError
from tests.spark.running import Place, Run, batch, comparable, pipeline_text

COLUMNS = "k DOUBLE, g STRING, v INT, w BIGINT, d DECIMAL(10,2), b BOOLEAN, t DATE"
SELECT = """SELECT k, g, sum(v) AS s, sum(w + 1) FILTER (WHERE b) AS f, count(*) AS n,
  count(v, d) AS c,
  count(w) FILTER (WHERE v > 0) AS cf, count_if(v > 0) AS ci, avg(d) AS a, sum(d) AS sd,
  min(g) AS lg, max(t) AS mt, min(v) FILTER (WHERE b) AS lv, bool_or(b) AS anyb, bool_and(b) AS allb
  FROM t WHERE v IS NULL OR v <> 13 GROUP BY k, g"""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each epoch's job was one over rows; any epoch is large enough to choose by."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
    from lamina.spark import runner  # noqa: PLC0415  an extra

    chosen: list[bool] = []
    original = runner.SparkStream.placed

    def placed(self: Any, *given: Any, of_rows: bool = False, **more: Any) -> str:
        chosen.append(of_rows)
        return original(self, *given, of_rows=of_rows, **more)

    monkeypatch.setattr(runner, "MANY_ROWS", 1)
    monkeypatch.setattr(runner.SparkStream, "placed", placed)
    return chosen


def rows_of(epochs: int, keys: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(5)
    some = lambda *values: rng.choice([None, *values])  # noqa: E731
    return [
        [
            {
                "k": some(-0.0, 0.0, *(float(n) for n in range(keys))),
                "g": some("", "a", "ü"),
                "v": some(-5, 0, 7, 13, 2**31 - 1),
                "w": some(-(2**40), 3),
                "d": some("99999999.99", "-0.01", "1.5"),
                "b": some(True, False),
                "t": some("1999-12-31", "2024-02-29"),
            }
            for _ in range(60)
        ]
        for _ in range(epochs)
    ]


def test_rows_that_are_merged_in_the_task_come_to_what_spark_computes(
    spark: Any, tmp_path: Path, plans: list[bool]
) -> None:
    place = Place(tmp_path)
    place.put_json(rows_of(epochs=4, keys=40))
    Run(spark, place)(pipeline_text(COLUMNS, SELECT))
    assert plans == [False, True, True, True]
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    assert comparable(place.latest(keys=2)) == comparable(batch(spark, SELECT))


def test_the_choice_follows_the_data(spark: Any, tmp_path: Path, plans: list[bool]) -> None:
    place = Place(tmp_path)
    place.put_json([*rows_of(2, keys=40), *rows_of(2, keys=1)])
    Run(spark, place)(pipeline_text(COLUMNS, SELECT))
    assert plans == [False, True, True, False]
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    assert comparable(place.latest(keys=2)) == comparable(batch(spark, SELECT))


def test_a_sum_of_rows_that_does_not_fit_stops_the_epoch(
    spark: Any, tmp_path: Path, plans: list[bool]
) -> None:
    place = Place(tmp_path)
    most = {"k": 1.0, "w": 2**63 - 1}
    place.put_json([[{"k": 1.0, "w": 1}], [most, {"k": 2.0, "w": 1}, {"k": 1.0, "w": 1}]])
    with pytest.raises(LaminaError, match=r"does not fit|overflow"):
        Run(spark, place)(pipeline_text(COLUMNS, "SELECT k, sum(w) AS s FROM t GROUP BY k"))
    assert plans == [False, True]
    assert [row["s"] for row in place.rows()] == [1]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT g, sum(k) AS s FROM t GROUP BY g",
        "SELECT g, avg(v) AS s FROM t GROUP BY g",
        "SELECT g, max(k) AS s FROM t GROUP BY g",
        "SELECT g, min_by(v, w) AS s FROM t GROUP BY g",
        "SELECT g, stddev(v) AS s FROM t GROUP BY g",
        "SELECT sum(v) AS s FROM t",
    ],
)
def test_what_depends_on_order_or_has_no_key_stays_with_spark(
    spark: Any, tmp_path: Path, plans: list[bool], select: str
) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": n / 3, "g": str(n), "v": n, "w": n}] for n in range(2)])
    Run(spark, place)(pipeline_text(COLUMNS, select))
    assert plans == [False, False]
