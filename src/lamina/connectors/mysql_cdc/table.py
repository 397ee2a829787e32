"""The table that is read, and the server: what they are, and why they will not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lamina.connectors.mysql_cdc.session import Session
from lamina.connectors.mysql_cdc.values import STEPPED_OVER, TableColumn, misfit
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused
from lamina.pipeline.model import Column

_SETTINGS = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_uid', 'log_bin', "
    "'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'log_bin_compress', "
    "'gtid_binlog_pos')"
)
_WANTED = (("log_bin", "ON"), ("binlog_format", "ROW"), ("binlog_row_image", "FULL"))
_TABLE = """
SELECT engine, table_type, table_schema, table_name FROM information_schema.tables
 WHERE table_schema = %s AND table_name = %s
"""
_COLUMNS = """
SELECT column_name, data_type, column_type, character_set_name, character_octet_length,
       numeric_precision, numeric_scale, is_generated
  FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
 ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.statistics
 WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_CASCADES = """
SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints
 WHERE constraint_schema = %s AND table_name = %s
"""
_LOUD = ("RESTRICT", "NO ACTION")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pipeline says of a table."""

    source: str
    database: str
    table: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]

    @property
    def quoted(self) -> str:
        return ".".join(f"`{name.replace('`', '``')}`" for name in (self.database, self.table))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found: everything that is needed is there."""

    settings: Mapping[str, str]
    columns: Mapping[str, TableColumn]  # those that are declared, by the names they have there

    @property
    def types(self) -> dict[str, str]:
        return {each.name: each.shown for each in self.columns.values()}


def look(session: Session, wanted: Wanted, kinds: Sequence[pa.DataType]) -> Seen:
    """Raises what keeps the table from being read, the server's reasons first."""
    rows = session.query("look at the server", _SETTINGS)
    settings = {row["variable_name"].lower(): row["value"] for row in rows}
    for reason in _server_problems(settings, session.where):
        raise reason
    _check_rights(session)
    names = (wanted.database, wanted.table)
    found = session.query("look at the table", _COLUMNS, *names)
    for reason in _table_problems(session, wanted, found):
        raise reason
    there = {row["column_name"]: _column(row) for row in found}
    columns = _declared(wanted, there, session.where)
    problems = [
        problem
        for each, kind in zip(wanted.columns, kinds, strict=True)
        if (problem := misfit(each.type, kind, columns[each.name]))
    ]
    if problems:
        message = f"the table does not fit the source: {'; '.join(problems)}"
        raise Refused(message, where=session.where, advice="Correct the columns of CREATE SOURCE")
    _check_keys(session, wanted, columns)
    return Seen(settings, columns)


def _server_problems(settings: Mapping[str, str], where: str) -> Iterator[LaminaError]:
    if "mariadb" not in settings["version"].lower():
        yield Refused(
            f"the server is MySQL {settings['version']}, and only MariaDB can be read",
            where=where,
            advice="Use Debezium, and a source with format 'debezium-json'",
        )
    if "binlog_row_metadata" not in settings:
        message = f"the server is older than MariaDB 10.5 ({settings['version']})"
        yield Refused(message, where=where, advice="Upgrade it")
    for name, value in (*_WANTED, ("binlog_row_metadata", "FULL"), ("log_bin_compress", "OFF")):
        if settings.get(name, value).upper() != value:
            yield Refused(
                f"{name} of the server is {settings[name]}: its log does not have what is needed",
                where=where,
                advice=f"Set {name} = {value} in its configuration, and restart it",
            )


def _check_rights(session: Session) -> None:
    """REPLICATION SLAVE, to read the log; filters of the log are seen with BINLOG MONITOR."""
    grants = " ".join(
        str(value)
        for row in session.query("look at rights", "SHOW GRANTS")
        for value in row.values()
    )
    whole = "ALL PRIVILEGES ON *.*" in grants
    for right in () if whole else ("REPLICATION SLAVE", "BINLOG MONITOR"):
        if right not in grants:
            raise AccessDenied(
                f"the user may not read the log: it needs {right}",
                where=session.where,
                advice="GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO the user",
            )
    for row in session.query("look at the log", "SHOW MASTER STATUS"):
        if row["binlog_do_db"] or row["binlog_ignore_db"]:
            raise Refused(
                "the log of the server leaves databases out (binlog_do_db, binlog_ignore_db)",
                where=session.where,
                advice="Remove both from its configuration",
            )


def _table_problems(
    session: Session, wanted: Wanted, found: Sequence[Mapping[str, Any]]
) -> Iterator[LaminaError]:
    names, where = (wanted.database, wanted.table), session.where
    table = [
        row
        for row in session.query("look at the table", _TABLE, *names)
        if (row["table_schema"], row["table_name"]) == names  # the catalog does not tell case apart
    ]
    if not table:
        message = f"there is no table {wanted.table!r} in {wanted.database!r}, or no right to see "
        message += "it; upper and lower case count"
        advice = f"Correct the options, or GRANT SELECT ON {wanted.quoted}"
        yield NotFound(message, where=where, advice=advice)
    elif table[0]["table_type"] != "BASE TABLE" or table[0]["engine"] != "InnoDB":
        message = f"it is a {table[0]['table_type']} of the engine {table[0]['engine']}"
        yield Refused(message, where=where, advice="Only tables of InnoDB can be read")
    for row in session.query("look at foreign keys", _CASCADES, *names):
        if row["delete_rule"] not in _LOUD or row["update_rule"] not in _LOUD:
            yield Refused(
                f"the foreign key {row['constraint_name']!r} changes rows of the table without a "
                f"word in the log (ON DELETE {row['delete_rule']}, ON UPDATE {row['update_rule']})",
                where=where,
                advice="Use RESTRICT, and delete such rows in the application",
            )
    for column in found:
        if column["data_type"] not in STEPPED_OVER:
            message = f"the column {column['column_name']!r} is {column['column_type']}, and the "
            message += "log cannot be read past such values"
            yield Refused(message, where=where, advice="Change its type, or move it elsewhere")


def _column(row: Mapping[str, Any]) -> TableColumn:
    return TableColumn(
        name=row["column_name"],
        type=row["data_type"],
        shown=row["column_type"],
        charset=row["character_set_name"],
        octets=row["character_octet_length"],
        precision=row["numeric_precision"],
        scale=row["numeric_scale"],
        generated=row["is_generated"] != "NEVER",
    )


def _declared(
    wanted: Wanted, there: Mapping[str, TableColumn], where: str
) -> dict[str, TableColumn]:
    """The table's column for each declared one; their case does not matter, as in MariaDB."""
    by_name = {name.lower(): column for name, column in there.items()}
    found = {}
    for column in wanted.columns:
        known = by_name.get(column.name.lower())
        if known is None or known.generated:
            why = "is generated" if known else "is not there, or there is no right to read it"
            message = f"the column {column.name!r} {why}"
            raise NotFound(message, where=where, advice=f"Its columns: {', '.join(there)}")
        found[column.name] = known
    return found


def _check_keys(session: Session, wanted: Wanted, columns: Mapping[str, TableColumn]) -> None:
    rows = session.query("look at the key", _KEY, wanted.database, wanted.table)
    primary = [row["column_name"] for row in rows]
    if not primary:
        message = "the table has no primary key: rows with equal values cannot be told apart"
        advice = f"ALTER TABLE {wanted.quoted} ADD PRIMARY KEY (...)"
        raise Refused(message, where=session.where, advice=advice)
    declared = {column.name.lower(): columns[column.name].name for column in wanted.columns}
    keys = [declared[key.lower()] for key in wanted.keys]
    if set(keys) != set(primary):
        message = f"the primary key is {', '.join(primary)}, and keys are {', '.join(keys)}"
        advice = f"Write keys '{', '.join(primary)}'"
        raise Refused(message, where=session.where, advice=advice)
