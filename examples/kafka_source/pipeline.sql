-- Turnover of each minute, from records of a Kafka topic with values like {"symbol": "A", "price": 1.5, "volume": 10}.
-- A record that is not such an object goes to bad/trades, with its place and its bytes.
CREATE SOURCE trades (
  symbol STRING, price DECIMAL(12,2), volume BIGINT,
  at TIMESTAMP METADATA FROM 'timestamp', place BIGINT METADATA FROM 'offset'
) USING kafka OPTIONS (
  kafka.bootstrap.servers '${KAFKA:-127.0.0.1:9092}', subscribe '${TOPIC:-trades}', bad_rows_path 'bad/trades'
) WATERMARK at DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM turnover AS
  SELECT symbol, window.start AS minute, sum(price * volume) AS turnover, max(place) AS last_offset
  FROM trades GROUP BY symbol, window(at, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK turnover_out FROM turnover USING parquet OPTIONS (path 'out/turnover');
