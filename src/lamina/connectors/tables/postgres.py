"""Reads a PostgreSQL table: all rows of one snapshot, in one transaction that only reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lamina.connectors.kinds import TableContext
from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.opening import server_of
from lamina.connectors.postgres.session import Session
from lamina.connectors.tables.rows import PART, cast_to
from lamina.connectors.tables.spooled import Identity
from lamina.errors import Refused, StoreUnavailable

LSN = "lsn"
_PLACE = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_insert_lsn() END)::text AS lsn"""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_MAY_TAKE = "SELECT set_config('statement_timeout', $1, true)"
_IN_ORDER = "SET LOCAL synchronize_seqscans = off"
"""Then the rows of a table that nobody has changed come in the same order."""
_COLUMNS = """
SELECT a.attname::text AS name, t.typname::text AS type, t.typtype = 'e' AS is_enum
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_TEXTS = ("text", "varchar", "bpchar", "name", "uuid", "json", "jsonb", "citext")
_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_FLOATS = {"float4": 32, "float8": 64}
_SAME = {"bool": pt.is_boolean, "date": pt.is_date, "bytea": pt.is_binary}
_TIMES = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True, slots=True)
class Found:
    """A column as the server has it."""

    name: str
    type: str
    is_enum: bool


class PostgresReader:
    """The rows of a PostgreSQL table; the same place in the log means the same rows."""

    def __init__(self, context: TableContext) -> None:
        assert context.columns is not None
        given = context.given
        self._name = context.table.name
        self._wanted = context.columns
        self._table = f"{quoted(given.text('schema') or 'public')}.{quoted(given.text('table'))}"
        server = server_of(given)
        self._read_timeout_ms = server.write_timeout_ms
        where = f"{server.url} {self._table}"
        self._session = Session(server, application=f"lamina {self._name}", where=where)

    def look(self) -> str:
        (found,) = self._session.look("look at the log", _PLACE)
        return str(found[LSN])

    def is_settled(self, look: str) -> bool:
        del look  # nothing is committed without a step of the log
        return True

    def identity(self, look: str) -> None:
        """Others than this table may have moved the log: its rows tell."""

    def spool(self, look: str, folder: Path) -> Identity:
        del look  # the snapshot is later
        session = self._session
        try:
            session.run("begin a transaction", _BEGIN)
            (place,) = session.query("take a snapshot", _PLACE)
            session.run("read in order", _IN_ORDER)
            session.query("take the time it needs", _MAY_TAKE, str(self._read_timeout_ms))
            self._read(folder / PART)
            session.roll_back()
        except BaseException:
            session.close()
            raise
        with (folder / PART).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        rows = pq.read_metadata(folder / PART).num_rows
        return Identity({"sha256": digest, "rows": str(rows)}, {LSN: str(place[LSN])}, rises=LSN)

    def close(self) -> None:
        self._session.close()

    # steps

    def _read(self, path: Path) -> None:
        found = self._columns()
        sql = ", ".join(_expression(self._name, found, field) for field in self._wanted)
        self._check_finite(found)
        wanted = self._wanted
        with pq.ParquetWriter(path, wanted) as writer:

            def write(batch: pa.RecordBatch) -> None:
                arrays = [
                    cast_to(self._name, values, field)
                    for values, field in zip(batch.columns, wanted, strict=True)
                ]
                writer.write_batch(pa.record_batch(arrays, schema=wanted))

            text = f"SELECT {sql} FROM {self._table}"  # noqa: S608  names in quotes
            self._session.read("read the table", text, write)

    def _columns(self) -> Mapping[str, Found]:
        listed = self._session.query("look at the columns", _COLUMNS, self._table)
        if not listed:
            message = f"there is no PostgreSQL table for {self._name!r}"
            raise StoreUnavailable(message, where=self._session.where, advice="Make it")
        found = [Found(str(row["name"]), str(row["type"]), bool(row["is_enum"])) for row in listed]
        return _by_name(self._name, found, self._wanted.names)

    def _check_finite(self, found: Mapping[str, Found]) -> None:
        """`infinity` is a time in PostgreSQL, and none in Spark."""
        times = [f"NOT isfinite({quoted(c.name)})" for c in found.values() if c.type in _TIMES]
        if not times:
            return
        sql = f"SELECT count(*) AS n FROM {self._table} WHERE {' OR '.join(times)}"  # noqa: S608
        (row,) = self._session.query("look for infinite times", sql, writes=True)
        if row["n"]:
            raise Refused(
                f"{row['n']} rows of the table {self._name!r} have a time that is infinite",
                where=self._session.where,
                advice="Read a view in which such a time is null, or a date that you choose",
            )


def _by_name(table: str, found: Sequence[Found], wanted: Sequence[str]) -> dict[str, Found]:
    """The columns that are wanted, by their declared names: without case, unless it tells apart."""
    chosen: dict[str, Found] = {}
    for name in wanted:
        same = [each for each in found if each.name == name]
        same = same or [each for each in found if each.name.lower() == name.lower()]
        if len(same) != 1:
            raise Refused(
                f"the table {table!r} has {len(same)} columns that are called {name!r}",
                advice=f"It has {', '.join(each.name for each in found)}",
            )
        chosen[name] = same[0]
    return chosen


def _expression(table: str, found: Mapping[str, Found], wanted: pa.Field) -> str:
    """What is selected for a column; Refused if its values are not of the declared type."""
    column, kind = found[wanted.name], wanted.type
    name = quoted(column.name)
    if pt.is_string(kind) and (column.is_enum or column.type in _TEXTS):
        return f"{name}::text"
    if pt.is_decimal(kind) and (column.type == "numeric" or column.type in _INTEGERS):
        return f"{name}::text"  # Arrow makes a decimal of it, or says what does not fit
    widths = _INTEGERS if pt.is_integer(kind) else _FLOATS if pt.is_floating(kind) else {}
    if widths.get(column.type, 1 << 10) <= (kind.bit_width if widths else 0):
        return name
    if column.type in _SAME and _SAME[column.type](kind):
        return name
    if pt.is_timestamp(kind) and column.type == ("timestamp" if kind.tz is None else "timestamptz"):
        return name
    raise Refused(
        f"the column {wanted.name!r} of the table {table!r} is {column.type}, and {kind} in the "
        "pipeline",
        advice="Give the column the type that it has in the table, or read a view that casts it",
    )
