"""Minutes into tens of minutes, both by window close, drained: equal to one batch over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from lamina.engine.plans import EngineSettings, EpochReport
from lamina.engine.ports import Limits
from lamina.pipeline import parse_pipeline

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

ROWS = 3_000
SQL = f"""
CREATE SOURCE trades (symbol STRING, volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '{ROWS}', symbols '3', every_us '700000')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM minutes AS
  SELECT symbol, window.start AS minute, window.end AS till, sum(volume) AS volume, count(*) AS n
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE STREAM busy AS SELECT symbol, minute, volume, n FROM minutes WHERE n > 0;
CREATE STREAM tens AS
  SELECT symbol, window.start AS start, sum(volume) AS volume, sum(n) AS n, max(n) AS most
  FROM busy GROUP BY symbol, window(minute, '10 minutes') EMIT ON WINDOW CLOSE;
CREATE SINK minutes_out FROM minutes USING parquet OPTIONS (path 'minutes');
CREATE SINK tens_out FROM tens USING parquet OPTIONS (path 'tens');
"""


def test_windows_over_windows_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    from lamina.spark.running import RunSettings, Until, Watcher, run  # noqa: PLC0415  an extra

    reports: list[EpochReport] = []
    for limit in (700, None):  # two processes; the second one has another number of partitions
        settings = RunSettings(
            home=tmp_path / "home",
            store=str(tmp_path / "store"),
            folder=tmp_path,
            until=Until(available_now=limit is None, epoch=None if limit is None else 2),
            engine=EngineSettings(
                partitions=2 if limit else 4, limits=Limits(rows=limit or 900), drain=limit is None
            ),
        )
        pipeline = parse_pipeline(SQL, {}, file="tens.sql")
        run(pipeline, settings, spark=spark, watcher=Watcher(epoch=reports.append))
    assert sum(report.late for report in reports) == 0
    found = duckdb.sql(
        "SELECT symbol, epoch_us(start) AS start, volume, n, most "
        f"FROM read_parquet('{tmp_path}/tens/*/*.parquet') ORDER BY ALL"
    ).fetchall()
    wanted = duckdb.sql(
        f"""
        WITH minutes AS (
          SELECT symbol, minute, sum(volume) AS volume, sum(n) AS n
          FROM read_parquet('{tmp_path}/minutes/*/*.parquet') GROUP BY ALL
        )
        SELECT symbol, epoch_us(minute) // 600000000 * 600000000 AS start, sum(volume), sum(n),
               max(n)
        FROM minutes GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    assert found == wanted
    assert sum(row[3] for row in found) == ROWS
    assert len(found) == len({row[:2] for row in found}) > 9
