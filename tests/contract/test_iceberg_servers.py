"""The Iceberg sink and servers that lose answers, repeat requests, or refuse them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.iceberg.catalog import TableAddress, TableCatalog
from lamina.connectors.iceberg.sink import IcebergSink
from lamina.errors import AccessDenied, Fenced, LaminaError, StoreUnavailable
from tests.contract.iceberg_worlds import (
    IcebergWorld,
    local_address,
    rest_properties,
    s3_properties,
)
from tests.contract.sinks import APPENDED, PIPELINE, ROWS, Output
from tests.servers import PostgresServer, S3Server
from tests.servers.fault_proxy import FaultProxy, Trouble, fault_proxy
from tests.servers.postgres import ADMIN, PASSWORD_USER
from tests.servers.process import free_port

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(iceberg_rest_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(iceberg_rest_server.iceberg_port) as proxy:
        yield proxy


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"servers_{abs(hash(request.node.nodeid))}"


def address(port: int, server: S3Server, namespace: str) -> TableAddress:
    return TableAddress("rest", "default", rest_properties(port, server), (namespace, "orders"))


@pytest.mark.parametrize("trouble", ["cut after", "503 after", "twice", "cut before", "503 before"])
def test_a_commit_whose_answer_is_lost_or_another_ones_is_done_once(
    trouble: Trouble,
    *,
    proxy: FaultProxy,
    iceberg_rest_server: S3Server,
    namespace: str,
    tmp_path: Path,
) -> None:
    """`twice`: the second copy of the request is refused, and the first has been done.

    pyiceberg then deletes the manifests of the commit, and nobody can read the table any more.
    """
    output = Output(tmp_path / "home")
    sink = IcebergSink(
        "out",
        TableCatalog(address(proxy.port, iceberg_rest_server, namespace)),
        output=APPENDED,
    )
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    proxy.plan("/orders", trouble, method="POST")
    try:
        sink.publish(output.publication(3, ROWS[3]))
        failed = False
    except StoreUnavailable:
        failed = True
    assert not proxy.troubles, "the fault never struck"
    assert failed == trouble.endswith("before")
    sink.publish(output.publication(3, ROWS[3]))
    world = IcebergWorld(address(iceberg_rest_server.iceberg_port, iceberg_rest_server, namespace))
    assert world.shown() == {1: [1, 2, 3], 3: [4]}
    assert sink.position().point == output.publication(3).point


def refused(address: TableAddress) -> LaminaError:
    sink = IcebergSink("out", TableCatalog(address), output=APPENDED)
    with pytest.raises(LaminaError) as raised:
        sink.position()
    sink.close()
    return raised.value


def test_a_wrong_password_is_said_before_anything_is_claimed(
    iceberg_rest_server: S3Server, namespace: str
) -> None:
    good = address(iceberg_rest_server.iceberg_port, iceberg_rest_server, namespace)
    wrong = {**good.properties, "credential": "test:not-the-one"}
    error = refused(replace(good, properties=wrong, secrets=("not-the-one",)))
    assert isinstance(error, AccessDenied)
    assert "not-the-one" not in str(error)


def test_a_server_that_is_not_there_is_said(iceberg_rest_server: S3Server, namespace: str) -> None:
    error = refused(address(free_port(), iceberg_rest_server, namespace))
    assert isinstance(error, StoreUnavailable)
    assert namespace in error.where


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"s3.secret-access-key": "not-the-one"}, AccessDenied),
        ({"s3.endpoint": "http://127.0.0.1:1", "s3.connect-timeout": "1"}, StoreUnavailable),
    ],
)
def test_an_object_store_that_refuses_or_is_not_there_is_said(
    changed: dict[str, str], kind: type[LaminaError], *, seaweedfs_server: S3Server, tmp_path: Path
) -> None:
    local = local_address(tmp_path / "catalog")
    properties = {
        **local.properties,
        "warehouse": seaweedfs_server.url(f"iceberg/{tmp_path.name}"),
        **s3_properties(seaweedfs_server.port),
    }
    good = replace(local, properties=properties)
    IcebergSink("out", TableCatalog(good), output=APPENDED).fence(1, PIPELINE)
    wrong = replace(good, properties={**properties, **changed}, secrets=("not-the-one",))
    error = refused(wrong)
    assert isinstance(error, kind)
    assert "not-the-one" not in str(error)


# a catalog in PostgreSQL


@pytest.fixture
def database(postgres_server: PostgresServer, namespace: str) -> str:
    name = f"catalog_{namespace}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return name


def in_postgres(
    server: PostgresServer, database: str, folder: Path, user: str = ADMIN
) -> TableAddress:
    uri = f"postgresql+psycopg://{user}@127.0.0.1:{server.port}/{database}"
    properties = {"uri": uri, "warehouse": f"file://{folder / 'warehouse'}"}
    return TableAddress("sql", "default", properties, ("shop", "orders"))


def test_a_catalog_in_postgres_that_is_started_again(
    postgres_server: PostgresServer, database: str, tmp_path: Path
) -> None:
    output, place = Output(tmp_path / "home"), in_postgres(postgres_server, database, tmp_path)
    sink = IcebergSink("out", TableCatalog(place), output=APPENDED)
    assert sink.position().point is None
    there = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert postgres_server.execute(there, dbname=database) == [(0,)], "asking makes nothing"
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    with postgres_server.down(), pytest.raises(StoreUnavailable):
        sink.publish(output.publication(3, ROWS[3]))
    sink.publish(output.publication(3, ROWS[3]))
    new = IcebergSink("out", TableCatalog(place), output=APPENDED)
    new.fence(2, PIPELINE)
    with pytest.raises(Fenced):
        sink.publish(output.publication(4, ROWS[4]))
    assert IcebergWorld(place).shown() == {1: [1, 2, 3], 3: [4]}
    for each in (sink, new, new):
        each.close()


def test_a_wrong_password_or_database_of_the_catalog_is_said(
    postgres_server: PostgresServer, database: str, tmp_path: Path
) -> None:
    wrong = in_postgres(postgres_server, database, tmp_path, f"{PASSWORD_USER}:not-the-one")
    error = refused(replace(wrong, secrets=("not-the-one",)))
    assert isinstance(error, AccessDenied)
    assert "not-the-one" not in str(error)
    assert "no_such" in str(refused(in_postgres(postgres_server, "no_such", tmp_path)))
