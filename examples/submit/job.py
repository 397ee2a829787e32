"""A pipeline inside of a Spark application.

    spark-submit --master 'local[2,4]' job.py FOLDER

reads FOLDER/trades/*.json, writes FOLDER/turnover, and keeps its state in FOLDER/home. Run it again
when there are new files: it goes on where it was. The session is yours: functions and views that
are in it can be used in a stream, and its settings stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from lamina.engine.plans import EngineSettings
from lamina.pipeline import Emit, Pipeline, PipelineBuilder
from lamina.spark.running import RunSettings, Until, run


def pipeline() -> Pipeline:
    """Turnover by symbol and minute, in euros."""
    return (
        PipelineBuilder()
        .source(
            "trades",
            "symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP",
            "json",
            {"path": "trades"},
            watermark=("ts", "5 seconds"),
        )
        .stream(
            "turnover",
            "SELECT symbol, window.start AS minute, sum(euros(price) * volume) AS euros"
            " FROM trades GROUP BY symbol, window(ts, '1 minute')",
            emit=Emit.ON_WINDOW_CLOSE,
        )
        .sink("turnover_out", "turnover", "parquet", {"path": "turnover"})
        .build()
    )


def main(folder: Path) -> None:
    spark = SparkSession.builder.appName("turnover").getOrCreate()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION euros(dollars DECIMAL(12,2))"
        " RETURNS DECIMAL(12,2) RETURN CAST(dollars * 0.90 AS DECIMAL(12,2))"
    )
    settings = RunSettings(
        home=folder / "home",
        store=str(folder / "store"),
        folder=folder,
        until=Until(available_now=True),
        engine=EngineSettings(partitions=2),
    )
    epoch = run(pipeline(), settings, spark=spark)
    print(f"everything there was is in {folder / 'turnover'}, up to epoch {epoch}")  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
