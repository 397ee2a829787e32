"""Kafka at both ends on Spark: against a plain batch, and against Structured Streaming."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from engine_contenders import FILE_SYSTEM
from engine_session import PARTITIONS, configured, say
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from report import Number
from timing import Work, compare

from lamina.clock import SystemClock
from lamina.engine.engine import Engine
from lamina.engine.plans import EngineSettings
from lamina.pipeline import parse_pipeline
from lamina.spark.running import RunSettings, open_pipeline
from tests.servers import KafkaServer

COLUMNS = "id BIGINT, symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP"
ROWS_AT_ONCE = 100


def source_numbers(
    spark: SparkSession, folder: Path, broker: KafkaServer, *, rows: int, rounds: int
) -> Iterator[Number]:
    """JSON values, parsed, selected and written as Parquet; both read the same offsets."""
    broker.create_topic("rows", PARTITIONS)
    producer = broker.producer(**{"linger.ms": "50"})
    for at in range(rows):
        _produce(producer, "rows", _value(at), at % PARTITIONS)
    producer.flush()
    numbers = count()

    def ours() -> Work:
        engine = _opened(spark, folder / f"source-{next(numbers)}", _stateless(broker))

        def step() -> None:
            report = engine.step()
            assert report is not None
            assert sum(report.rows.values()) == rows
            assert report.sinks_behind == 0

        return step

    def bare() -> Work:
        return lambda: _plain(spark, folder / f"plain-{next(numbers)}", broker, rows)

    found = compare(ours, bare, rounds=rounds, mib=rows * len(_value(0)) / (1 << 20))
    told = f"{rows} rows of JSON to Parquet; {found.describe()}"
    yield Number("kafka_source_ratio", found.ratio, told, at_least=0.8)


def _stateless(broker: KafkaServer) -> str:
    return f"""
CREATE SOURCE src ({COLUMNS}) USING kafka
  OPTIONS (kafka.bootstrap.servers '{broker.bootstrap}', subscribe 'rows', format 'json');
CREATE STREAM dear AS SELECT id, symbol, price * volume AS turnover, ts FROM src WHERE volume > 10;
CREATE SINK written FROM dear USING parquet OPTIONS (path 'out');
"""


def _plain(spark: SparkSession, out: Path, broker: KafkaServer, rows: int) -> None:
    ends = {str(part): len(range(part, rows, PARTITIONS)) for part in range(PARTITIONS)}
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("assign", json.dumps({"rows": list(range(PARTITIONS))}))
        .option("startingOffsets", json.dumps({"rows": dict.fromkeys(ends, 0)}))
        .option("endingOffsets", json.dumps({"rows": ends}))
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.group.id", "plain")
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), COLUMNS, {"mode": "FAILFAST"})
    parsed = frame.select(value.alias("r")).select("r.*").where("volume > 10")
    parsed.selectExpr("id", "symbol", "price * volume AS turnover", "ts").write.parquet(str(out))


# small epochs


def epochs_numbers(
    spark: SparkSession, folder: Path, broker: KafkaServer, *, epochs: int, warm: int
) -> Iterator[Number]:
    """100 rows an epoch, from Kafka to Kafka, with state; in turns."""
    contenders = {
        "ours": _OurEpochs(spark, folder / "small-ours", broker),
        "native": _NativeEpochs(spark, folder / "small-native", broker, {}),
        "native_filesystem": _NativeEpochs(spark, folder / "small-files", broker, FILE_SYSTEM),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    numbers = count()
    for turn in range(-warm, epochs):
        for name, contender in contenders.items():
            spent = contender.epoch([_value(next(numbers)) for _ in range(ROWS_AT_ONCE)])
            if turn >= 0:
                seconds[name].append(spent)
        say(f"small epoch {turn + 1} of {epochs}")
    for contender in contenders.values():
        contender.close()
    best = min(("native", "native_filesystem"), key=lambda name: median(seconds[name]))
    ratio = median(seconds["ours"]) / median(seconds[best])
    told = ", ".join(f"{name} {_percentiles(each)}" for name, each in seconds.items())
    yield Number("small_epoch_kafka_ratio", ratio, f"p50 (p99) in ms: {told}", at_most=1)


class _OurEpochs:
    def __init__(self, spark: SparkSession, folder: Path, broker: KafkaServer) -> None:
        self._topics = _Topics(broker, "ours")
        self._engine = _opened(spark, folder, _stateful(broker, self._topics))

    def epoch(self, values: list[bytes]) -> float:
        self._topics.produce(values)
        start = time.perf_counter()
        report = self._engine.step()
        spent = time.perf_counter() - start
        assert report is not None
        assert report.sinks_behind == 0, self._engine.trouble
        return spent

    def close(self) -> None:
        self._engine.close()


class _NativeEpochs:
    """Structured Streaming with its default state store; its Kafka sink is at least once."""

    def __init__(
        self, spark: SparkSession, folder: Path, broker: KafkaServer, conf: dict[str, str]
    ) -> None:
        self._topics = _Topics(broker, folder.name)
        rows = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", self._topics.read)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
        )
        totals = _native_totals(rows)
        writer = totals.writeStream.outputMode("update").format("kafka")
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", self._topics.written)
        with configured(spark, conf):
            self._query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def epoch(self, values: list[bytes]) -> float:
        """By its own report or by the clock, whichever is less."""
        start = time.perf_counter()
        self._topics.produce(values)
        self._query.processAllAvailable()
        spent = time.perf_counter() - start
        done = [each for each in self._query.recentProgress if each["numInputRows"]]
        return min(spent, done[-1]["durationMs"]["triggerExecution"] / 1000)

    def close(self) -> None:
        self._query.stop()
        self._query.awaitTermination(60)


class _Topics:
    """What one contender reads and writes."""

    def __init__(self, broker: KafkaServer, name: str) -> None:
        self.read, self.written = f"{name}-in", f"{name}-out"
        broker.create_topic(self.read, PARTITIONS)
        broker.create_topic(self.written, PARTITIONS)
        self._producer = broker.producer()

    def produce(self, values: list[bytes]) -> None:
        for at, value in enumerate(values):
            _produce(self._producer, self.read, value, at % PARTITIONS)
        self._producer.flush()


def _stateful(broker: KafkaServer, topics: _Topics) -> str:
    servers = f"kafka.bootstrap.servers '{broker.bootstrap}'"
    return f"""
CREATE SOURCE src ({COLUMNS}) USING kafka
  OPTIONS ({servers}, subscribe '{topics.read}', format 'json');
CREATE STREAM totals AS
  SELECT symbol, sum(volume) AS volume, count(*) AS n FROM src GROUP BY symbol EMIT ON UPDATE;
CREATE SINK written FROM totals USING kafka OPTIONS ({servers}, topic '{topics.written}');
"""


def _native_totals(rows: DataFrame) -> DataFrame:
    value = F.from_json(F.col("value").cast("string"), COLUMNS, {"mode": "FAILFAST"})
    totals = (
        rows.select(value.alias("r"))
        .groupBy("r.symbol")
        .agg(F.sum("r.volume").alias("volume"), F.count(F.lit(1)).alias("n"))
    )
    return totals.select(
        F.col("symbol").alias("key"), F.to_json(F.struct("symbol", "volume", "n")).alias("value")
    )


# both


def _opened(spark: SparkSession, folder: Path, text: str) -> Engine:
    folder.mkdir()
    wanted = RunSettings(
        home=folder / "home",
        store=str(folder / "store"),
        folder=folder,
        engine=EngineSettings(partitions=PARTITIONS),
    )
    pipeline = parse_pipeline(text, file="benchmark")
    return open_pipeline(pipeline, wanted, spark=spark, clock=SystemClock())


def _value(at: int) -> bytes:
    row = {
        "id": at,
        "symbol": f"S{at * 7919 % 500}",
        "price": f"{at % 900 + 1}.25",
        "volume": at * 31 % 400,
        "ts": "2024-02-29T12:00:00.000Z",
    }
    return json.dumps(row).encode()


def _produce(producer: Any, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _percentiles(seconds: list[float]) -> str:
    p99 = quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
    return f"{median(seconds) * 1000:.0f} ({p99 * 1000:.0f})"
