"""A home in an object store, on executors that have nothing of the driver's but what it sends.

The driver is killed, and another one goes on from another folder, as on another machine: with the
results of Spark's batch engine and of DuckDB over everything.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from lamina.store import Store, open_store
from tests.servers.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server
from tests.spark.cluster import SPARK_HOME
from tests.spark.java import JAVA_OPTIONS, java_home

EPOCHS, ROWS = 5, 200
LAMINA = Path(sys.executable).parent / "lamina"
MASTER = "local-cluster[2,1,1024]"
START = datetime(2024, 2, 29, 23, 55, 30, tzinfo=UTC)
TRADES = pa.schema(
    [("symbol", pa.string()), ("volume", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)
NAMES = {"a": "it's A", "b": "é", "c": None, "d": "D" * 40}
SQL = """
CREATE SOURCE trades (symbol STRING, volume BIGINT, ts TIMESTAMP)
  USING parquet OPTIONS (path '{url}/input') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE TABLE names (symbol STRING, name STRING) USING csv OPTIONS (path 'names', header 'true');
CREATE STREAM bars AS
  SELECT symbol, window.start AS minute, sum(volume) AS volume, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE STREAM large AS SELECT symbol, volume, ts FROM trades WHERE volume > 50;
CREATE STREAM totals AS
  SELECT large.symbol, name, sum(volume) AS volume, count(*) AS trades
  FROM large LEFT JOIN names ON large.symbol = names.symbol
  GROUP BY large.symbol, name EMIT ON UPDATE;
CREATE SINK bars_out FROM bars USING parquet OPTIONS (path '{url}/bars');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path '{url}/totals');
"""
BARS = """SELECT symbol, minute, volume, trades FROM (
  SELECT symbol, date_trunc('minute', ts) AS minute, sum(volume) AS volume, count(*) AS trades
  FROM trades GROUP BY 1, 2)
WHERE minute + INTERVAL 1 MINUTE <= (SELECT max(ts) FROM trades) - INTERVAL 5 SECOND"""
TOTALS = """SELECT trades.symbol, name, sum(volume) AS volume, count(*) AS trades
FROM trades LEFT JOIN names ON trades.symbol = names.symbol WHERE volume > 50 GROUP BY 1, 2"""


@dataclass(frozen=True)
class Rig:
    """A pipeline whose every byte that counts is below one address."""

    folder: Path
    url: str
    store: Store
    environment: dict[str, str]

    def machine(self, name: str) -> Path:
        """The pipeline file in a folder of its own: another machine, as far as it can tell."""
        folder = self.folder / name
        (folder / "names").mkdir(parents=True)
        lines = [f'{symbol},"{name or ""}"' for symbol, name in NAMES.items()]
        (folder / "names" / "names.csv").write_text("\n".join(["symbol,name", *lines]) + "\n")
        file = folder / "trades.sql"
        file.write_text(SQL.format(url=self.url))
        return file

    def write_input(self) -> pa.Table:
        rng, tables = random.Random(7), []
        for number in range(EPOCHS):
            rows = [
                {
                    "symbol": rng.choice("abcdefgh"),
                    "volume": rng.randint(1, 500),
                    "ts": START + timedelta(milliseconds=250 * (number * ROWS + row)),
                }
                for row in range(ROWS)
            ]
            tables.append(pa.Table.from_pylist(rows, TRADES))
            data = BytesIO()
            pq.write_table(tables[-1], data)
            self.store.put(f"input/{number:03d}.parquet", data.getvalue())
        return pa.concat_tables(tables)

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LAMINA, *arguments, "--home", f"{self.url}/home"],
            capture_output=True,
            text=True,
            env=self.environment,
            check=False,
            timeout=240,
        )

    @contextmanager
    def running(self, file: Path, *options: str) -> Iterator[tuple[int, Iterator[dict[str, Any]]]]:
        """`lamina run`, an epoch a file, and its events as they come."""
        more = ("--max-files", "1", "--checkpoint-epochs", "3", "--interval", "0")
        end = ("--available-now", "--json", "--conf", "spark.executorEnv.HOME=/nonexistent")
        place = ("--home", f"{self.url}/home", "--master", MASTER)
        with (
            (file.parent / "stderr").open("w") as errors,
            subprocess.Popen(
                [LAMINA, "run", file, *place, *more, *end, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
                start_new_session=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                yield process.pid, (json.loads(line) for line in process.stdout)
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def published(self, sink: str) -> list[dict[str, Any]]:
        keys = sorted(i.key for i in self.store.list(sink) if i.key.endswith(".parquet"))
        assert keys, f"{sink} has nothing"
        return [
            row for key in keys for row in pq.read_table(BytesIO(self.store.get(key))).to_pylist()
        ]


@pytest.fixture
def rig(seaweedfs_server: S3Server, tmp_path: Path) -> Rig:
    java = java_home(tmp_path)
    assert java is not None
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{seaweedfs_server.port}",
        "AWS_ALLOW_HTTP": "true",
        "JAVA_HOME": str(java),
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        "LAMINA_CACHE": "off",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    url = f"s3://{BUCKET}/remote-{tmp_path.name}"
    store = open_store(url, **seaweedfs_server.options())
    return Rig(tmp_path, url, store, environment)


def test_a_machine_is_lost_and_another_goes_on_with_the_result_of_a_batch(
    rig: Rig, spark: Any
) -> None:
    trades = rig.write_input()
    first = rig.machine("first")
    with rig.running(first) as (_, events):
        for event in events:
            if event["event"] == "epoch" and event["epoch"] == 4:
                break
        else:
            pytest.fail((first.parent / "stderr").read_text())
    shutil.rmtree(first.parent)  # the machine is gone, with all that was on its disk

    second = rig.machine("second")
    refused = rig.ask("run", second)
    assert refused.returncode == 5, refused.stderr
    assert "--take-over" in refused.stderr
    told = rig.ask("status", second, "--json")
    assert told.returncode == 0, told.stderr
    status = json.loads(told.stdout)
    assert status["epoch"] >= 4
    assert status["had_by"]["folder"].startswith(str(first.parent)), status

    with rig.running(second, "--take-over") as (_, events):
        seen = list(events)
    assert seen[-1]["event"] == "ended", (second.parent / "stderr").read_text()
    assert seen[-1]["epoch"] == EPOCHS + 1, "the last one closes windows"
    checkpoints = f"{rig.url}/home/store"
    for words in (
        ("verify", second),
        ("recover", "--dry-run", "--store", checkpoints),
        ("wal", "verify"),
        ("inspect", checkpoints, "--at", "head"),
    ):
        found = rig.ask(*words)
        assert found.returncode == 0, found.stdout + found.stderr
    repaired = rig.ask("wal", "repair", "driver/any.wal", "--yes")
    assert "nothing to repair" in repaired.stderr
    assert not (second.parent / ".lamina" / "trades" / "home").exists()

    bars, totals = rig.published("bars"), {}
    for row in rig.published("totals"):
        totals[row["symbol"]] = row
    for batch in (duckdb_says, spark_says):
        expected_bars, expected_totals = batch(spark, trades)
        assert _sorted(bars) == _sorted(expected_bars)
        assert _sorted(totals.values()) == _sorted(expected_totals)


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    plain = [
        tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in r.values()) for r in rows
    ]
    return sorted(plain, key=str)


def _names() -> pa.Table:
    return pa.table({"symbol": list(NAMES), "name": pa.array(list(NAMES.values()), pa.string())})


def duckdb_says(_: Any, trades: pa.Table) -> tuple[Any, Any]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("trades", trades)
        database.register("names", _names())
        return tuple(database.sql(text).to_arrow_table().to_pylist() for text in (BARS, TOTALS))  # type: ignore[return-value]


def spark_says(spark: Any, trades: pa.Table) -> tuple[Any, Any]:
    spark.createDataFrame(trades).createOrReplaceTempView("trades")
    spark.createDataFrame(_names()).createOrReplaceTempView("names")
    return tuple([row.asDict() for row in spark.sql(text).collect()] for text in (BARS, TOTALS))  # type: ignore[return-value]
