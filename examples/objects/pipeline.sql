-- Orders as JSON files in a bucket; credentials of the bucket are in the environment, here and on executors.
CREATE SOURCE orders (shop STRING, amount DECIMAL(12,2), day DATE)
  USING json OPTIONS (path '${BUCKET}/orders', list_every '1 minute');

CREATE STREAM large AS SELECT * FROM orders WHERE amount >= 100;
CREATE STREAM totals AS
  SELECT shop, day, sum(amount) AS amount, count(*) AS orders FROM orders GROUP BY shop, day EMIT ON UPDATE;

-- Back into the bucket, exactly once; docs/read_parquet_sink.py reads it.
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path '${BUCKET}/totals');

-- To a function, at least once.
CREATE SINK large_out FROM large USING function OPTIONS (function 'alerts:keep');
