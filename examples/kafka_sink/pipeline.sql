-- Trades, made up, the same every time: one every 50 ms of event time.
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '20000', symbols '20')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

-- One message for each symbol whenever it changes; the key is the symbol, so the topic can be compacted.
CREATE STREAM totals AS
  SELECT symbol, sum(volume) AS volume, max(price) AS highest, max(ts) AS last_trade
  FROM trades GROUP BY symbol EMIT ON UPDATE;

-- One message for each symbol and minute, when the minute is over; its time is the minute's.
CREATE STREAM minutes AS
  SELECT symbol, window.start AS minute, sum(price * volume) / sum(volume) AS vwap, count(*) AS trades,
         window.end AS at
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

-- Read them with isolation.level=read_committed: each row is there once.
CREATE SINK totals_out FROM totals USING kafka OPTIONS (
  kafka.bootstrap.servers '${KAFKA:-localhost:9092}', topic 'trade-totals', create_partitions '3');

CREATE SINK minutes_out FROM minutes USING kafka OPTIONS (
  kafka.bootstrap.servers '${KAFKA:-localhost:9092}', topic 'trade-minutes', create_partitions '3',
  keys 'symbol', timestamp 'at', kafka.compression.type 'zstd');
