"""Minutes into tens of minutes, both by window close, drained: equal to one batch over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lamina.connectors.opening import open_source
from lamina.engine.model import SourceRange
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


def rows_of_the_source(spark: Any) -> pa.Table:
    """All rows, as the source has them, and not what a sink made of them."""
    source: Any = open_source(parse_pipeline(SQL, {}, file="tens.sql").sources["trades"], Path())
    planned = SourceRange("trades", {"row": "0"}, {"row": str(ROWS)})
    rows: pa.Table = source.frame(spark, planned).toArrow()
    return rows


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
    trades = rows_of_the_source(spark)
    wanted = duckdb.sql(
        """
        WITH minutes AS (
          SELECT symbol, epoch_us(ts) // 60000000 AS minute, sum(volume) AS volume, count(*) AS n
          FROM trades GROUP BY ALL
        )
        SELECT symbol, minute // 10 * 600000000 AS start, CAST(sum(volume) AS BIGINT),
               CAST(sum(n) AS BIGINT), max(n)
        FROM minutes GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    assert trades.num_rows == ROWS
    assert found == wanted
    assert sum(row[3] for row in found) == ROWS
    assert len(found) == len({row[:2] for row in found}) > 9
