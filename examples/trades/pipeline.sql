-- Trades, made up, the same every time: one every 50 ms of event time.
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '50000', symbols '20')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

-- Per symbol and minute; a row comes out once, when its minute is over.
CREATE STREAM vwap AS
  SELECT symbol, window.start AS minute, sum(price * volume) / sum(volume) AS vwap,
         sum(volume) AS volume, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

-- To files, exactly once; and some rows of every epoch to the terminal.
CREATE SINK vwap_out FROM vwap USING parquet OPTIONS (path 'out/vwap');
CREATE SINK vwap_shown FROM vwap USING console OPTIONS (rows '5');
