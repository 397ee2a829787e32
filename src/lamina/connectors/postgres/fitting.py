"""Whether the rows of a stream fit a table, and how they get there; said column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.postgres.kind import NAME_BYTES_MAX
from lamina.connectors.postgres.names import listed, quoted
from lamina.connectors.postgres.target import Surroundings, Target, TargetColumn
from lamina.connectors.postgres.types import SentType, advice_for, sent_type
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreReadOnly

_TABLE_KINDS = ("r", "p")
_OTHER_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
}
_EXACT_TIME = (-1, 6)


@dataclass(frozen=True, slots=True)
class Fit:
    """Each column of the stream, and the one of the table that takes it."""

    columns: tuple[tuple[str, TargetColumn], ...]
    keys: tuple[tuple[str, TargetColumn], ...]
    one_null: bool  # an index tells rows apart by a null key, too
    is_partitioned: bool = False


def check_schema(schema: pa.Schema, keys: tuple[str, ...] = ()) -> Iterator[str]:
    """What of a stream PostgreSQL cannot hold, and what to do about it."""
    for field in schema:
        advice = advice_for(field.name, field.type)
        if field.name in keys and pa.types.is_nested(field.type):
            yield f"{field.name!r} is a key, and of type {field.type}. {advice}"
        if sent_type(field.type) is None:
            yield f"PostgreSQL has no type for {field.name!r} of type {field.type}. {advice}"
        if "\0" in field.name or len(field.name.encode()) > NAME_BYTES_MAX:
            yield f"{field.name!r} cannot be the name of a column: at most {NAME_BYTES_MAX} bytes"


def check_surroundings(around: Surroundings, where: str, schema: str) -> None:
    """Whether anything can be written at all."""
    if around.is_standby:
        message = "the server is a standby, and takes no writes"
        raise StoreReadOnly(message, where=where, advice="Connect to the primary")
    if not around.has_schema:
        advice = f"CREATE SCHEMA {quoted(schema)}, or correct the option schema"
        raise NotFound(f"there is no schema {schema!r}", where=where, advice=advice)
    if "usage" not in around.rights:
        message = f"the role may not use the schema {schema!r}"
        raise AccessDenied(message, where=where, advice="GRANT USAGE ON SCHEMA")
    if "temporary" not in around.rights:
        advice = "GRANT TEMPORARY ON DATABASE: rows are copied into a temporary table first"
        raise AccessDenied("the role may not create temporary tables", where=where, advice=advice)


def missing_table(
    around: Surroundings, where: str, *, schema: str, create: bool, was_there: bool
) -> LaminaError | None:
    """Why a table that is not there is not made; None if it can be."""
    if was_there:
        advice = (
            "Restore it. If what it held may be lost, create it again, or delete its mark and "
            "start with --sink-from-now"
        )
        return NotFound("the table is gone, and epochs were in it", where=where, advice=advice)
    if not create:
        advice = "Create the table, or set create_table to true"
        return NotFound("the table does not exist", where=where, advice=advice)
    if "create" not in around.rights:
        message, advice = f"the role may not create tables in {schema!r}", "GRANT CREATE ON SCHEMA"
        return AccessDenied(message, where=where, advice=advice)
    return None


def check_rights(around: Surroundings, writing: Writing, *, deletes: bool, where: str) -> None:
    """AccessDenied if the role may not write to the table as the stream needs it."""
    needed = ["insert"]
    needed += ["select", "update"] if writing.mode is WriteMode.UPSERT else []
    needed += ["delete"] if deletes else []
    missing = ", ".join(right.upper() for right in needed if right not in around.rights)
    if missing:
        message = f"the role may not {missing} on the table"
        raise AccessDenied(message, where=where, advice=f"GRANT {missing} ON TABLE")


def fit(schema: pa.Schema, writing: Writing, target: Target, where: str) -> Fit:
    """Refused with everything that does not fit."""
    check_kind(target, where)
    if writing.mode is WriteMode.UPSERT and target.rules:
        message = f"the table has rules ({listed(target.rules)}), and takes no rows by key"
        advice = "DROP RULE, or use triggers instead, or mode 'append' if the stream only adds rows"
        raise Refused(message, where=where, advice=advice)
    problems: list[str] = []
    matched: dict[str, TargetColumn] = {}
    for field in schema:
        column = _column(field.name, target, problems)
        if column is not None:
            matched[field.name] = column
            problems += _misfits(field, column)
    problems += _unfilled(target, matched)
    problems += [f"the rows have no key {key!r}" for key in writing.keys if key not in schema.names]
    one_null = True
    if writing.mode is WriteMode.UPSERT and all(key in matched for key in writing.keys):
        columns = [matched[key] for key in writing.keys]
        one_null = _one_null(target, columns, problems)
    if problems:
        advice = "Alter the table, or the SELECT of the stream"
        raise Refused(
            f"the rows do not fit the table: {'; '.join(problems)}", where=where, advice=advice
        )
    keys = tuple((key, matched[key]) for key in writing.keys)
    return Fit(tuple(matched.items()), keys, one_null, target.is_partitioned)


def check_kind(target: Target, where: str) -> None:
    """Refused if rows would not come and stay with their mark, in the table or a partition."""
    if target.kind not in _TABLE_KINDS:
        what = _OTHER_KINDS.get(target.kind, "not a table")
        message = f"it is {what}: its rows and their mark would not be one transaction"
        raise Refused(message, where=where, advice="Use a table")
    if not target.is_logged:
        message = "the table is unlogged: PostgreSQL empties it after a crash"
        raise Refused(message, where=where, advice="ALTER TABLE ... SET LOGGED")
    for partition in target.partitions:
        if partition.kind != "r":
            what = _OTHER_KINDS.get(partition.kind, "not a table")
            message = f"its partition {partition.name!r} is {what}, which commits by itself"
            raise Refused(message, where=where, advice="DETACH it, or make it a plain table")
        message = (
            f"its partition {partition.name!r} is unlogged: PostgreSQL empties it after a crash"
        )
        advice = f"ALTER TABLE {quoted(partition.name)} SET LOGGED"
        raise Refused(message, where=where, advice=advice)


def _column(name: str, target: Target, problems: list[str]) -> TargetColumn | None:
    """The one of this name; else of the same name but for case, as Spark sees it."""
    if name in target.columns:
        return target.columns[name]
    alike = [column for column in target.columns.values() if column.name.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    why = f"several columns could be {name!r}" if alike else f"the column {name!r} is missing"
    problems.append(why)
    return None


def _misfits(field: pa.Field, column: TargetColumn) -> list[str]:
    sent = sent_type(field.type)
    if sent is None:
        return list(check_schema(pa.schema([field])))
    if column.is_generated:
        return [f"{column.name!r} is generated: no value can be written to it"]
    if not _takes(sent, column):
        return [f"{column.name!r} of type {column.shown} does not take {sent.column} exactly"]
    return []


def _takes(sent: SentType, column: TargetColumn) -> bool:
    if sent.is_list is not column.is_list or column.type not in sent.value.into:
        return False
    if column.type == "numeric":
        return column.scale is None or column.scale >= sent.value.scale
    if column.type in ("timestamp", "timestamptz", "time"):
        return column.modifier in _EXACT_TIME
    return column.type != "interval" or column.modifier == -1


def _unfilled(target: Target, matched: dict[str, TargetColumn]) -> list[str]:
    """Columns that must have a value, and would have none."""
    given = {column.name for column in matched.values()}
    return [
        f"{column.name!r} is NOT NULL without a default, and not a column of the stream"
        for column in target.columns.values()
        if column.not_null and not column.is_filled and column.name not in given
    ]


def _one_null(target: Target, keys: list[TargetColumn], problems: list[str]) -> bool:
    """Whether the index over the keys holds one row for a null, or none at all."""
    names = frozenset(column.name for column in keys)
    found = [one_null for columns, one_null in target.unique if columns == names]
    if not found:
        keyed = listed(column.name for column in keys)
        problems.append(f"there is no unique index on ({keyed})")
    return any(found) or all(column.not_null for column in keys)


def create_table(schema: pa.Schema, writing: Writing, name: str, version: int) -> str:
    """The statement that makes a table for a stream; *name* is quoted.

    A key may be null, and then it is a key like others; before PostgreSQL 15 no index can say so.
    """
    parts = []
    for field in schema:
        sent = sent_type(field.type)
        assert sent is not None, field
        parts.append(f"{quoted(field.name)} {sent.column}")
    if writing.keys:
        plain = version < 150000 or not any(schema.field(key).nullable for key in writing.keys)
        unique = "PRIMARY KEY" if plain else "UNIQUE NULLS NOT DISTINCT"
        parts.append(f"{unique} ({listed(writing.keys)})")
    return f"CREATE TABLE {name} ({', '.join(parts)})"
