"""Pipelines on Spark into a real PostgreSQL: what is there is what one Spark batch computes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline, Refused
from lamina.testing.faulty import Killed
from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN
from tests.spark.running import Place, Run, batch, comparable

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres" / "pipeline.sql"
COLUMNS = "k STRING, v BIGINT, at TIMESTAMP"
EVERY_TYPE = """
  SELECT k, v, CAST(v % 100 AS TINYINT) AS tiny, CAST(v % 100 AS SMALLINT) AS small,
         CAST(v % 100 AS INT) AS whole, v % 2 = 0 AS even, CAST(v / 4 AS FLOAT) AS single,
         v / 7 AS double, CAST(v AS DECIMAL(38, 18)) / 7 AS exact, CAST(k AS BINARY) AS bytes,
         CAST(at AS DATE) AS day, at, CAST(at AS TIMESTAMP_NTZ) AS local,
         at - TIMESTAMP '2000-01-01 00:00:00' AS since, array(v, NULL) AS several,
         to_json(named_struct('a', v, 'b', array(k))) AS document
  FROM t"""
TOTALS = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"


def text(schema: str) -> str:
    login = f"port '${{PORT}}', database 'postgres', user '{ADMIN}', schema '{schema}'"
    return f"""
    CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');
    CREATE STREAM rows AS {EVERY_TYPE};
    CREATE STREAM totals AS {TOTALS} EMIT ON UPDATE;
    CREATE SINK rows_out FROM rows USING postgres OPTIONS (table 'rows', {login});
    CREATE SINK totals_out FROM totals USING postgres OPTIONS (table 'totals', {login});"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.put_moments(["a", "b", "Ω", None, ""])
    return made


def table_of(server: PostgresServer, schema: str, name: str) -> list[dict[str, Any]]:
    with server.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM {schema}.{name}")
        names = [column.name for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def check(spark: Any, place: Place, server: PostgresServer, schema: str) -> None:
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    for name, select in (("rows", EVERY_TYPE), ("totals", TOTALS)):
        wanted = comparable(map(in_utc, batch(spark, select)))
        assert comparable(map(in_utc, table_of(server, schema, name))) == wanted, name


def in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """Instants in one spelling of their zone."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
        for name, value in row.items()
    }


def test_every_spark_type_and_updates_by_key_are_what_spark_computes(
    spark: Any, place: Place, postgres_server: PostgresServer
) -> None:
    schema = postgres_server.new_schema()
    run = Run(spark, place, variables={"PORT": str(postgres_server.port)})
    assert run(text(schema)) == 3
    check(spark, place, postgres_server, schema)
    assert run(text(schema)) == 3


def test_killed_at_steps_of_an_epoch_every_row_is_there_once(
    spark: Any, place: Place, postgres_server: PostgresServer
) -> None:
    schema = postgres_server.new_schema()
    variables = {"PORT": str(postgres_server.port)}
    passed: list[str] = []
    for nth in (2, 5, 8):
        with pytest.raises(Killed):
            Run(spark, place, variables=variables, fail_point=_kill_at(nth, passed))(text(schema))
    Run(spark, place, variables=variables)(text(schema))
    assert len(set(passed)) > 1, passed
    check(spark, place, postgres_server, schema)


def _kill_at(nth: int, passed: list[str]) -> Callable[[str], None]:
    seen: list[str] = []

    def point(name: str) -> None:
        seen.append(name)
        passed.append(name)
        if len(seen) == nth:
            raise Killed(name)

    return point


def test_what_postgresql_has_no_type_for_is_refused_with_a_place(
    spark: Any, place: Place, postgres_server: PostgresServer
) -> None:
    schema = postgres_server.new_schema()
    run = Run(spark, place, variables={"PORT": str(postgres_server.port)})
    wrong = text(schema).replace("to_json(named_struct('a', v, 'b', array(k)))", "map(k, v)")
    with pytest.raises(BadPipeline, match="cannot take its stream") as raised:
        run(wrong)
    assert "to_json(document) AS document" in raised.value.advice
    postgres_server.execute(f"CREATE TABLE {schema}.totals (k text PRIMARY KEY, n int, total real)")
    with pytest.raises(Refused, match="'total' of type real does not take bigint exactly"):
        run(text(schema))
    made = postgres_server.execute(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    assert made == [("totals",)], "nothing is claimed"


def test_the_example_runs(spark: Any, tmp_path: Path, postgres_server: PostgresServer) -> None:
    postgres_server.execute("DROP TABLE IF EXISTS trade_totals, trade_minutes, lamina_sinks")
    variables = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres_server.port),
        "PGUSER": ADMIN,
        "PGDATABASE": "postgres",
    }
    Run(spark, Place(tmp_path), rows=7_000, files=None, variables=variables)(EXAMPLE.read_text())
    totals = table_of(postgres_server, "public", "trade_totals")
    minutes = table_of(postgres_server, "public", "trade_minutes")
    assert len(totals) == 20
    assert {row["symbol"] for row in totals} == {row["symbol"] for row in minutes}
    assert 0 < sum(row["trades"] for row in minutes) <= 20_000
    assert len({(row["symbol"], row["minute"]) for row in minutes}) == len(minutes)
