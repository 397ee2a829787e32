"""What the pipeline of the kill tests comes to, computed without Lamina.

Twice over everything at once: by plain Spark batch SQL, and by DuckDB. And by DuckDB epoch by
epoch: which rows come out in which epoch, if every epoch takes one file and so many trades.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

Row = tuple[Any, ...]
Rows = Counter[Row]

KEYS = {
    "best": ("symbol",),
    "totals": ("symbol",),
    "top": ("symbol",),
}  # of what is emitted on update
DELAY_S = 10
TRADES = """
SELECT id, concat('S', CAST(pmod(xxhash64(id), {symbols}) AS STRING)) AS symbol,
       CAST(10 + pmod(xxhash64(id, 1), 9000) / 100 AS DECIMAL(12,2)) AS price,
       CAST(1 + pmod(xxhash64(id, 2), 500) AS BIGINT) AS volume,
       timestamp_micros(1700000000000000 + id * {every_us}) AS ts
FROM range({rows})
"""
ORDERS = "id BIGINT, symbol STRING, side STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP"
SPARK = {
    "bars": f"""
SELECT symbol, window.start AS minute, sum(price * volume) AS turnover,
       sum(volume) FILTER (WHERE side = 'buy') AS bought, max(price) - min(price) AS spread,
       count(*) AS orders
FROM orders GROUP BY symbol, window(ts, '1 minute') HAVING count(*) > 2 AND
     window.end <= (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S} SECONDS""",
    "even": "SELECT symbol, minute, turnover * 2 AS twice FROM bars WHERE orders % 2 = 0",
    "best": """
SELECT symbol, count(*) AS minutes, max(turnover) AS most, sum(orders) AS orders
FROM bars GROUP BY symbol""",
    "totals": """
SELECT symbol, sum(price * volume) AS turnover, count(*) FILTER (WHERE volume > 250) AS large,
       max(ts) AS latest
FROM trades GROUP BY symbol""",
    "dear": "SELECT symbol, price * 3 AS price, ts FROM trades WHERE price > 60",
    # Not by the end of the session: Spark would filter rows by it before it makes sessions of them.
    "visits": f"""
SELECT symbol, session_window.start AS starts, session_window.end AS ends, count(*) AS orders,
       count(DISTINCT side) AS sides
FROM orders WHERE symbol IS NOT NULL GROUP BY symbol, session_window(ts, '12 seconds')
HAVING max(ts) <= (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S + 12} SECONDS""",
    "top": """
SELECT symbol, max_by(id, struct(price, -id)) AS id, max(price) AS price FROM orders
WHERE symbol IS NOT NULL GROUP BY symbol""",
    "backed": f"""
SELECT s.id, s.price, max_by(b.price, b.ts) AS bought
FROM orders s LEFT JOIN orders b ON b.side = 'buy' AND b.symbol = s.symbol AND b.ts <= s.ts
WHERE s.side = 'sell' AND (s.symbol IS NULL OR
      s.ts < (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S} SECONDS) GROUP BY s.id, s.price""",
    "answered": f"""
SELECT b.id, b.symbol, s.id AS sale FROM orders b
LEFT JOIN (SELECT * FROM orders WHERE side <> 'buy') s ON b.symbol = s.symbol
  AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECONDS AND s.price < b.price
WHERE b.side = 'buy' AND (s.id IS NOT NULL OR b.symbol IS NULL OR
  b.ts + INTERVAL 20 SECONDS < (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S} SECONDS)""",
    "met": f"""
SELECT b.id, s.id AS sale FROM (SELECT * FROM orders WHERE side = 'buy') b
FULL JOIN (SELECT * FROM orders WHERE side = 'sell') s ON b.symbol = s.symbol
  AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 5 SECONDS
WHERE (b.id IS NOT NULL AND s.id IS NOT NULL) OR coalesce(b.symbol, s.symbol) IS NULL
  OR coalesce(b.ts + INTERVAL 5 SECONDS, s.ts)
     < (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S} SECONDS""",
    "sold": f"""
SELECT b.id, b.price FROM orders b LEFT SEMI JOIN orders s ON s.side = 'sell'
  AND b.symbol = s.symbol AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECONDS
WHERE b.side = 'buy' AND b.ts + INTERVAL 20 SECONDS
      < (SELECT max(ts) FROM orders) - INTERVAL {DELAY_S} SECONDS""",
}
DUCK_BARS = f"""
CREATE TABLE closing AS  -- the watermark that each epoch applies: that of the rows before it
  SELECT e.epoch, (SELECT max(ts) FROM orders o WHERE o.epoch < e.epoch)
                  - INTERVAL {DELAY_S} SECOND AS watermark
  FROM range(1, {{epochs}} + 2) AS e(epoch);
CREATE TABLE bars AS
  WITH windows AS (
    SELECT symbol, time_bucket(INTERVAL 1 MINUTE, ts) AS minute, sum(price * volume) AS turnover,
           sum(volume) FILTER (WHERE side = 'buy') AS bought, max(price) - min(price) AS spread,
           count(*) AS orders
    FROM orders GROUP BY 1, 2 HAVING count(*) > 2)
  SELECT min(closing.epoch) AS epoch, windows.*
  FROM windows JOIN closing ON minute + INTERVAL 1 MINUTE <= watermark GROUP BY ALL;
"""
DUCK = {  # of each stream, with the epoch that each row comes out in
    "bars": "SELECT * FROM bars",
    "even": "SELECT epoch, symbol, minute, turnover * 2 AS twice FROM bars WHERE orders % 2 = 0",
    "best": """
SELECT changed.epoch, changed.symbol, count(*) AS minutes, max(b.turnover) AS most,
       sum(b.orders) AS orders
FROM (SELECT DISTINCT epoch, symbol FROM bars) AS changed, bars AS b
WHERE b.symbol IS NOT DISTINCT FROM changed.symbol AND b.epoch <= changed.epoch GROUP BY ALL""",
    "totals": """
SELECT changed.epoch, changed.symbol, sum(price * volume) AS turnover,
       count(*) FILTER (WHERE volume > 250) AS large, max(ts) AS latest
FROM (SELECT DISTINCT epoch, symbol FROM trades) AS changed, trades AS t
WHERE t.symbol = changed.symbol AND t.epoch <= changed.epoch GROUP BY ALL""",
    "dear": "SELECT epoch, symbol, price * 3 AS price, ts FROM trades WHERE price > 60",
    "visits": """
WITH begins AS (
  SELECT *, coalesce(ts > lag(ts) OVER (PARTITION BY symbol ORDER BY ts) + INTERVAL 12 SECOND, true)
            AS is_first
  FROM orders WHERE symbol IS NOT NULL), numbered AS (
  SELECT *, count_if(is_first) OVER (PARTITION BY symbol ORDER BY ts
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number FROM begins), visits AS (
  SELECT symbol, min(ts) AS starts, max(ts) + INTERVAL 12 SECOND AS ends, count(*) AS orders,
         count(DISTINCT side) AS sides
  FROM numbered GROUP BY symbol, number)
SELECT min(c.epoch) AS epoch, visits.*
FROM visits JOIN closing c ON ends <= watermark GROUP BY ALL""",
    # a row that is before all that came in its epoch and earlier
    "top": """
SELECT epoch, symbol, id, price FROM orders r WHERE symbol IS NOT NULL AND NOT EXISTS (
  FROM orders o WHERE o.symbol = r.symbol AND o.epoch <= r.epoch
  AND (o.price > r.price OR (o.price = r.price AND o.id < r.id)))""",
    "backed": """
SELECT * FROM (
  SELECT CASE WHEN s.symbol IS NULL THEN s.epoch
              ELSE (SELECT min(c.epoch) FROM closing c WHERE s.ts < c.watermark) END AS epoch,
         s.id, s.price, b.price AS bought
  FROM (SELECT * FROM orders WHERE side = 'sell') s
  ASOF LEFT JOIN (SELECT * FROM orders WHERE side = 'buy') b
    ON s.symbol = b.symbol AND s.ts >= b.ts) WHERE epoch IS NOT NULL""",
    # a pair with its second row; who has none, when the watermark has passed the last that could be
    "answered": """
WITH pairs AS (
  SELECT greatest(b.epoch, s.epoch) AS epoch, b.id, b.symbol, s.id AS sale
  FROM orders b JOIN orders s ON b.symbol = s.symbol AND s.price < b.price
    AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECOND
  WHERE b.side = 'buy' AND s.side <> 'buy'), alone AS (
  SELECT * FROM orders b WHERE side = 'buy' AND NOT EXISTS (FROM pairs p WHERE p.id = b.id))
SELECT * FROM pairs
UNION ALL
SELECT epoch, id, symbol, NULL AS sale FROM alone WHERE symbol IS NULL
UNION ALL
SELECT greatest(a.epoch, min(c.epoch)) AS epoch, a.id, a.symbol, NULL AS sale
FROM alone a JOIN closing c ON c.watermark > a.ts + INTERVAL 20 SECOND
WHERE a.symbol IS NOT NULL GROUP BY a.epoch, a.id, a.symbol""",
    # who has none is judged when the watermark has passed the last, or the first, that could be
    "met": """
WITH pairs AS (
  SELECT greatest(b.epoch, s.epoch) AS epoch, b.id, s.id AS sale
  FROM orders b JOIN orders s ON b.symbol = s.symbol
    AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 5 SECOND
  WHERE b.side = 'buy' AND s.side = 'sell'), alone AS (
  SELECT epoch, symbol, CASE WHEN side = 'buy' THEN id END AS id,
         CASE WHEN side = 'sell' THEN id END AS sale,
         CASE WHEN side = 'buy' THEN ts + INTERVAL 5 SECOND ELSE ts END AS due
  FROM orders o WHERE o.id NOT IN (SELECT id FROM pairs UNION ALL SELECT sale FROM pairs))
SELECT * FROM pairs
UNION ALL
SELECT epoch, id, sale FROM alone WHERE symbol IS NULL
UNION ALL
SELECT greatest(a.epoch, min(c.epoch)) AS epoch, a.id, a.sale
FROM alone a JOIN closing c ON c.watermark > a.due
WHERE a.symbol IS NOT NULL GROUP BY a.epoch, a.id, a.sale""",
    "sold": """
SELECT greatest(b.epoch, min(c.epoch)) AS epoch, b.id, b.price
FROM orders b JOIN closing c ON c.watermark > b.ts + INTERVAL 20 SECOND
WHERE b.side = 'buy' AND EXISTS (FROM orders s WHERE s.side = 'sell' AND s.symbol = b.symbol
  AND s.ts BETWEEN b.ts AND b.ts + INTERVAL 20 SECOND)
GROUP BY b.epoch, b.id, b.price""",
}


def spark_batch(spark: Any, orders: Path, trades: Mapping[str, int]) -> dict[str, Rows]:
    """Every stream over all of the input; of windows those that are closed in the end."""
    spark.sql(TRADES.format(**trades)).createOrReplaceTempView("trades")
    spark.read.schema(ORDERS).json(str(orders)).createOrReplaceTempView("orders")
    found = {}
    for name, select in SPARK.items():
        frame = spark.sql(select)
        frame.createOrReplaceTempView(name)
        found[name] = counted(frame.toArrow().to_pylist())
    for name in ("trades", "orders", *SPARK):
        spark.catalog.dropTempView(name)
    return found


def duckdb_epochs(
    spark: Any, orders: Path, trades: Mapping[str, int], *, rows: int
) -> dict[str, dict[int, Rows]]:
    """By stream and epoch; *rows* trades and one file of orders make an epoch."""
    generated = spark.sql(TRADES.format(**trades)).toArrow()  # xxhash64 is Spark's
    columns = [_naive(generated.column(name)) for name in generated.column_names]
    made = pa.table(columns, names=generated.column_names)
    with duckdb.connect() as db:
        db.register("made", made)
        db.execute(f"CREATE TABLE trades AS SELECT *, id // {rows} + 1 AS epoch FROM made")
        db.execute(
            "CREATE TABLE orders AS SELECT *, dense_rank() OVER (ORDER BY filename) AS epoch FROM"
            " read_json(?, filename=true, columns={id: 'BIGINT', symbol: 'VARCHAR', side:"
            " 'VARCHAR', price: 'DECIMAL(12,2)', volume: 'BIGINT', ts: 'TIMESTAMP'})",
            [str(orders / "*.json")],
        )
        (epochs,) = db.execute("SELECT max(epoch) FROM orders").fetchone() or (0,)
        db.execute(DUCK_BARS.format(epochs=epochs))
        found: dict[str, dict[int, Rows]] = {}
        for name, select in DUCK.items():
            by_epoch = found.setdefault(name, {})
            for row in db.sql(select).to_arrow_table().to_pylist():
                by_epoch.setdefault(row.pop("epoch"), Counter())[plain(row)] += 1
    return found


def in_the_end(name: str, epochs: Mapping[int, Rows]) -> Rows:
    """All rows of a stream; of updates the newest of each key."""
    if name not in KEYS:
        return sum(epochs.values(), Counter())
    newest: dict[Row, Row] = {}
    for epoch in sorted(epochs):
        for row in epochs[epoch]:
            newest[tuple(value for column, value in row if column in KEYS[name])] = row
    return Counter(newest.values())


def counted(rows: Iterable[dict[str, Any]]) -> Rows:
    return Counter(plain(row) for row in rows)


def plain(row: Mapping[str, Any]) -> Row:
    """A row as a value: columns by name, times in UTC without saying so, numbers as they are."""
    return tuple((name, _plain(row[name])) for name in sorted(row))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _naive(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
