"""Makes the checkpoints in this folder with the installed Spark; run it by hand for a new format.

python tests/golden/spark/make.py
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

HERE = Path(__file__).parent
WORK = Path("/tmp/spark-checkpoints")
STATE = "spark.sql.streaming.stateStore"
ROCKS = {
    f"{STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
CHANGES = {
    **ROCKS,
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE}.checkpointFormatVersion": "2",
}
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    f"{STATE}.minDeltasForSnapshot": "2",
    f"{STATE}.maintenanceInterval": "200ms",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
}


def turnover(rows: DataFrame) -> DataFrame:
    keys = (F.window("ts", "10 seconds"), F.col("k"))
    values = (F.sum("v"), F.count("v"), F.min("v"), F.max("v"), F.avg("v"))
    return rows.withWatermark("ts", "5 seconds").groupBy(*keys).agg(*values)


def total(rows: DataFrame) -> DataFrame:
    return rows.agg(F.count("v"), F.sum("v"))


def joined(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("ts", "5 seconds")
    right = rows.select(F.col("k").alias("k2"), F.col("ts").alias("ts2"))
    right = right.withWatermark("ts2", "5 seconds")
    return left.join(right, F.expr("k = k2 AND ts2 >= ts AND ts2 < ts + INTERVAL 1 MINUTE"))


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    builder = SparkSession.builder.master("local[2]").config(map=CONF)
    spark = builder.getOrCreate()
    make(spark, "hdfs", turnover, files=5, pause_s=2)
    make(spark, "rocksdb", turnover, files=2, conf=ROCKS)
    make(spark, "rocksdb-changes", turnover, files=2, conf=CHANGES, pause_s=2)
    make(spark, "global", total, files=2)
    make(spark, "join", joined, files=2, mode="append")
    make(spark, "stateless", lambda rows: rows, files=3, mode="append")
    spark.stop()


def make(
    spark: SparkSession,
    name: str,
    query: Callable[[DataFrame], DataFrame],
    *,
    files: int,
    conf: Mapping[str, str] | None = None,
    mode: str = "update",
    pause_s: float = 0,
) -> None:
    for key, value in (conf or {}).items():
        spark.conf.set(key, value)
    source, checkpoint = WORK / f"{name}.in", WORK / name
    source.mkdir(parents=True)
    rows = spark.readStream.schema("k STRING, v BIGINT, ts TIMESTAMP")
    writer = query(rows.json(str(source))).writeStream.format("noop").outputMode(mode)
    started = writer.option("checkpointLocation", str(checkpoint)).start()
    for number in range(files):
        write(source / f"part-{number}.json", number)
        started.processAllAvailable()
        time.sleep(pause_s)
    started.stop()
    for key in conf or {}:
        spark.conf.unset(key)
    with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as tar:
        tar.add(checkpoint, arcname=".")


def write(file: Path, number: int) -> None:
    rows = [
        {"k": key, "v": 10 * number + at, "ts": f"2026-01-01T00:00:{10 * number + at:02d}Z"}
        for at, key in enumerate("abcd")
    ]
    hidden = file.with_name(f"_{file.name}")
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    hidden.rename(file)


if __name__ == "__main__":
    main()
