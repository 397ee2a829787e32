"""Many epochs on one Spark: nothing grows that should not.

By default 100 epochs; LAMINA_SOAK_EPOCHS=2000 is the long form.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lamina.engine.plans import EngineSettings, EpochReport
from lamina.engine.ports import Limits
from lamina.pipeline import parse_pipeline

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

EPOCHS = int(os.environ.get("LAMINA_SOAK_EPOCHS", "100"))
ROWS = 60  # of an epoch: two minutes of trades
EVERY = max(10, EPOCHS // 20)
SQL = f"""
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '{EPOCHS * ROWS}', symbols '20', every_us '2000000')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM minutes AS
  SELECT symbol, window.start AS minute, sum(volume) AS volume, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK minutes_out FROM minutes USING parquet OPTIONS (path 'out');
"""
SLACK = {
    "MiB of heap": 48,
    "MiB of the driver": 64,
    "threads of the JVM": 12,
    "shuffle files": 4 * EVERY,  # what an interval makes: the cleaner works when it likes
}
"""What may come on top of a tenth: a JVM makes threads and buffers when it likes."""


@dataclass
class Samples:
    """What a process and its folders hold, now and then."""

    spark: Any
    root: Path
    found: list[dict[str, int]] = field(default_factory=list)

    def note(self, report: EpochReport) -> None:
        if report.epoch % EVERY == 0:
            gc.collect()
            self.found.append(dict(self._facts()))

    def _facts(self) -> Iterator[tuple[str, int]]:
        jvm = self.spark.sparkContext._jvm
        for _ in range(2):  # what is unreachable, then what the cleaner has let go of
            jvm.System.gc()
        runtime = jvm.java.lang.Runtime.getRuntime()
        yield "MiB of heap", (runtime.totalMemory() - runtime.freeMemory()) >> 20
        management = jvm.java.lang.management.ManagementFactory
        yield "threads of the JVM", management.getThreadMXBean().getThreadCount()
        pid = int(management.getRuntimeMXBean().getPid())
        yield "open files of the JVM", len(list(Path(f"/proc/{pid}/fd").iterdir()))
        yield "open files of the driver", len(list(Path("/proc/self/fd").iterdir()))
        yield "threads of the driver", threading.active_count()
        yield "MiB of the driver", _resident_mib()
        yield "mappings", len(Path("/proc/self/maps").read_text().splitlines())
        local = Path(os.environ["SPARK_LOCAL_DIRS"])
        yield "shuffle files", sum(1 for _ in local.glob("blockmgr-*/*/shuffle_*"))
        for part in ("home", "store"):
            files = [p for p in (self.root / part).rglob("*") if p.is_file()]
            files = [p for p in files if p.parent.name != "log"]  # it only grows, by design
            yield f"files of the {part}", len(files)
            yield f"KiB of the {part}", sum(p.stat().st_size for p in files) >> 10


def _resident_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def test_nothing_grows_with_the_epochs(spark: Any, tmp_path: Path) -> None:
    from lamina.spark.running import RunSettings, Until, Watcher, run  # noqa: PLC0415  an extra

    samples = Samples(spark, tmp_path)
    settings = RunSettings(
        home=tmp_path / "home",
        store=str(tmp_path / "store"),
        folder=tmp_path,
        until=Until(available_now=True),
        engine=EngineSettings(partitions=2, limits=Limits(rows=ROWS), drain=True),
    )
    pipeline = parse_pipeline(SQL, {}, file="soak.sql")
    last = run(pipeline, settings, spark=spark, watcher=Watcher(epoch=samples.note))
    assert last >= EPOCHS
    half = len(samples.found) // 2
    early, late = samples.found[half // 2 : half], samples.found[half + half // 2 :]
    grown = {
        what: (most, peak)
        for what in early[0]
        if (peak := max(each[what] for each in late))
        > (most := max(each[what] for each in early)) * 1.1 + SLACK.get(what, 8)
    }
    assert not grown, grown
    assert _counted(tmp_path / "out") == (EPOCHS * ROWS, 1)


def _counted(out: Path) -> tuple[int, int]:
    """Trades in all windows, and how often the window that came out most often did."""
    text = (
        "SELECT sum(trades), max(times) FROM (SELECT symbol, minute, sum(trades) AS trades, "
        f"count(*) AS times FROM read_parquet('{out}/epoch-*/*.parquet') GROUP BY ALL)"
    )
    trades, times = duckdb.sql(text).fetchall()[0]
    return int(trades), int(times)
