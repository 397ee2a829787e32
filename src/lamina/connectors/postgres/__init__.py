"""PostgreSQL as a sink: rows and mark in one transaction of the database."""
