"""MariaDB as a source of changes: a snapshot of a table, then what the binary log tells."""
