"""Two tables of a real PostgreSQL, joined while they change: sinks have what the database has."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from lamina.testing.faulty import Killed
from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN
from tests.spark.running import Place, Run

pytestmark = pytest.mark.server

TABLES = {
    "orders": "id BIGINT, customer BIGINT, total DECIMAL(12, 2)",
    "customers": "id BIGINT, name STRING, country STRING",
}
ON = "orders o {} customers c ON o.customer = c.id"
QUERIES = {
    "named": f"SELECT o.id, o.total, c.name FROM {ON.format('LEFT JOIN')}",
    "spent": f"SELECT c.country, count(*) AS n, sum(o.total) AS total FROM {ON.format('JOIN')} "
    "GROUP BY c.country",
    "idle": "SELECT c.id, c.name FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id",
}
IN_POSTGRES = {
    **QUERIES,
    "idle": "SELECT c.id, c.name FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id)",
}


def text(server: PostgresServer, schema: str) -> str:
    login = f"host '127.0.0.1', port '{server.port}', database 'postgres', user '{ADMIN}'"
    login += f", schema '{schema}'"
    parts = [
        f"CREATE SOURCE {name} ({columns}) USING postgres_cdc OPTIONS (table '{name}', "
        f"publication '{schema}', keys 'id', {login}, slot '{slot_of(schema, name)}');"
        for name, columns in TABLES.items()
    ]
    for name, select in QUERIES.items():
        emit = "EMIT CHANGES" if "GROUP BY" in select else ""
        parts.append(f"CREATE STREAM {name} AS {select} {emit};")
        parts.append(
            f"CREATE SINK {name}_out FROM {name} USING postgres OPTIONS (table '{name}_out', "
            f"{login});"
        )
    return "\n".join(parts)


def slot_of(schema: str, table: str) -> str:
    return f"slot_{schema}_{table}"


def create(server: PostgresServer, schema: str) -> None:
    types = {"BIGINT": "bigint", "STRING": "text", "DECIMAL": "numeric"}
    for name, columns in TABLES.items():
        ddl = columns.replace("id BIGINT,", "id bigint PRIMARY KEY,")
        for ours, theirs in types.items():
            ddl = ddl.replace(ours, theirs)
        server.execute(f"CREATE TABLE {schema}.{name} ({ddl})")
        server.execute(f"ALTER TABLE {schema}.{name} REPLICA IDENTITY FULL")
    listed = ", ".join(f"{schema}.{name}" for name in TABLES)
    server.execute(f"CREATE PUBLICATION {schema} FOR TABLE {listed}")


def random_change(random: Random) -> str:
    """Rows come, change, change their keys and their partners, and go."""
    one, other, customer = random.randrange(40), random.randrange(40), random.randrange(12)
    country = random.choice(("'DE'", "'FR'", "NULL"))
    free = "NOT EXISTS (SELECT 1 FROM {} WHERE id = {})"
    return random.choice(
        (
            f"INSERT INTO orders VALUES ({one}, nullif({customer}, 3), {random.randrange(900)}.5) "
            "ON CONFLICT (id) DO UPDATE SET customer = EXCLUDED.customer, total = EXCLUDED.total",
            f"INSERT INTO customers VALUES ({customer}, 'n{random.random()}', {country}) "
            "ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, country = EXCLUDED.country",
            f"UPDATE orders SET customer = {customer} WHERE id % 9 = {one % 9}",
            f"UPDATE orders SET id = {other} WHERE id = {one} AND {free.format('orders', other)}",
            f"UPDATE customers SET id = {one % 12} WHERE id = {customer} "
            f"AND {free.format('customers', one % 12)}",
            f"DELETE FROM customers WHERE id = {customer}",
            f"DELETE FROM orders WHERE id IN ({one}, {other})",
        )
    )


def test_sinks_have_the_joins_of_the_tables_whatever_is_killed(
    spark: Any, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    server, schema = postgres_server, postgres_server.new_schema()
    create(server, schema)
    path, random, compared = f"-c search_path={schema}", Random(3), 0
    for nth, rows in ((4, None), (0, 20), (7, None), (0, None)):
        for _ in range(60):
            server.execute(random_change(random), options=path)
        left = [nth]

        def fail_point(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        run = Run(spark, Place(tmp_path), rows=rows, fail_point=fail_point)
        if nth:
            with pytest.raises(Killed):
                run(text(server, schema))
            continue
        run(text(server, schema))
        for name, query in IN_POSTGRES.items():
            found = server.execute(f"SELECT * FROM {schema}.{name}_out")
            there = server.execute(query, options=path)
            assert sorted(map(repr, found)) == sorted(map(repr, there)), name
            compared += len(there)
    assert compared > 20
    for name in TABLES:
        server.execute(f"SELECT pg_drop_replication_slot('{slot_of(schema, name)}')")
