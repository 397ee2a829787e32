"""One server of each kind for the whole run, and a fresh corner of it for every test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lamina.store import LocalStore, MemoryStore, RemoteStore, Store, open_store
from tests.servers import (
    AzureServer,
    GcsServer,
    S3Server,
    azurite,
    azurite_missing,
    gcs,
    gcs_missing,
    ministack,
    rclone,
)

BACKENDS = [
    "memory",
    "local",
    pytest.param("ministack", marks=pytest.mark.server),
    pytest.param("ministack-raw", marks=pytest.mark.server),
    pytest.param("seaweedfs", marks=pytest.mark.server),
    pytest.param("azurite", marks=pytest.mark.server),
    pytest.param("gcs", marks=pytest.mark.server),
]
_corners = itertools.count()


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of store, and how to open the same place in it once more."""

    name: str
    open: Callable[[], Store]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    name = request.param
    if name == "memory":
        store = MemoryStore()
        return Backend(name, lambda: store)
    if name == "local":
        return Backend(name, lambda: LocalStore(tmp_path / "store"))
    server: S3Server | AzureServer | GcsServer = request.getfixturevalue(
        f"{name.split('-')[0]}_server"
    )
    url, options = server.url(f"corner-{next(_corners)}"), server.options()
    if name.endswith("-raw"):
        return Backend(name, lambda: RemoteStore(url, **options))
    return Backend(name, lambda: open_store(url, **options))


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


@pytest.fixture(scope="session")
def ministack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    if reason := azurite_missing():
        pytest.skip(reason)
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    if reason := gcs_missing():
        pytest.skip(reason)
    with gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server
