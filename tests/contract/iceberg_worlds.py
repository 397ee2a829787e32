"""Worlds of the Iceberg sink: on this disk, on S3 with an SQL catalog, over a REST catalog."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.iceberg.catalog import TableAddress, TableCatalog
from lamina.connectors.iceberg.sink import IcebergSink
from lamina.engine.ports import Output, Sink
from tests.contract.sinks import APPENDED, Hook, Shown, World, by_epoch, nothing
from tests.servers import S3Server
from tests.servers.relay import Relay, relay

TABLE = ("shop", "orders")
REST_WAREHOUSE = "lamina-iceberg"  # tests/conftest.py makes it


def local_address(folder: Path, table: tuple[str, ...] = TABLE) -> TableAddress:
    file = folder / "catalog.db"
    properties = {"uri": f"sqlite:///{file}", "warehouse": f"file://{folder}"}
    return TableAddress("sql", "default", properties, table, sqlite=file)


def s3_properties(port: int) -> dict[str, str]:
    return {
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.access-key-id": "test",
        "s3.secret-access-key": "testtest",
        "s3.region": "us-east-1",
    }


@dataclass
class IcebergWorld:
    """A table; readers use pyiceberg as it is, without our files and settings."""

    address: TableAddress
    exactly_once: bool = True
    output: Output = APPENDED

    def open(self, hook: Hook = nothing) -> Sink:
        return IcebergSink("out", TableCatalog(self.address, hook), output=self.output)

    def open_without_stream(self) -> Sink:
        return IcebergSink("out", TableCatalog(self.address))

    def shown(self) -> Shown:
        return by_epoch(self.rows()["v"])

    def rows(self) -> dict[str, list[Any]]:
        table = self.read()
        return {"v": []} if table is None else table.scan().to_arrow().to_pydict()

    def read(self) -> Any:
        """The table; None if there is none."""
        catalog = TableCatalog(self.reading)
        try:
            return catalog.load()
        finally:
            catalog.close()

    @property
    def reading(self) -> TableAddress:
        return self.address


@dataclass
class ServedIcebergWorld(IcebergWorld):
    """The same, through a proxy that can go away; readers go around it."""

    proxy: Relay = field(kw_only=True)
    direct: TableAddress = field(kw_only=True)

    @property
    def reading(self) -> TableAddress:
        return self.direct

    def down(self) -> AbstractContextManager[None]:
        return self.proxy.down()


def local_worlds(_: pytest.FixtureRequest, folder: Path) -> Callable[[], World]:
    numbers = count()
    return lambda: IcebergWorld(local_address(folder / f"warehouse-{next(numbers)}"))


def s3_worlds(request: pytest.FixtureRequest, folder: Path) -> Callable[[], World]:
    server: S3Server = request.getfixturevalue("seaweedfs_server")
    proxy = _proxy(request, server.port)
    numbers = count()

    def make() -> World:
        own = folder / f"catalog-{next(numbers)}"
        warehouse = server.url(f"iceberg/{folder.name}/{own.name}")
        address = local_address(own)
        through, direct = (
            replace(address, properties={**address.properties, "warehouse": warehouse, **s3})
            for s3 in (s3_properties(proxy.port), s3_properties(server.port))
        )
        return ServedIcebergWorld(through, proxy=proxy, direct=direct)

    return make


def rest_worlds(request: pytest.FixtureRequest, folder: Path) -> Callable[[], World]:
    server: S3Server = request.getfixturevalue("iceberg_rest_server")
    proxy = _proxy(request, server.iceberg_port)
    numbers = count()

    def make() -> World:
        name = f"{folder.name}_{next(numbers)}".lower().replace("-", "_")[-60:]
        through, direct = (
            TableAddress("rest", "default", rest_properties(port, server), (name, "orders"))
            for port in (proxy.port, server.iceberg_port)
        )
        return ServedIcebergWorld(through, proxy=proxy, direct=direct)

    return make


def rest_properties(port: int, server: S3Server) -> dict[str, str]:
    return {
        "uri": f"http://127.0.0.1:{port}",
        "warehouse": f"s3://{REST_WAREHOUSE}",
        "credential": "test:testtest",
        "oauth2-server-uri": f"http://127.0.0.1:{port}/v1/oauth/tokens",
        **s3_properties(server.port),
    }


def _proxy(request: pytest.FixtureRequest, target_port: int) -> Relay:
    running = relay(target_port)
    request.addfinalizer(lambda: running.__exit__(None, None, None))
    return running.__enter__()
