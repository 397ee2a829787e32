"""What an epoch costs before a row is read: code that is compiled, calls into the JVM.

Code that Spark generates is compiled in the first epochs, and never again: a class that is compiled
anew costs its compilation, and then runs before the JVM has optimised it. What stays the same from
epoch to epoch is made once: JSON sources made 950 calls into the JVM for every epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.running import Place, Run

EPOCHS, WARM = 6, 3
CALLS_MAX = 60
COLUMNS = "k STRING, v INT, ts TIMESTAMP"
PIPELINES = {
    "trades": """
CREATE SOURCE t (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '60') WATERMARK ts DELAY OF INTERVAL 1 SECOND;
CREATE STREAM a AS SELECT symbol, window.start AS s, sum(price * volume) / sum(volume) AS vwap
  FROM t GROUP BY symbol, window(ts, '1 second') EMIT ON WINDOW CLOSE;
CREATE SINK out FROM a USING parquet OPTIONS (path 'out');
""",
    "files": f"""
CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 1 SECOND;
CREATE STREAM chosen AS SELECT k, v FROM t WHERE v > 1;
CREATE STREAM a AS SELECT k, sum(v) AS v, count(*) AS n FROM chosen GROUP BY k EMIT ON UPDATE;
CREATE SINK out FROM a USING parquet OPTIONS (path 'out');
""",
}
PIPELINES["files, --max-ahead"] = (  # and the time of the epoch, which is another one each time
    PIPELINES["files"]
    .replace(COLUMNS, f"{COLUMNS}, p TIMESTAMP METADATA FROM 'epoch_time'")
    .replace("k, v FROM t", "k, v, p FROM t")
    .replace("count(*) AS n", "count(p) AS n")
)


class Compilations:
    """How many classes each epoch has compiled."""

    def __init__(self, spark: Any) -> None:
        metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
        self._count: Callable[[], int] = metrics.METRIC_COMPILATION_TIME().getCount
        self._before = self._count()
        self.epochs: list[int] = []

    def __call__(self, point: str) -> None:
        if point == "after COMMIT":
            count = self._count()
            self.epochs.append(count - self._before)
            self._before = count


class Calls:
    """How many calls into the JVM each epoch has made, without those that let objects go.

    When these come is up to Python's garbage collection.
    """

    def __init__(self, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        client = type(spark._jvm._gateway_client)
        send = client.send_command
        self._count = 0
        self.epochs: list[int] = []

        def counted(client: Any, command: str, *arguments: Any, **named: Any) -> Any:
            self._count += not command.startswith("m\nd\n")
            return send(client, command, *arguments, **named)

        monkeypatch.setattr(client, "send_command", counted)

    def __call__(self, point: str) -> None:
        if point == "after COMMIT":
            self.epochs.append(self._count)
            self._count = 0


def filled(folder: Path) -> Place:
    """A file for every epoch."""
    place = Place(folder)
    place.put_json(
        [
            {"k": f"k{row % 3}", "v": row, "ts": f"2024-01-01T00:00:{10 * epoch + row:02d}Z"}
            for row in range(5)
        ]
        for epoch in range(EPOCHS)
    )
    return place


@pytest.mark.parametrize("name", PIPELINES)
def test_an_epoch_after_the_first_ones_compiles_nothing(
    spark: Any, tmp_path: Path, name: str
) -> None:
    place = filled(tmp_path)
    compilations = Compilations(spark)
    ahead = 3_600_000_000 if "--max-ahead" in name else None  # its limit is new in every epoch
    Run(spark, place, rows=10, max_ahead_us=ahead, fail_point=compilations)(PIPELINES[name])
    assert len(compilations.epochs) >= EPOCHS
    assert compilations.epochs[WARM:EPOCHS] == [0] * (EPOCHS - WARM), compilations.epochs


def test_an_epoch_of_files_makes_few_calls_into_the_jvm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every expression that checks a line of JSON was made anew."""
    text = f"""
CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');
CREATE STREAM a AS SELECT k, sum(v) AS v FROM t GROUP BY k EMIT ON UPDATE;
CREATE SINK out FROM a USING parquet OPTIONS (path 'out');
"""
    calls = Calls(spark, monkeypatch)
    Run(spark, filled(tmp_path), fail_point=calls)(text)
    assert len(calls.epochs) >= EPOCHS
    assert max(calls.epochs[WARM:EPOCHS]) <= CALLS_MAX, calls.epochs
