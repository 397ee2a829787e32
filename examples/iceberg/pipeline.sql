-- Trades into two Iceberg tables of one warehouse: a folder here, with its catalog in it.
--   pip install 'lamina[iceberg]'
--   lamina run examples/iceberg/pipeline.sql --available-now
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '20000', symbols '10')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

-- Per symbol and minute; a row comes out once, when its minute is over: the table only grows.
CREATE STREAM vwap AS
  SELECT symbol, window.start AS minute, sum(price * volume) / sum(volume) AS vwap,
         sum(volume) AS volume
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

CREATE SINK vwap_table FROM vwap USING iceberg OPTIONS (
  table 'market.vwap', catalog.warehouse 'warehouse', partition_by 'symbol');

-- Per symbol, the sums so far; a row replaces the one of its symbol.
CREATE STREAM totals AS
  SELECT symbol, count(*) AS trades, sum(volume) AS volume, max(price) AS highest
  FROM trades GROUP BY symbol EMIT ON UPDATE;

CREATE SINK totals_table FROM totals USING iceberg OPTIONS (
  table 'market.totals', catalog.warehouse 'warehouse');
