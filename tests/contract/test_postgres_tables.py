"""PostgreSQL tables as reference data: all rows of one snapshot, known by their digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.opening_tables import check_table
from lamina.connectors.registry import table_kind
from lamina.engine.model import TableVersion
from lamina.engine.ports import Table
from lamina.errors import BadPipeline, LaminaError, Refused, StoreUnavailable
from lamina.pipeline.model import Column, DeclaredTable, Option
from tests.servers.postgres import ADMIN, PostgresServer

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
US = pa.timestamp("us", "UTC")


@dataclass
class World:
    server: PostgresServer
    schema: str
    root: Path

    def execute(self, statement: str) -> None:
        self.server.execute(statement.replace("{s}", self.schema))

    def opened(self, columns: pa.Schema = COLUMNS, **options: str) -> Table:
        given = {
            "host": "127.0.0.1",
            "port": str(self.server.port),
            "database": "postgres",
            "user": ADMIN,
            "schema": self.schema,
            "table": "items",
            "refresh": "1 microsecond",
            **options,
        }
        listed = tuple(Column(name, "STRING") for name in columns.names)
        table = DeclaredTable(
            "items", listed, "postgres", {name: Option.plain(each) for name, each in given.items()}
        )
        context = replace(
            check_table(table, self.root, file="p.sql"),
            scratch=self.root / "copies",
            columns=columns,
        )
        kind = table_kind("postgres")
        assert kind is not None
        return kind.open(context)


@pytest.fixture
def world(postgres_server: PostgresServer, tmp_path: Path) -> World:
    made = World(postgres_server, postgres_server.new_schema(), tmp_path)
    made.execute("CREATE TABLE {s}.items (id int PRIMARY KEY, name text)")
    made.execute("INSERT INTO {s}.items VALUES (1, 'a'), (2, NULL)")
    return made


def rows(version: TableVersion) -> list[dict[str, Any]]:
    (file,) = version.files
    found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def test_a_version_is_what_one_transaction_sees(world: World) -> None:
    table = world.opened()
    first = table.version()
    assert rows(first) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert set(first.identity) == {"sha256", "rows"}
    assert "/" in first.metadata["lsn"]
    world.execute("UPDATE {s}.items SET name = 'ü' WHERE id = 2")
    second = table.version()
    assert {"id": 2, "name": "ü"} in rows(second)
    assert second.identity["sha256"] != first.identity["sha256"]
    table.close()


def test_changes_of_other_tables_are_no_version(world: World) -> None:
    table = world.opened()
    first = table.version()
    world.execute("CREATE TABLE {s}.other (id int)")
    world.execute("INSERT INTO {s}.other VALUES (1)")
    assert table.version() is first
    assert len(list((world.root / "copies").iterdir())) == 1
    table.close()


def test_a_database_at_rest_is_not_read_again(world: World) -> None:
    table = world.opened()
    first = table.version()
    assert table.version() is first
    table.close()


EVERY: Mapping[str, tuple[str, str, pa.DataType, Any]] = {
    "small": ("smallint", "7", pa.int16(), 7),
    "wide": ("int", "-7", pa.int64(), -7),
    "real": ("real", "1.5", pa.float64(), 1.5),
    "number": ("numeric", "123.45", pa.decimal128(9, 2), Decimal("123.45")),
    "whole": ("bigint", "9", pa.decimal128(20, 0), Decimal(9)),
    "words": ("varchar(9)", "'x''ü'", pa.string(), "x'ü"),
    "json": ("jsonb", """'{"a": 1}'""", pa.string(), '{"a": 1}'),
    "yes": ("bool", "true", pa.bool_(), True),
    "day": ("date", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
    "at": ("timestamptz", "'2024-01-01 00:00+01'", US, datetime(2023, 12, 31, 23, tzinfo=UTC)),
    "local": ("timestamp", "'2024-01-01 00:00'", pa.timestamp("us"), datetime(2024, 1, 1)),  # noqa: DTZ001
    "raw": ("bytea", r"'\x00ff'", pa.binary(), b"\x00\xff"),
}


def test_every_type_comes_as_it_is(world: World) -> None:
    listed = ", ".join(f"{name} {kind}" for name, (kind, *_) in EVERY.items())
    values = ", ".join(value for _, value, *_ in EVERY.values())
    world.execute(f"CREATE TABLE {{s}}.types ({listed})")
    nulls = ", ".join(["NULL"] * len(EVERY))
    world.execute(f"INSERT INTO {{s}}.types VALUES ({values}), ({nulls})")
    schema = pa.schema([(name, kind) for name, (_, _, kind, _) in EVERY.items()])
    table = world.opened(schema, table="types")
    first, second = rows(table.version())
    assert first == {name: value for name, (*_, value) in EVERY.items()}
    assert set(second.values()) == {None}
    table.close()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": pa.int16()}, "the column 'id' of the table 'items' is int4, and int16"),
        ({"name": pa.int64()}, "the column 'name' of the table 'items' is text, and int64"),
        ({"id": pa.string()}, "is int4, and string in the pipeline"),
        ({"nothing": pa.string()}, "has 0 columns that are called 'nothing'"),
    ],
)
def test_a_column_that_is_not_as_declared_is_named(
    world: World, columns: dict[str, pa.DataType], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        world.opened(pa.schema(columns)).version()


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ("1.239", pa.decimal128(9, 2), "'n' of the table 'items' is not decimal"),
        ("'NaN'", pa.decimal128(9, 2), "'n' of the table 'items' is not decimal"),
    ],
)
def test_a_value_that_would_be_cut_is_refused(
    world: World, value: str, kind: pa.DataType, said: str
) -> None:
    world.execute("CREATE TABLE {s}.numbers (n numeric)")
    world.execute(f"INSERT INTO {{s}}.numbers VALUES ({value})")
    with pytest.raises(Refused, match=said):
        world.opened(pa.schema([("n", kind)]), table="numbers").version()


def test_an_infinite_time_is_refused(world: World) -> None:
    world.execute("CREATE TABLE {s}.times (at timestamptz)")
    world.execute("INSERT INTO {s}.times VALUES ('infinity'), (now())")
    with pytest.raises(Refused, match="1 rows of the table 'items' have a time that is infinite"):
        world.opened(pa.schema([("at", US)]), table="times").version()


def test_a_table_that_is_dropped_is_waited_for(world: World) -> None:
    table = world.opened()
    table.version()
    world.execute("DROP TABLE {s}.items")
    with pytest.raises(StoreUnavailable, match="there is no PostgreSQL table for 'items'"):
        table.version()
    world.execute("CREATE TABLE {s}.items (id int, name text)")
    assert table.version().rows == 0
    table.close()


def test_a_role_without_rights_is_told(world: World) -> None:
    role = f"nobody_{world.schema}"
    world.execute(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(LaminaError, match="permission denied"):
        world.opened(user=role).version()


def test_options_that_would_not_work_are_refused(world: World) -> None:
    with pytest.raises(BadPipeline, match="the table 'items' has a password in plain text"):
        world.opened(password="x")
    with pytest.raises(BadPipeline, match="the table 'items' has the option 'mode'"):
        world.opened(mode="append")
