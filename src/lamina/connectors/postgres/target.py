"""The table that a sink writes to: what it is, as the catalogs of the database say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.session import Session
from lamina.connectors.postgres.types import ENUM

# One statement, one answer, in JSON: it is asked in every epoch that has rows.
# A domain is what it is made of, however deep; an array is a list of its elements. The unique
# indexes are those that ON CONFLICT can go by: valid, immediate, of plain columns, for all rows.
# With an INSERT or UPDATE rule there is no ON CONFLICT; of UPDATE rules even if they are disabled.
_LOOK = """
WITH RECURSIVE place AS (
    SELECT n.oid AS schema_id, c.oid AS id, c.relkind, c.relpersistence
      FROM (SELECT 1) AS always
      LEFT JOIN pg_namespace n ON n.nspname = $1
      LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2
), based(attnum, type, modifier) AS (
    SELECT attnum, atttypid, atttypmod FROM pg_attribute, place
     WHERE attrelid = place.id AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, t.typbasetype, t.typtypmod
      FROM based JOIN pg_type t ON t.oid = based.type WHERE t.typtype = 'd'
), columns AS (
    SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS shown,
           a.attnotnull AS not_null, a.attgenerated <> '' AS generated, a.attidentity AS identity,
           a.atthasdef AS has_default, b.modifier,
           t.typcategory = 'A' AND t.typelem <> 0 AS is_list,
           e.typtype = 'e' AS is_enum, e.typname AS type_name, n.nspname AS type_schema
      FROM place JOIN pg_attribute a ON a.attrelid = place.id
      JOIN based b ON a.attnum = b.attnum
      JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
      JOIN pg_type e
        ON e.oid = CASE WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN t.typelem ELSE t.oid END
      JOIN pg_namespace n ON n.oid = e.typnamespace
     ORDER BY a.attnum
), indexes AS (
    SELECT (SELECT json_agg(a.attname) FROM pg_attribute a
             WHERE a.attrelid = i.indrelid AND a.attnum = ANY (
                   (string_to_array(i.indkey::text, ' ')::int[])[1:i.indnkeyatts])) AS columns,
           coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) AS one_null
      FROM place JOIN pg_index i ON i.indrelid = place.id
     WHERE i.indisunique AND i.indisvalid AND i.indimmediate
       AND i.indpred IS NULL AND i.indexprs IS NULL
), partitions AS (
    SELECT c.relname AS name, c.relkind AS kind, c.relpersistence = 'p' AS is_logged
      FROM place CROSS JOIN LATERAL pg_partition_tree(place.id) AS tree
      JOIN pg_class c ON c.oid = tree.relid
     WHERE place.relkind = 'p' AND tree.isleaf AND c.oid <> place.id
       AND (c.relkind <> 'r' OR c.relpersistence <> 'p')
     ORDER BY c.relname
), rules AS (
    SELECT w.rulename AS name FROM place JOIN pg_rewrite w ON w.ev_class = place.id
     WHERE w.ev_type = '2' OR (w.ev_type = '3' AND w.ev_enabled NOT IN ('D', 'R'))
     ORDER BY w.rulename
)
SELECT json_build_object(
           'has_schema', schema_id IS NOT NULL, 'is_there', id IS NOT NULL, 'kind', relkind,
           'is_logged', relpersistence = 'p', 'standby', pg_is_in_recovery(),
           'version', current_setting('server_version_num')::int,
           'columns', (SELECT coalesce(json_agg(columns), '[]') FROM columns),
           'unique', (SELECT coalesce(json_agg(indexes), '[]') FROM indexes),
           'partitions', (SELECT coalesce(json_agg(partitions), '[]') FROM partitions),
           'rules', (SELECT coalesce(json_agg(name), '[]') FROM rules),
           'rights', json_build_object(
               'temporary', has_database_privilege(current_database(), 'TEMPORARY'),
               'usage', has_schema_privilege(schema_id, 'USAGE'),
               'create', has_schema_privilege(schema_id, 'CREATE'),
               'insert', has_any_column_privilege(id, 'INSERT'),
               'update', has_any_column_privilege(id, 'UPDATE'),
               'select', has_any_column_privilege(id, 'SELECT'),
               'delete', has_table_privilege(id, 'DELETE')))::text AS seen
  FROM place
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
class Partition:
    """One that holds rows, at any depth."""

    name: str
    kind: str
    is_logged: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is there."""

    columns: Mapping[str, TargetColumn]
    kind: str
    is_logged: bool
    unique: tuple[tuple[frozenset[str], bool], ...]  # columns; whether null is a value like others
    partitions: tuple[Partition, ...] = ()  # those that are not plain tables, or are unlogged
    rules: tuple[str, ...] = ()  # that keep ON CONFLICT from working

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "p"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there of a target, and what the role may do in its schema."""

    has_schema: bool
    is_standby: bool
    version: int
    rights: frozenset[str]  # in lower case
    target: Target | None


def look_around(session: Session, schema: str, table: str) -> Surroundings:
    """In a transaction or out of one; nothing is changed."""
    (row,) = session.query("look at the table", _LOOK, schema, table)
    seen = json.loads(row["seen"])
    return Surroundings(
        has_schema=seen["has_schema"],
        is_standby=seen["standby"],
        version=seen["version"],
        rights=frozenset(right for right, held in seen["rights"].items() if held),
        target=_target(seen) if seen["is_there"] else None,
    )


def _target(seen: Mapping[str, Any]) -> Target:
    return Target(
        columns={each["name"]: _column(each) for each in seen["columns"]},
        kind=seen["kind"],
        is_logged=seen["is_logged"],
        unique=tuple((frozenset(each["columns"]), each["one_null"]) for each in seen["unique"]),
        partitions=tuple(Partition(**each) for each in seen["partitions"]),
        rules=tuple(seen["rules"]),
    )


def _column(row: Mapping[str, Any]) -> TargetColumn:
    own = row["type_schema"] == "pg_catalog" or row["type_name"] == "citext"
    name = row["type_name"] if own else f"{row['type_schema']}.{row['type_name']}"
    is_generated = row["generated"] or row["identity"] == "a"
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
