"""Rows with the time of their epoch: windows over it hold what DuckDB makes of the kept times."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lamina.engine.engine import Engine
from lamina.engine.plans import EngineSettings, EpochReport
from lamina.engine.ports import Limits
from lamina.errors import BadPipeline
from lamina.pipeline import parse_pipeline
from lamina.spark.running import RunSettings, open_pipeline
from lamina.testing import ManualClock
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.running import Place, compiled, pipeline_text

START_MS = 1_700_000_000_000
PIPELINE = """
CREATE SOURCE bid (p TIMESTAMP METADATA FROM 'epoch_time', bidder BIGINT, price BIGINT)
  USING json OPTIONS (path 'in') WATERMARK p DELAY OF INTERVAL 0 SECONDS;
CREATE STREAM bids AS SELECT bidder, price, p FROM bid;
CREATE STREAM q12 AS
  SELECT
    bidder,
    count(*) as bid_count,
    window_start AS starttime,
    window_end AS endtime
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(p), INTERVAL '10' SECOND))
  GROUP BY bidder, window_start, window_end EMIT ON WINDOW CLOSE;
CREATE STREAM once AS SELECT DISTINCT ON (bidder) bidder, p FROM bid;
CREATE SINK kept FROM bids USING parquet OPTIONS (path 'kept');
CREATE SINK counted FROM q12 USING parquet OPTIONS (path 'counted');
CREATE SINK first FROM once USING parquet OPTIONS (path 'first');
"""
Q12 = """
SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL 10 SECOND, p) AS starttime,
       time_bucket(INTERVAL 10 SECOND, p) + INTERVAL 10 SECOND AS endtime
FROM kept GROUP BY bidder, starttime"""


def opened(
    spark: Any, folder: Path, clock: ManualClock, bomb: Bomb | None = None, *, drain: bool = False
) -> Engine:
    settings = RunSettings(
        home=folder / "home",
        store=str(folder / "store"),
        folder=folder,
        engine=EngineSettings(partitions=2, limits=Limits(files=1), drain=drain),
    )
    pipeline = parse_pipeline(PIPELINE, {})
    more = {} if bomb is None else {"fail_point": bomb}
    return open_pipeline(pipeline, settings, spark=spark, clock=clock, **more)


def reported(engine: Engine) -> EpochReport:
    report = engine.step()
    assert report is not None
    return report


def test_nexmark_q12_is_by_the_times_at_which_epochs_were_planned(
    spark: Any, tmp_path: Path
) -> None:
    """Killed before a COMMIT, and gone on with by a machine whose clock is behind."""
    place = Place(tmp_path)
    place.put_json([[{"bidder": n % 4, "price": n + e} for n in range(9 + e)] for e in range(6)])
    clock = ManualClock(now_ms=START_MS)
    engine = opened(spark, tmp_path, clock, Bomb("before COMMIT", 3))
    reports = [reported(engine)]
    clock.advance(7)
    reports.append(reported(engine))
    clock.advance(7)
    with pytest.raises(Killed):
        engine.step()
    engine.close()
    clock = ManualClock(now_ms=START_MS - 60_000)
    engine = opened(spark, tmp_path, clock, drain=True)
    reports += [reported(engine), reported(engine)]
    clock.advance(95)
    while (report := engine.step()) is not None:
        reports.append(report)
    engine.close()

    epochs = [{row["p"] for row in rows} for rows in place.epochs("kept")]
    micros = [[int(at.timestamp() * 1_000_000 + 0.5) for at in times] for times in epochs]
    second = START_MS * 1000 + 7_000_000
    late = START_MS * 1000 + 35_000_000
    assert micros == [[START_MS * 1000], [second], [second + 1], [second + 2], [late], [late + 1]]
    kept = [{**row, "p": row["p"].replace(tzinfo=UTC)} for row in place.rows("kept")]
    with duckdb.connect() as oracle:
        oracle.register("kept", pa.Table.from_pylist(kept))
        wanted = oracle.sql(Q12).arrow().read_all().to_pylist()
    assert sorted(map(said, place.rows("counted"))) == sorted(map(said, wanted))
    assert len(wanted) == 8
    assert len(place.rows("first")) == 4 * 6  # without a delay a key is remembered for one epoch
    assert sum(report.late for report in reports) == 0


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    times = (row[name].timestamp() for name in ("starttime", "endtime"))
    return (row["bidder"], row["bid_count"], *times)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a INT, p DATE METADATA FROM 'epoch_time'", "is the time of the epoch, and DATE"),
        ("p TIMESTAMP METADATA FROM 'epoch_time'", "no column but the time of the epoch"),
    ],
)
def test_what_such_a_column_cannot_be_is_said(spark: Any, columns: str, message: str) -> None:
    with pytest.raises(BadPipeline, match=message):
        compiled(spark, pipeline_text(columns, "SELECT * FROM t", emit=""))
