-- Once, in the database; wal_level must be logical (ALTER SYSTEM SET wal_level = 'logical', then a restart).
CREATE TABLE customers (id bigint PRIMARY KEY, name text, country text, credit numeric(12, 2));
ALTER TABLE customers REPLICA IDENTITY FULL;
CREATE PUBLICATION lamina_example FOR TABLE customers;
INSERT INTO customers VALUES (1, 'Ada', 'UK', 10), (2, 'Blaise', 'FR', 20), (3, 'Carl', 'DE', 30), (4, 'Dmitri', 'DE', 5);
