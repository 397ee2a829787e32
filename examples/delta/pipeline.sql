-- Trades, made up, the same every time: one every 50 ms of event time.
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '20000', symbols '20')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

-- One row for each symbol, replaced whenever it changes.
CREATE STREAM totals AS
  SELECT symbol, count(*) AS trades, sum(volume) AS volume, max(price) AS highest, max(ts) AS last_trade
  FROM trades GROUP BY symbol EMIT ON UPDATE;

-- One row for each symbol and minute, added when the minute is over.
CREATE STREAM minutes AS
  SELECT symbol, window.start AS minute, CAST(window.start AS DATE) AS day,
         sum(price * volume) / sum(volume) AS vwap, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

-- Both tables are created if they are missing. A path may be s3://bucket/totals, too; credentials then
-- come from the environment (AWS_ACCESS_KEY_ID, ...), or from options.
CREATE SINK totals_out FROM totals USING delta OPTIONS (path 'tables/totals', compact '10');

CREATE SINK minutes_out FROM minutes USING delta OPTIONS (path 'tables/minutes', partition_by 'day');
