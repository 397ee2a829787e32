"""Delta and Iceberg tables as reference data: which version is read, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo

from lamina.connectors.kinds import TableContext
from lamina.connectors.opening_tables import check_table
from lamina.connectors.registry import table_kind
from lamina.engine.model import TableVersion
from lamina.engine.ports import Table
from lamina.errors import BadPipeline, Refused, StoreUnavailable
from lamina.pipeline.model import Column, DeclaredTable, Option

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])
DDL = (Column("id", "BIGINT"), Column("name", "STRING"), Column("day", "DATE"))


def rows(*ids: int, name: str = "a") -> pa.Table:
    columns = {"id": ids, "name": [name] * len(ids), "day": [19_000] * len(ids)}
    return pa.table(columns, schema=COLUMNS)


@dataclass
class World:
    """A table outside, and how somebody else writes to it."""

    root: Path

    def opened(self, columns: pa.Schema = COLUMNS, **options: str) -> Table:
        given = {**self.options(), **options}
        table = DeclaredTable(
            "items", DDL, self.format, {name: Option.plain(each) for name, each in given.items()}
        )
        context = replace(
            check_table(table, self.root, file="p.sql"),
            scratch=self.root / "home" / "copies",
            columns=columns,
        )
        assert isinstance(context, TableContext)
        kind = table_kind(self.format)
        assert kind is not None
        return kind.open(context)

    format = ""

    def options(self) -> Mapping[str, str]: ...

    def append(self, table: pa.Table) -> None: ...

    def delete(self, number: int) -> None: ...

    def drop(self) -> None: ...


class Delta(World):
    format = "delta"

    @property
    def path(self) -> str:
        return str(self.root / "items")

    def options(self) -> Mapping[str, str]:
        return {"path": "items"}

    def append(self, table: pa.Table) -> None:
        write_deltalake(self.path, table, mode="append", partition_by=["day"])

    def delete(self, number: int) -> None:
        DeltaTable(self.path).delete(f"id = {number}")

    def drop(self) -> None:
        shutil.rmtree(self.path)


class Iceberg(World):
    format = "iceberg"

    def options(self) -> Mapping[str, str]:
        return {"table": "shop.items", "catalog.warehouse": "lake"}

    @property
    def catalog(self) -> SqlCatalog:
        folder = self.root / "lake"
        folder.mkdir(exist_ok=True)
        uri = f"sqlite:///{folder / 'catalog.db'}"
        return SqlCatalog("default", uri=uri, warehouse=f"file://{folder}")

    def append(self, table: pa.Table) -> None:
        self.catalog.create_namespace_if_not_exists("shop")
        made = self.catalog.create_table_if_not_exists("shop.items", COLUMNS)
        made.append(table)

    def delete(self, number: int) -> None:
        self.catalog.load_table("shop.items").delete(EqualTo("id", number))

    def drop(self) -> None:
        self.catalog.drop_table("shop.items")


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    make: Callable[[Path], World] = request.param
    return make(tmp_path)


def ids(version: TableVersion) -> list[Any]:
    (file,) = version.files
    return sorted(pq.read_table(file)["id"].to_pylist())


def test_each_change_of_the_table_is_a_version(world: World) -> None:
    world.append(rows(1, 2))
    table = world.opened()
    first = table.version()
    assert table.version() is first
    world.append(rows(3, name="ü"))
    second = table.version()
    assert ids(second) == [1, 2, 3]
    world.delete(1)
    third = table.version()
    assert ids(third) == [2, 3]
    assert len({str(each.identity) for each in (first, second, third)}) == 3
    read = pq.read_table(third.files[0])
    assert read.schema.equals(COLUMNS)
    assert sorted(read["name"].to_pylist()) == ["a", "ü"]
    assert read["day"].to_pylist() == rows(2, 3)["day"].to_pylist()
    table.close()


def test_versions_rise_and_are_named_as_their_system_names_them(world: World) -> None:
    world.append(rows(1))
    table = world.opened()
    first = table.version()
    world.append(rows(2))
    second = table.version()
    assert int(first.identity[first.rises]) < int(second.identity[second.rises])
    assert set(first.identity) in (
        {"version", "id"},
        {"snapshot_id", "sequence_number", "table_uuid"},
    )


def test_a_table_that_was_made_again_is_another_version(world: World) -> None:
    world.append(rows(1))
    table = world.opened()
    first = table.version()
    world.drop()
    with pytest.raises(StoreUnavailable, match=r"there is no .* table for 'items'"):
        table.version()
    world.append(rows(7))
    second = table.version()
    assert ids(second) == [7]
    assert second.identity != first.identity


def test_a_table_that_is_not_there_is_told(world: World) -> None:
    with pytest.raises(StoreUnavailable, match=r"there is no .* table for 'items'"):
        world.opened().version()


def test_a_version_with_files_that_are_gone_is_waited_for(world: World) -> None:
    world.append(rows(1))
    for file in world.root.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(StoreUnavailable, match="was removed while it was read"):
        world.opened().version()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": pa.int32()}, "the column 'id' of the table 'items' is int64, and int32"),
        ({"name": pa.int64()}, "'name' of the table 'items' is .*string, and int64"),
        ({"missing": pa.string()}, "has 0 columns that are called 'missing'"),
        ({"day": pa.timestamp("us", "UTC")}, "'day' of the table 'items' is date32"),
    ],
)
def test_a_column_that_is_not_as_declared_is_named(
    world: World, columns: dict[str, pa.DataType], said: str
) -> None:
    world.append(rows(1))
    with pytest.raises(Refused, match=said):
        world.opened(pa.schema(columns)).version()


def test_names_go_without_case_and_only_what_is_declared_is_read(world: World) -> None:
    world.append(rows(4))
    (file,) = world.opened(pa.schema([("ID", pa.int64())])).version().files
    assert pq.read_table(file).to_pydict() == {"ID": [4]}


def test_keys_are_checked(world: World) -> None:
    world.append(rows(4, 4))
    with pytest.raises(Refused, match="2 rows of the table 'items' have the key id = 4"):
        world.opened(keys="id").version()


def test_options_are_those_of_its_kind(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="the table 'items' has the option 'header'"):
        Delta(tmp_path).opened(header="true")
    with pytest.raises(BadPipeline, match="the table 'items' has the option 'region'"):
        Delta(tmp_path).opened(region="x")
    with pytest.raises(BadPipeline, match="the table 'items' has the table 'items'"):
        Iceberg(tmp_path).opened(table="items")
