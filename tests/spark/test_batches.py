"""Rows that Spark hands to Python are weighed, unless they have been short and all of them seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lamina.spark import runner
from lamina.spark.batches import BYTES_OF_BATCH, UNWEIGHED
from tests.spark.running import Place, Run

LONG = 5_000
TEXT = """
CREATE SOURCE t (k STRING, v BIGINT, n INT) USING json OPTIONS (path 'in');
CREATE FUNCTION doubled(v BIGINT) RETURNS BIGINT LANGUAGE PYTHON PARAMETER STYLE ARROW
  AS 'tests.spark.python_code:doubled' VERSION '2';
CREATE STREAM short AS SELECT k, v FROM t;
CREATE STREAM long AS SELECT repeat(k, n) AS k FROM t;
CREATE STREAM called AS SELECT doubled(v) AS v FROM t;
CREATE STREAM grouped AS SELECT k, sum(v) AS v FROM t GROUP BY k EMIT ON UPDATE;
"""
STREAMS = ("short", "long", "called", "grouped")
SINKS = "".join(f"CREATE SINK o_{s} FROM {s} USING parquet OPTIONS (path '{s}');" for s in STREAMS)


def test_only_short_rows_that_no_other_python_gets_are_not_weighed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second of four epochs one stream has long rows: it is weighed from the third on."""
    settings: list[str] = []
    run_job = runner.json_column

    def watched(job: DataFrame) -> list[Any]:
        settings.append(str(job.sparkSession.conf.get(BYTES_OF_BATCH)))
        return run_job(job)

    monkeypatch.setattr(runner, "json_column", watched)
    place = Place(tmp_path)
    place.put_json([[{"k": "a", "v": 1, "n": n}] for n in (1, LONG, 1, 1)])
    Run(spark, place)(TEXT + SINKS)
    weighed = [
        {name for name, each in zip(STREAMS, settings[n : n + 4], strict=True) if each != UNWEIGHED}
        for n in range(0, len(settings), 4)
    ]
    assert weighed == [set(STREAMS), {"called"}, {"called", "long"}, {"called", "long"}]
    assert [len(row["k"]) for row in place.rows("long")] == [1, LONG, 1, 1]
