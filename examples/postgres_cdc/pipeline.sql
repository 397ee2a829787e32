-- The customers of a database and every change to them: psql -f setup.sql makes the table.
CREATE SOURCE customers (id BIGINT, name STRING, country STRING, credit DECIMAL(12, 2)) USING postgres_cdc OPTIONS (
  host '${PGHOST:-localhost}', port '${PGPORT:-5432}', database '${PGDATABASE:-postgres}',
  user '${PGUSER:-postgres}', password '${PGPASSWORD:-}',
  table 'customers', publication 'lamina_example', keys 'id', slot 'lamina_example');

-- A copy of some columns: rows are replaced and deleted as they are in the table.
CREATE STREAM names AS SELECT id, upper(name) AS name FROM customers;

-- Always the same as this SELECT over the table: rows that change are taken back first.
CREATE STREAM countries AS
  SELECT country, count(*) AS customers, sum(credit) AS credit, max(credit) AS highest
  FROM customers GROUP BY country EMIT CHANGES;

CREATE SINK names_out FROM names USING postgres OPTIONS (
  host '${PGHOST:-localhost}', port '${PGPORT:-5432}', database '${PGDATABASE:-postgres}',
  user '${PGUSER:-postgres}', password '${PGPASSWORD:-}', table 'customer_names');

CREATE SINK countries_out FROM countries USING postgres OPTIONS (
  host '${PGHOST:-localhost}', port '${PGPORT:-5432}', database '${PGDATABASE:-postgres}',
  user '${PGUSER:-postgres}', password '${PGPASSWORD:-}', table 'customer_countries');
