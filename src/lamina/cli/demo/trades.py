"""What `lamina demo` runs on: a pipeline and files of trades, the same for the same seed."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lamina.os_errors import typed_errors

PIPELINE = """\
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING json OPTIONS (path 'trades') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM vwap AS
  SELECT symbol, window.start AS minute, sum(price * volume) AS turnover, sum(volume) AS volume,
         count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE STREAM totals AS
  SELECT symbol, sum(volume) AS volume, count(*) AS trades, max(price) AS highest
  FROM trades GROUP BY symbol EMIT ON UPDATE;
CREATE SINK vwap_out FROM vwap USING parquet OPTIONS (path 'out/vwap');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path 'out/totals');
"""
SYMBOLS = 20
ROWS_PER_FILE = 500
EVERY_MS = 50
JITTER_MS = 4_000  # less than the delay: no trade is late, so batch and stream see the same rows
DELAY = timedelta(seconds=5)
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def draw(seed: int, what: str, most: int) -> int:
    """A number from 0 to *most* - 1 that depends on its arguments alone."""
    digest = hashlib.sha256(f"{seed}:{what}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % most


def write_project(folder: Path, *, files: int, seed: int) -> datetime:
    """The pipeline and its files; the latest event time."""
    latest = BEGIN
    with typed_errors(folder):
        (folder / "trades").mkdir(parents=True, exist_ok=True)
        (folder / "demo.sql").write_text(PIPELINE, encoding="utf-8")
        for number in range(files):
            rows = [_trade(seed, number * ROWS_PER_FILE + i) for i in range(ROWS_PER_FILE)]
            latest = max(latest, *(at for at, _ in rows))
            text = "".join(f"{line}\n" for _, line in rows)
            (folder / "trades" / f"{number:05d}.json").write_text(text, encoding="utf-8")
    return latest


def _trade(seed: int, number: int) -> tuple[datetime, str]:
    late = draw(seed, f"late {number}", JITTER_MS)
    at = BEGIN + timedelta(milliseconds=JITTER_MS + number * EVERY_MS - late)
    trade = {
        "symbol": f"S{draw(seed, f'symbol {number}', SYMBOLS)}",
        "price": round(10 + draw(seed, f"price {number}", 9_000) / 100, 2),
        "volume": 1 + draw(seed, f"volume {number}", 500),
        "ts": at.isoformat(timespec="milliseconds"),
    }
    return at, json.dumps(trade)
