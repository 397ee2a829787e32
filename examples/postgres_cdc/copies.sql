-- A table of a database, kept the same in four other systems; psql -f setup.sql makes the table. Each of them is, after
-- every epoch, what the table was at one moment. remember_rows: TRUNCATE, lost slots and failovers are no problem.
--   pip install 'lamina[spark,postgres,delta,iceberg,kafka]'
CREATE SOURCE customers (id BIGINT, name STRING, country STRING, credit DECIMAL(12, 2)) USING postgres_cdc OPTIONS (
  host '${PGHOST:-localhost}', port '${PGPORT:-5432}', database '${PGDATABASE:-postgres}',
  user '${PGUSER:-postgres}', password '${PGPASSWORD:-}',
  table 'customers', publication 'lamina_example', keys 'id', slot 'lamina_copies', remember_rows 'true');

-- All rows as they are; the primary key of the table is their key everywhere.
CREATE STREAM rows AS SELECT id, name, country, credit FROM customers;

CREATE SINK delta_copy FROM rows USING delta OPTIONS (path 'lake/customers');
CREATE SINK iceberg_copy FROM rows USING iceberg OPTIONS (table 'shop.customers', catalog.warehouse 'warehouse');

-- A message for every new version of a row; for one that is gone a tombstone, so the topic can be compacted.
CREATE SINK kafka_copy FROM rows USING kafka OPTIONS (
  kafka.bootstrap.servers '${KAFKA:-localhost:9092}', topic 'customers', create_partitions '3');

-- Not a copy but a view that is always up to date: another table of the same database.
CREATE STREAM richest AS
  SELECT country, count(*) AS customers, max_by(name, credit) AS richest, sum(credit) AS credit
  FROM customers GROUP BY country HAVING count(*) > 1 EMIT CHANGES;

CREATE SINK richest_view FROM richest USING postgres OPTIONS (
  host '${PGHOST:-localhost}', port '${PGPORT:-5432}', database '${PGDATABASE:-postgres}',
  user '${PGUSER:-postgres}', password '${PGPASSWORD:-}', table 'customer_richest');
