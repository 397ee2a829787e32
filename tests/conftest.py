"""For all tests: no deadline for properties, because machines differ; and one server of each kind.

A server is started by the first test that asks for it, once for each worker, and killed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers import (
    KafkaServer,
    PostgresServer,
    S3Server,
    kafka,
    kafka_missing,
    postgres,
    postgres_missing,
    seaweedfs,
    table_bucket,
)
from tests.servers.kafka_topics import Topics
from tests.servers.mariadb import MariaServer, mariadb, mariadb_missing
from tests.support.memory import base_in_memory, drop
from tests.support.order import rank

settings.register_profile("lamina", deadline=None)
settings.load_profile("lamina")


IN_MEMORY = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # of xdist: the order is that of tests/support/order.py
    if config.option.basetemp is None and (base := base_in_memory()):
        config.option.basetemp = config.stash[IN_MEMORY] = base


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The folders of tests that have failed stay until the next run."""
    if exitstatus == pytest.ExitCode.OK and IN_MEMORY in session.config.stash:
        drop(session.config.stash[IN_MEMORY])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For workers only: a person who runs the tests one by one wants the quick ones first."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: rank(item.nodeid.partition("::")[0]))


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest_server(seaweedfs_server: S3Server) -> S3Server:
    """SeaweedFS with an Iceberg REST catalog over its bucket `lamina-iceberg`."""
    table_bucket(seaweedfs_server, "lamina-iceberg")
    return seaweedfs_server


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    if reason := kafka_missing():
        pytest.skip(reason)
    with kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    if reason := postgres_missing():
        pytest.skip(reason)
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaServer]:
    if reason := mariadb_missing():
        pytest.skip(reason)
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def topics(kafka_server: KafkaServer) -> Topics:
    return Topics(kafka_server)
