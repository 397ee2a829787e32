"""The example of examples/submit under spark-submit: exact, and it goes on where it was."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.spark.java import JAVA_OPTIONS, java_home
from tests.spark.running import Place, comparable

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

JOB = Path(__file__).parents[2] / "examples" / "submit" / "job.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PATIENCE_S = 300
START = dt.datetime(2024, 2, 29, 23, 58, tzinfo=dt.UTC)
TRUTH = """
SELECT symbol, time_bucket(INTERVAL 1 MINUTE, ts) AS minute,
       sum(round(price * 0.90::DECIMAL(3,2), 2) * volume) AS euros
FROM read_json('{}', columns = {{symbol: 'VARCHAR', price: 'DECIMAL(12,2)', volume: 'BIGINT',
                                 ts: 'TIMESTAMPTZ'}})
WHERE ts < TIMESTAMPTZ '{}' GROUP BY symbol, minute
"""


def put(folder: Path, first: int, count: int) -> None:
    """Trades with these numbers, one each second."""
    trades = folder / "trades"
    trades.mkdir(exist_ok=True)
    rows = [
        {
            "symbol": f"S{number % 3}",
            "price": f"{10 + number % 7}.{number % 100:02d}",
            "volume": number % 11,
            "ts": (START + dt.timedelta(seconds=number)).isoformat(),
        }
        for number in range(first, first + count)
    ]
    (trades / f"{first:05d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def submit(folder: Path) -> str:
    """Run the example; what it says."""
    home = java_home(folder)
    assert home is not None
    done = subprocess.run(
        [
            *(SUBMIT, "--master", "local[2,4]", "--driver-memory", "700m"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1", JOB, folder),
        ],
        env=os.environ
        | {
            "JAVA_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_example_under_spark_submit_is_exact_and_goes_on_where_it_was(tmp_path: Path) -> None:
    put(tmp_path, 0, 200)
    assert "up to epoch 2" in submit(tmp_path)
    put(tmp_path, 200, 200)
    assert "up to epoch 4" in submit(tmp_path)
    rows = Place(tmp_path).rows("turnover")
    truth = duckdb.connect()
    truth.execute("SET TimeZone = 'UTC'")
    # The last trade is that of second 399; with the delay, minutes up to 394 s are closed.
    closed = START + dt.timedelta(seconds=360)
    said = truth.sql(TRUTH.format(tmp_path / "trades" / "*.json", closed.isoformat()))
    assert rows
    assert comparable(rows) == comparable(said.to_arrow_table().to_pylist())


def test_a_standalone_cluster_takes_no_python_in_cluster_mode(tmp_path: Path) -> None:
    """As docs/clusters.md says. Spark says so before it looks for the master."""
    home = java_home(tmp_path)
    assert home is not None
    done = subprocess.run(
        [SUBMIT, "--master", "spark://127.0.0.1:9", "--deploy-mode", "cluster", JOB, tmp_path],
        env=os.environ | {"JAVA_HOME": str(home), "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert "Cluster deploy mode is currently not supported for python" in done.stderr
