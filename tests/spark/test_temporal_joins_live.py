"""Events joined with a table of a real PostgreSQL that changes: each meets what was there then."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lamina.testing.faulty import Killed
from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN
from tests.spark.running import Place, Run, comparable

pytestmark = pytest.mark.server


def text(server: PostgresServer, schema: str) -> str:
    return f"""
CREATE SOURCE orders (id BIGINT, customer BIGINT) USING json OPTIONS (path 'in');
CREATE SOURCE customers (id BIGINT, name STRING, country STRING) USING postgres_cdc OPTIONS (
  host '127.0.0.1', port '{server.port}', database 'postgres', user '{ADMIN}', schema '{schema}',
  table 'customers', publication '{schema}', keys 'id', slot 'slot_{schema}', max_changes '1000');
CREATE STREAM s AS SELECT o.id, c.name, c.country FROM orders o
  LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id;
CREATE SINK out FROM s USING parquet OPTIONS (path 'out');
"""


def change(random: Random) -> str:
    """Rows come, change, change their keys, and go."""
    one, other = random.randrange(12), random.randrange(12)
    country = random.choice(("'DE'", "'FR'", "NULL"))
    free = f"NOT EXISTS (SELECT 1 FROM customers WHERE id = {other})"
    return random.choice(
        (
            f"INSERT INTO customers VALUES ({one}, 'n{random.random()}', {country}) "
            "ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, country = EXCLUDED.country",
            f"UPDATE customers SET name = 'm{random.random()}' WHERE id % 5 = {one % 5}",
            f"UPDATE customers SET id = {other} WHERE id = {one} AND {free}",
            f"DELETE FROM customers WHERE id = {one}",
        )
    )


def put(place: Path, orders: list[dict[str, Any]], number: int) -> None:
    (place / "in").mkdir(exist_ok=True)
    lines = "\n".join(map(json.dumps, orders))
    (place / "in" / f"{number:03d}.json").write_text(lines)


def test_each_event_meets_the_rows_that_were_there_whatever_is_killed(
    spark: Any, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """The first epoch has the whole table, which is there before the first event."""
    server, schema = postgres_server, postgres_server.new_schema()
    server.execute(
        f"CREATE TABLE {schema}.customers (id bigint PRIMARY KEY, name text, country text)"
    )
    server.execute(f"ALTER TABLE {schema}.customers REPLICA IDENTITY FULL")
    server.execute(f"CREATE PUBLICATION {schema} FOR TABLE {schema}.customers")
    path, random, expected = f"-c search_path={schema}", Random(4), list[dict[str, Any]]()
    server.execute(
        f"INSERT INTO {schema}.customers SELECT i, 'first ' || i, NULL FROM generate_series(0, 9) i"
    )
    for number, (nth, partitions) in enumerate(((3, 1), (0, 4), (6, 2), (8, 1))):
        for _ in range(30 if number else 0):
            server.execute(change(random), options=path)
        there = {row[0]: row for row in server.execute(f"SELECT * FROM {schema}.customers")}
        orders = [
            {"id": number * 100 + i, "customer": random.choice([None, *range(14)])}
            for i in range(25)
        ]
        put(tmp_path, orders, number)
        for order in orders:
            _, name, country = there.get(order["customer"], (None, None, None))
            expected.append({"id": order["id"], "name": name, "country": country})
        for kill_at in (nth, 0) if nth else (0,):
            left = [kill_at]

            def fail_point(name: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed(name)

            rows = None if number else 3  # of changes; the snapshot is one epoch all the same
            run = Run(spark, Place(tmp_path), partitions, rows=rows, fail_point=fail_point)
            if kill_at:
                with pytest.raises(Killed):
                    run(text(server, schema))
                continue
            run(text(server, schema))
        assert comparable(Place(tmp_path).rows()) == comparable(expected), number
    assert len([row for row in expected if row["name"] is not None]) > 30
    server.execute(f"SELECT pg_drop_replication_slot('slot_{schema}')")
