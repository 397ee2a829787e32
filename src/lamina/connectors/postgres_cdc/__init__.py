"""PostgreSQL as a source of changes: a snapshot of a table, then what logical decoding tells."""
