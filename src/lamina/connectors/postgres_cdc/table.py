"""The table that is read, the publication and the server: what they are, and why they will not do.

The catalogs are asked in one statement, before every epoch: what is wrong is said before anything
is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.connectors.postgres.names import listed, quoted
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres.target import TargetColumn, look_around
from lamina.connectors.postgres_cdc.lsn import lsn_of
from lamina.connectors.postgres_cdc.messages import Relation
from lamina.connectors.postgres_cdc.values import misfit
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreReadOnly
from lamina.pipeline.model import Column

VERSION_MIN = 140000
_LOOK = """
WITH at AS (
    SELECT c.* FROM (SELECT 1) AS always
      LEFT JOIN pg_namespace n ON n.nspname = $3
      LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $4
)
SELECT json_build_object(
    'version', current_setting('server_version_num')::int,
    'wal_level', current_setting('wal_level'),
    'standby', pg_is_in_recovery(),
    'system', (SELECT system_identifier::text FROM pg_control_system()),
    'wal', CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn()::text END,
    'timeline', CASE WHEN NOT pg_is_in_recovery()
                     THEN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
    'database', current_database(), 'role', current_user, 'pid', pg_backend_pid(),
    'may_replicate', (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),
    'slot', (SELECT to_json(s) FROM pg_replication_slots s WHERE slot_name = $1),
    'publication', (SELECT to_json(p) FROM pg_publication p WHERE pubname = $2),
    'published_as', (SELECT concat_ws(':', p.oid, p.xmin, r.oid) FROM pg_publication p
                       LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = at.oid
                      WHERE p.pubname = $2),
    'published', (SELECT to_json(t) FROM pg_publication_tables t
                   WHERE pubname = $2 AND schemaname = $3 AND tablename = $4),
    'oid', at.oid::bigint, 'kind', at.relkind, 'identity', at.relreplident,
    'persistence', at.relpersistence,
    'hides_rows', row_security_active(at.oid),
    'columns', (SELECT json_object_agg(attname, json_build_object(
                           'type', atttypid::bigint, 'modifier', atttypmod,
                           'readable', has_column_privilege(at.oid, attnum, 'SELECT')))
                  FROM pg_attribute WHERE attrelid = at.oid AND attnum > 0 AND NOT attisdropped),
    'key', (SELECT json_agg(a.attname) FROM pg_index i
              JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
             WHERE i.indrelid = at.oid AND i.indisprimary),
    'deferrable', EXISTS (SELECT 1 FROM pg_index i
                           WHERE i.indrelid = at.oid AND i.indisprimary AND NOT i.indimmediate)
    )::text AS seen
  FROM at
"""
_OWN_ACTIONS = ("insert", "update", "delete", "truncate")
_WIDER = {21: (23, 20), 23: (20,), 1043: (25,)}
"""Types (OIDs) that a column can get while its values print as before: int2, int4, varchar."""
_LENGTH_ONLY = (1043,)
# Their text is what the output function prints; of other types a cast may print something else.
_SAME_TEXT = {
    *("int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date"),
    *("timestamp", "timestamptz", "bytea", "uuid", "json", "jsonb"),
}
ANEW = 'Read the table anew: docs/connectors.md, "Reading anew"'


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pipeline says of a table."""

    source: str
    schema: str
    table: str
    publication: str
    slot: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    remembers: bool = False  # old rows need not be in the log

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The table, as it is read."""

    source: str
    schema: str
    name: str
    oid: int
    where: str
    spelled: Mapping[str, str]  # the table's column for each one that is declared
    types: Mapping[str, tuple[int, int]]  # of these, as they were when the table was first read

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def check_columns(self, relation: Relation) -> None:
        """Refused unless every column still has the values that were read of it."""
        there = {column.name: column for column in relation.columns}
        for name, (kind, modifier) in self.types.items():
            column = there.get(name)
            if column is None:
                raise self._changed(f"the column {name!r} was dropped, renamed or unpublished")
            same = column.type == kind and (column.modifier == modifier or kind in _LENGTH_ONLY)
            if not same and column.type not in _WIDER.get(kind, ()):
                raise self._changed(
                    f"the type of the column {name!r} was changed, and rows that were read before "
                    "cannot be told from those that are there now"
                )

    def _changed(self, message: str) -> Refused:
        return Refused(f"the source {self.source!r}: {message}", where=self.where, advice=ANEW)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the catalogs has found: everything that is needed is there."""

    row: Mapping[str, Any]
    spelled: Mapping[str, str]  # the table's columns, by the names they are declared with
    found: Mapping[str, TargetColumn]  # and what they are

    @property
    def wal(self) -> int:
        return lsn_of(self.row["wal"])

    @property
    def slot(self) -> Mapping[str, Any] | None:
        slot: Mapping[str, Any] | None = self.row["slot"]
        return slot

    @property
    def types(self) -> dict[str, tuple[int, int]]:
        columns = self.row["columns"]
        return {n: (columns[n]["type"], columns[n]["modifier"]) for n in self.spelled.values()}


def types_text(types: Mapping[str, tuple[int, int]]) -> str:
    return json.dumps(types, sort_keys=True, separators=(",", ":"))


def types_of(text: str) -> dict[str, tuple[int, int]]:
    return {name: (kind, modifier) for name, (kind, modifier) in json.loads(text).items()}


def look(session: Session, wanted: Wanted, kinds: Sequence[Any]) -> Seen:
    """Raises what keeps the table from being read, the server's reasons first."""
    names = (wanted.slot, wanted.publication, wanted.schema, wanted.table)
    (found,) = session.query("look at the table and its slot", _LOOK, *names)
    row = json.loads(found["seen"])
    for problems in (_server_problems, _table_problems, _publication_problems):
        for problem in problems(row, wanted, session.where):
            raise problem
    target = look_around(session, wanted.schema, wanted.table).target
    assert target is not None, "it was there a moment ago"
    spelled = _spelled(wanted, target.columns, session.where)
    seen = Seen(row, spelled, {name: target.columns[name] for name in spelled.values()})
    _check_types(wanted, seen, kinds, session.where)
    _check_keys(wanted, spelled, row, session.where)
    return seen


def select_rows(seen: Seen, wanted: Wanted) -> str:
    """All rows of the table, with the texts that logical decoding would print."""
    texts = []
    for column in wanted.columns:
        name = seen.spelled[column.name]
        plain = seen.found[name].type in _SAME_TEXT and not seen.found[name].is_list
        printed = f"{quoted(name)}::text" if plain else f"format('%s', {quoted(name)})"
        texts.append(
            printed if plain else f"CASE WHEN {quoted(name)} IS NOT NULL THEN {printed} END"
        )
    return f"SELECT {', '.join(texts)} FROM ONLY {wanted.quoted}"


def _server_problems(row: Mapping[str, Any], wanted: Wanted, where: str) -> Iterator[LaminaError]:
    del wanted
    if row["version"] < VERSION_MIN:
        message = f"the server is older than PostgreSQL {VERSION_MIN // 10000}"
        yield Refused(message, where=where, advice="Upgrade it")
    if row["standby"]:
        message = "the server is a standby, and makes no replication slots of its own"
        yield StoreReadOnly(message, where=where, advice="Connect to the primary")
    if row["wal_level"] != "logical":
        message = f"wal_level of the server is {row['wal_level']!r}: its log has no rows to decode"
        advice = "ALTER SYSTEM SET wal_level = 'logical', and restart the server"
        yield Refused(message, where=where, advice=advice)
    if not row["may_replicate"]:
        message = f"the role {row['role']!r} may not read changes: it needs REPLICATION"
        yield AccessDenied(
            message, where=where, advice=f"ALTER ROLE {quoted(row['role'])} REPLICATION"
        )


def _table_problems(row: Mapping[str, Any], wanted: Wanted, where: str) -> Iterator[LaminaError]:
    name = wanted.quoted
    if row["oid"] is None:
        message = f"there is no table {wanted.table!r} in the schema {wanted.schema!r}"
        yield NotFound(message, where=where, advice="Correct the options schema and table")
    if row["kind"] == "p":
        message = "the table is partitioned: a partition that is truncated or detached by itself "
        message += "would not be seen"
        yield Refused(message, where=where, advice="Read its partitions, each as a source")
    if row["kind"] != "r" or row["persistence"] != "p":
        message = "it is not a plain table that PostgreSQL keeps a log of"
        yield Refused(message, where=where, advice="Use a table, not a view; SET LOGGED")
    if row["key"] is None:
        message = "the table has no primary key: rows with equal values cannot be told apart"
        yield Refused(message, where=where, advice=f"ALTER TABLE {name} ADD PRIMARY KEY (...)")
    if row["deferrable"]:
        message = "the primary key is DEFERRABLE: two rows may have one key for a while"
        yield Refused(message, where=where, advice="Make it NOT DEFERRABLE")
    if row["identity"] not in ("fd" if wanted.remembers else "f"):
        message = "the log does not have the old values of rows (REPLICA IDENTITY is not FULL)"
        advice = f"ALTER TABLE {name} REPLICA IDENTITY FULL"
        yield Refused(message, where=where, advice=advice)
    if row["hides_rows"]:
        message = f"row security hides rows of the table from the role {row['role']!r}"
        advice = f"ALTER ROLE {quoted(row['role'])} BYPASSRLS"
        yield AccessDenied(message, where=where, advice=advice)


def _publication_problems(
    row: Mapping[str, Any], wanted: Wanted, where: str
) -> Iterator[LaminaError]:
    name = quoted(wanted.publication)
    if row["publication"] is None:
        message = f"there is no publication {wanted.publication!r} in the database"
        advice = f"CREATE PUBLICATION {name} FOR TABLE {wanted.quoted}"
        yield NotFound(message, where=where, advice=advice)
    if row["published"] is None:
        message = f"the publication {wanted.publication!r} does not have the table"
        advice = (
            f"ALTER PUBLICATION {name} ADD TABLE {wanted.quoted}. If it had it before: changes in "
            f"between are lost. {ANEW}"
        )
        yield NotFound(message, where=where, advice=advice)
    missing = [each for each in _OWN_ACTIONS if not row["publication"][f"pub{each}"]]
    if missing:
        message = f"the publication {wanted.publication!r} leaves out: {', '.join(missing)}"
        advice = f"ALTER PUBLICATION {name} SET (publish = '{', '.join(_OWN_ACTIONS)}')"
        yield Refused(message, where=where, advice=advice)
    if row["published"].get("rowfilter"):
        message = f"the publication {wanted.publication!r} has a condition for rows (WHERE)"
        advice = "Publish all rows, and use WHERE in a stream of the pipeline"
        yield Refused(message, where=where, advice=advice)


def _spelled(wanted: Wanted, there: Mapping[str, TargetColumn], where: str) -> dict[str, str]:
    """The table's column for each declared one: of the same name, but for case if need be."""
    found: dict[str, str] = {}
    for column in wanted.columns:
        alike = [name for name in there if name.lower() == column.name.lower()]
        exact = [name for name in alike if name == column.name] or alike
        if len(exact) != 1:
            why = "several columns could be" if alike else "the table has no column"
            message = f"{why} {column.name!r}"
            advice = f"Its columns: {', '.join(there)}"
            raise NotFound(message, where=where, advice=advice)
        found[column.name] = exact[0]
    return found


def _check_types(wanted: Wanted, found: Seen, kinds: Sequence[Any], where: str) -> None:
    row, problems = found.row, []
    published = row["published"].get("attnames")
    for declared, kind in zip(wanted.columns, kinds, strict=True):
        column = found.found[found.spelled[declared.name]]
        if problem := misfit(declared.type, kind, column):
            problems.append(problem)
        if published is not None and column.name not in published:
            problems.append(f"{column.name!r} is not in the publication, or is generated")
        if not row["columns"][column.name]["readable"]:
            message = f"the role {row['role']!r} may not read the column {column.name!r}"
            advice = f"GRANT SELECT ON {wanted.quoted} TO {quoted(row['role'])}"
            raise AccessDenied(message, where=where, advice=advice)
    if problems:
        message = f"the table does not fit the source: {'; '.join(problems)}"
        raise Refused(message, where=where, advice="Correct the columns of CREATE SOURCE")


def _check_keys(
    wanted: Wanted, spelled: Mapping[str, str], row: Mapping[str, Any], where: str
) -> None:
    declared = {column.name.lower(): column.name for column in wanted.columns}
    keys = {spelled[declared[key.lower()]] for key in wanted.keys}
    if keys != set(row["key"]):
        message = f"the primary key of the table is {listed(row['key'])}, and keys are "
        message += f"{listed(sorted(keys))}"
        raise Refused(message, where=where, advice=f"Write keys '{', '.join(row['key'])}'")
