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

import lamina


def pipeline() -> lamina.Pipeline:
    """Turnover by symbol and minute, in euros."""
    return (
        lamina.Pipeline()
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
            emit=lamina.Emit.ON_WINDOW_CLOSE,
        )
        .sink("turnover_out", "turnover", "parquet", {"path": "turnover"})
    )


def main(folder: Path) -> None:
    spark = SparkSession.builder.appName("turnover").getOrCreate()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION euros(dollars DECIMAL(12,2))"
        " RETURNS DECIMAL(12,2) RETURN CAST(dollars * 0.90 AS DECIMAL(12,2))"
    )
    ended = lamina.run(
        pipeline(),
        folder=folder,
        home=folder / "home",
        store=str(folder / "store"),
        spark=spark,
        available_now=True,
    )
    print(f"everything there was is in {folder / 'turnover'}, up to epoch {ended.epoch}")  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
