"""The pipeline of the cluster tests: its input, how it is started, and what DuckDB makes of it."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

FILES, ROWS = 7, 300
DELAY_S = 5
LAMINA = Path(sys.executable).parent / "lamina"
PATIENCE_S = 240
SQL = f"""
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING parquet OPTIONS (path 'data') WATERMARK ts DELAY OF INTERVAL {DELAY_S} SECONDS;
CREATE STREAM bars AS
  SELECT symbol, window.start AS minute, sum(price * volume) AS turnover, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE STREAM totals AS
  SELECT symbol, sum(price * volume) AS turnover, max(price) AS most, count(*) AS trades
  FROM trades GROUP BY symbol EMIT ON UPDATE;
CREATE SINK bars_out FROM bars USING parquet OPTIONS (path 'out/bars');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path 'out/totals');
"""
TRADES = pa.schema(
    [
        ("symbol", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("volume", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
START = dt.datetime(2024, 2, 29, 23, 55, 30, tzinfo=dt.UTC)


def write_project(folder: Path) -> Path:
    """The pipeline file, and input of some minutes in files that are one epoch each."""
    (folder / "data").mkdir()
    rng = random.Random(11)
    for number in range(FILES):
        rows = [_trade(rng, number * ROWS + row) for row in range(ROWS)]
        table = pa.Table.from_pylist(rows, TRADES)
        pq.write_table(table, folder / "data" / f"{number:03d}.parquet")
    file = folder / "trades.sql"
    file.write_text(SQL)
    return file


def _trade(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "symbol": rng.choice("abcdefghijkl"),
        "price": Decimal(rng.randint(100, 99_999)).scaleb(-2),
        "volume": rng.randint(1, 500),
        "ts": START + dt.timedelta(milliseconds=200 * number),
    }


@contextmanager
def started(
    file: Path, master: str, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
    """`lamina run` on the cluster, an epoch a file, and its events as they come."""
    options = ("--max-files", "1", "--checkpoint-epochs", "3", "--available-now", "--json")
    with subprocess.Popen(
        [LAMINA, "run", file, "--master", master, *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, (json.loads(line) for line in process.stdout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def ask(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAMINA, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def published(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the windows, and the last one of every total; sorted."""
    bars = [tuple(row.values()) for row in _rows(folder / "out" / "bars")]
    totals = {row["symbol"]: tuple(row.values()) for row in _rows(folder / "out" / "totals")}
    return {"bars": sorted(bars), "totals": sorted(totals.values())}


def _rows(sink: Path) -> Iterator[dict[str, Any]]:
    for epoch in sorted(sink.glob("epoch-*")):
        for file in sorted(epoch.glob("*.parquet")):
            yield from pq.read_table(file).to_pylist()


def truth(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The same by DuckDB over all files at once; the last windows have not closed."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE TABLE trades AS FROM read_parquet('{folder / 'data'}/*.parquet')")
        bars = f"""
            FROM (
                SELECT symbol, time_bucket(INTERVAL 1 MINUTE, ts) AS minute,
                       sum(price * volume) AS turnover, count(*) AS trades
                FROM trades GROUP BY 1, 2)
            WHERE minute + INTERVAL 1 MINUTE
                  <= (SELECT max(ts) FROM trades) - INTERVAL {DELAY_S} SECOND"""
        totals = """
            SELECT symbol, sum(price * volume), max(price), count(*) FROM trades GROUP BY symbol"""
        return {
            "bars": sorted(_plain(database.sql(bars).to_arrow_table())),
            "totals": sorted(_plain(database.sql(totals).to_arrow_table())),
        }


def _plain(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]
