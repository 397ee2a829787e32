"""The rows of one epoch on their way into a table: staged by COPY, then one statement by key.

stage    a temporary table with the types that the driver copies exactly
append   INSERT ... SELECT, each column cast to the type of the table's
upsert   DELETE what is gone; INSERT ... ON CONFLICT DO UPDATE the last row of each key
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from lamina.connectors.keyed import Writing, last_of_each_key
from lamina.connectors.postgres.fitting import Fit
from lamina.connectors.postgres.names import listed, quoted
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres.target import TargetColumn
from lamina.connectors.postgres.types import sendable, sendable_schema, sent_type
from lamina.errors import Refused

ROWS = "lamina_rows"
GONE = "lamina_gone"


class EpochWriter:
    """In a transaction that has locked the mark and the table; *table* is quoted."""

    def __init__(self, session: Session, table: str, fit: Fit) -> None:
        self._session = session
        self._table = table
        self._fit = fit

    def append(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._stage(ROWS, schema, batches)
        self._session.run("insert the rows", self._insert(), writes=True)

    def upsert(self, rows: pa.Table, writing: Writing) -> None:
        changes = last_of_each_key(rows, writing)
        upserts, deletes = changes.upserts, changes.deletes
        if not self._fit.one_null:
            self._check_nulls(upserts)
        if deletes.num_rows:
            self._stage(GONE, deletes.schema, deletes.to_batches())
        if upserts.num_rows:
            self._stage(ROWS, upserts.schema, upserts.to_batches())
        if deletes.num_rows:
            if upserts.num_rows:
                self._check_apart()
            self._delete(deletes)
        if upserts.num_rows:
            sql = self._insert() + self._in_order() + self._on_conflict()
            self._session.run("insert or update the rows", sql, writes=True)

    # statements

    def _stage(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        columns = ", ".join(f"{quoted(field.name)} {_staged(field)}" for field in schema)
        self._session.run(
            "make room for the rows", f"CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DROP"
        )
        where = self._session.where
        sent: Iterator[pa.RecordBatch] = (sendable(batch, where) for batch in batches)
        self._session.copy("copy the rows", name, sendable_schema(schema), sent)

    def _insert(self) -> str:
        columns = self._fit.columns
        names = listed(column.name for _, column in columns)
        values = ", ".join(_cast("s", each) for each in columns)
        return f"INSERT INTO {self._table} ({names}) SELECT {values} FROM pg_temp.{ROWS} AS s"

    def _in_order(self) -> str:
        """Of the index: neighbours are on one page, and two writers do not wait for each other."""
        return " ORDER BY " + ", ".join(_cast("s", key) for key in self._fit.keys)

    def _on_conflict(self) -> str:
        keys = [column.name for _, column in self._fit.keys]
        others = [column.name for _, column in self._fit.columns if column.name not in keys]
        target = f" ON CONFLICT ({listed(keys)}) DO"
        if not others:
            return f"{target} NOTHING"
        changed = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
        return f"{target} UPDATE SET {changed}"

    def _delete(self, deletes: pa.Table) -> None:
        """A null is equal to a null; only keys with one are looked for without an index."""
        keys = self._fit.keys
        # Tables that inherit from a plain one are not the sink's; partitions are.
        table = self._table if self._fit.is_partitioned else f"ONLY {self._table}"
        delete = f"DELETE FROM {table} AS t USING pg_temp.{GONE} AS s WHERE"
        equal = " AND ".join(f"t.{quoted(c.name)} = {_cast('s', (name, c))}" for name, c in keys)
        self._session.run("delete rows", f"{delete} {equal}", writes=True)
        if any(deletes[name].null_count for name, _ in keys):
            same = " AND ".join(
                f"t.{quoted(c.name)} IS NOT DISTINCT FROM {_cast('s', (name, c))}"
                for name, c in keys
            )
            null = " OR ".join(f"s.{quoted(name)} IS NULL" for name, _ in keys)
            sql = f"{delete} {same} AND ({null})"
            self._session.run("delete rows with a null", sql, writes=True)

    # what only the data can tell

    def _check_nulls(self, rows: pa.Table) -> None:
        """Another row would be added each time, where one should be replaced."""
        for name, column in self._fit.keys:
            if rows[name].null_count:
                keys = listed(column.name for _, column in self._fit.keys)
                raise Refused(
                    f"the key column {column.name!r} is null in a row, and the unique index of "
                    "the table takes any number of nulls",
                    where=self._session.where,
                    advice=f"CREATE UNIQUE INDEX ON {self._table} ({keys}) NULLS NOT DISTINCT "
                    "(PostgreSQL 15), or use coalesce in the SELECT",
                )

    def _check_apart(self) -> None:
        """Keys that differ here and are equal there: which of both came last is not known."""
        equal = " AND ".join(f"{_cast('s', key)} = {_cast('g', key)}" for key in self._fit.keys)
        sql = (
            f"SELECT count(*)::bigint AS pairs FROM pg_temp.{ROWS} AS s JOIN pg_temp.{GONE} AS g "
            f"ON {equal}"
        )
        (found,) = self._session.query("compare keys", sql, writes=True)
        if found["pairs"]:
            raise Refused(
                "keys that differ in the stream are equal in the table, and one is deleted",
                where=self._session.where,
                advice="Use a type or a collation of the key columns that keeps them apart",
            )


def peeked(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of what comes, with all of it: it may be older than the pipeline's file is."""
    first = next(batches)
    return first.schema, chain([first], batches)


def _staged(field: pa.Field) -> str:
    sent = sent_type(field.type)
    assert sent is not None, field
    return sent.staged


def _cast(table: str, column: tuple[str, TargetColumn]) -> str:
    name, target = column
    return f"{table}.{quoted(name)}::{target.cast}"
