"""The table that a sink writes to: what it is, as the catalogs of the database say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres.types import ENUM

_TABLE = """
SELECT n.oid::bigint AS schema_id, c.oid::bigint AS id, c.relkind::text AS kind,
       c.relpersistence::text AS persistence, pg_is_in_recovery() AS standby,
       current_setting('server_version_num')::int AS version,
       has_database_privilege(current_database(), 'TEMPORARY') AS may_stage,
       has_schema_privilege(n.oid, 'USAGE') AS may_use,
       has_schema_privilege(n.oid, 'CREATE') AS may_create,
       has_any_column_privilege(c.oid, 'INSERT') AS may_insert,
       has_any_column_privilege(c.oid, 'UPDATE') AS may_update,
       has_any_column_privilege(c.oid, 'SELECT') AS may_select,
       has_table_privilege(c.oid, 'DELETE') AS may_delete
  FROM (SELECT 1) AS always
  LEFT JOIN pg_namespace n ON n.nspname = $1
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2
"""

# A domain is what it is made of, however deep; an array is a list of its elements.
_COLUMNS = """
WITH RECURSIVE based(attnum, type, modifier) AS (
    SELECT attnum, atttypid, atttypmod FROM pg_attribute
     WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, t.typbasetype, t.typtypmod
      FROM based JOIN pg_type t ON t.oid = based.type WHERE t.typtype = 'd'
)
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS shown,
       a.attnotnull AS not_null, a.attgenerated::text AS generated,
       a.attidentity::text AS identity, a.atthasdef AS has_default, b.modifier::int AS modifier,
       t.typcategory = 'A' AND t.typelem <> 0 AS is_list, e.typtype = 'e' AS is_enum,
       e.typname::text AS type_name, n.nspname::text AS type_schema
  FROM based b
  JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attnum = b.attnum
  JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
  JOIN pg_type e
    ON e.oid = CASE WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN t.typelem ELSE t.oid END
  JOIN pg_namespace n ON n.oid = e.typnamespace
 ORDER BY a.attnum
"""

# Those that ON CONFLICT can go by: whole, immediate, of plain columns, for all rows.
_UNIQUE = """
SELECT (SELECT array_agg(a.attname::text) FROM pg_attribute a
         WHERE a.attrelid = i.indrelid AND a.attnum = ANY (
               (string_to_array(i.indkey::text, ' ')::int[])[1:i.indnkeyatts])) AS columns,
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) AS one_null
  FROM pg_index i
 WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
   AND i.indpred IS NULL AND i.indexprs IS NULL
"""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    shown: str  # its type, as people write it
    type: str  # without schema, if it is one of PostgreSQL's own, or well known
    cast: str  # what a value is cast to: never with a length, which would cut silently
    modifier: int
    is_list: bool
    not_null: bool
    is_filled: bool  # PostgreSQL has a value if none is given
    is_generated: bool  # no value may be given

    @property
    def scale(self) -> int | None:
        """Of a numeric with one: eleven bits, and a sign since PostgreSQL 15."""
        return None if self.modifier < 0 else (((self.modifier - 4) & 0x7FF) ^ 0x400) - 0x400


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is there."""

    columns: Mapping[str, TargetColumn]
    kind: str
    is_logged: bool
    unique: tuple[tuple[frozenset[str], bool], ...]  # columns; whether null is a value like others
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there of a target, and what the role may do in its schema."""

    has_schema: bool
    is_standby: bool
    version: int
    rights: frozenset[str]
    target: Target | None


def look_around(session: Session, schema: str, table: str) -> Surroundings:
    """In a transaction or out of one; nothing is changed."""
    (row,) = session.query("look at the table", _TABLE, schema, table)
    rights = {name for name in row if name.startswith("may_") and row[name]}
    target = None if row["id"] is None else _target(session, row, rights)
    has_schema = row["schema_id"] is not None
    return Surroundings(has_schema, row["standby"], row["version"], frozenset(rights), target)


def _target(session: Session, row: Mapping[str, Any], rights: set[str]) -> Target:
    columns = session.query("look at its columns", _COLUMNS, row["id"])
    unique = session.query("look at its indexes", _UNIQUE, row["id"])
    return Target(
        columns={each["name"]: _column(each) for each in columns},
        kind=row["kind"],
        is_logged=row["persistence"] == "p",
        unique=tuple((frozenset(each["columns"]), each["one_null"]) for each in unique),
        rights=frozenset(rights),
    )


def _column(row: Mapping[str, Any]) -> TargetColumn:
    own = row["type_schema"] == "pg_catalog" or row["type_name"] == "citext"
    name = row["type_name"] if own else f"{row['type_schema']}.{row['type_name']}"
    is_generated = bool(row["generated"]) or row["identity"] == "a"
    return TargetColumn(
        name=row["name"],
        shown=row["shown"],
        type=ENUM if row["is_enum"] else name,
        cast=f"{quoted(row['type_schema'])}.{quoted(row['type_name'])}"
        + ("[]" if row["is_list"] else ""),
        modifier=row["modifier"],
        is_list=row["is_list"],
        not_null=row["not_null"],
        is_filled=row["has_default"] or bool(row["identity"]) or is_generated,
        is_generated=is_generated,
    )


def lock_target(session: Session, schema: str, table: str) -> None:
    """In a transaction: nobody alters the table from now on; others may read and write."""
    name = f"{quoted(schema)}.{quoted(table)}"
    session.run("lock the table", f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE")
