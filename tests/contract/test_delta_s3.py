"""A Delta table on a real S3 server: wrong credentials, lost answers, keys and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lamina.connectors.delta.place import RemotePlace
from lamina.errors import AccessDenied, LaminaError, StoreError, StoreUnavailable, UnsafeStore
from tests.contract.delta_world import s3_options
from tests.contract.sinks import PIPELINE
from tests.contract.test_delta_sink import MONDAY, TUESDAY
from tests.servers import S3Server, rclone
from tests.servers.fault_proxy import FaultProxy, fault_proxy
from tests.servers.process import free_port
from tests.servers.s3 import SECRET_KEY
from tests.support.delta_tables import DeltaShop, rows

pytestmark = pytest.mark.server
_tables = count()


class S3Shop(DeltaShop):
    """The same on a server."""

    def read(self) -> pa.Table:
        options = {
            k: v
            for k, v in self.options.items()
            if k != "path" and k not in ("keys", "partition_by")
        }
        place = RemotePlace(self.options["path"], lambda _: None, options)
        return DeltaTable(place.uri, storage_options=place.options).to_pyarrow_table()


def shop_at(port: int, root: Path, server: S3Server, **options: str) -> S3Shop:
    url = server.url(f"delta-s3-{next(_tables)}/deep/table")
    return S3Shop(root, options={"path": url, **s3_options(port), **options})


@pytest.fixture
def shop(seaweedfs_server: S3Server, tmp_path: Path) -> S3Shop:
    return shop_at(seaweedfs_server.port, tmp_path, seaweedfs_server)


@pytest.fixture
def proxy(seaweedfs_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(seaweedfs_server.port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"secret_access_key": "hush-hush"}, AccessDenied),
        ({"access_key_id": "nobody"}, AccessDenied),
        ({"path": "s3://no-such-bucket/table"}, StoreError),
    ],
)
def test_what_is_wrong_with_the_way_in_is_said_before_anything_is_claimed(
    shop: S3Shop, changed: dict[str, str], kind: type[LaminaError]
) -> None:
    with pytest.raises(kind) as raised:
        shop.open(**changed).position()
    assert "hush" not in str(raised.value)
    assert SECRET_KEY not in str(raised.value)
    assert raised.value.where.startswith("s3://")


def test_a_server_that_is_not_there_is_unavailable_and_soon(shop: S3Shop) -> None:
    with pytest.raises(StoreUnavailable):
        shop.open(endpoint=f"http://127.0.0.1:{free_port()}").position()


def test_credentials_of_the_environment_are_enough(
    shop: S3Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(shop.options)
    names = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}
    names |= {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    for option, variable in names.items():
        monkeypatch.setenv(variable, given.pop(option))
    shop.options = given
    sink = shop.open()
    sink.fence(1, PIPELINE)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert shop.read().num_rows == 1


def test_rows_by_key_in_partitions(shop: S3Shop) -> None:
    shop.options = {**shop.options, "keys": "k", "partition_by": "day", "compact": "2"}
    sink = shop.open()
    sink.fence(1, PIPELINE)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"), (2, MONDAY, "b"))))
    sink.publish(shop.publication(2, rows((2, TUESDAY, "c"), (3, None, "d"))))
    sink.publish(shop.publication(3, rows((3, TUESDAY, "e"))))
    assert shop.listed() == [(1, MONDAY, "a"), (2, TUESDAY, "c"), (3, TUESDAY, "e")]


@pytest.mark.parametrize("trouble", ["cut after", "503 after", "cut before", "503 before"])
@pytest.mark.parametrize("options", [{}, {"keys": "k"}])
def test_an_answer_that_is_lost_at_the_commit_doubles_and_loses_nothing(
    proxy: FaultProxy,
    seaweedfs_server: S3Server,
    tmp_path: Path,
    trouble: Any,
    options: dict[str, str],
) -> None:
    shop = shop_at(proxy.port, tmp_path, seaweedfs_server, **options)
    sink = shop.open()
    sink.fence(1, PIPELINE)
    sink.publish(shop.publication(1, rows((1, MONDAY, "a"))))
    publication = shop.publication(2, rows((1, MONDAY, "b"), (2, MONDAY, "c")))
    for times in (1, 3, 6):
        proxy.plan(f"{2:020d}.json", *[trouble] * times)
        try:
            sink.publish(publication)
        except StoreError:
            continue
        break
    proxy.plan("")
    sink.publish(publication)
    ours = [(1, MONDAY, "b"), (2, MONDAY, "c")]
    assert shop.listed() == (ours if options else [(1, MONDAY, "a"), *ours])
    assert shop.open().position().point == publication.point


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    """Two processes would both believe that a version is theirs."""
    folder = tmp_path / "rclone"
    folder.mkdir()
    with rclone(folder) as server:
        shop = shop_at(server.port, tmp_path, server)
        with pytest.raises(UnsafeStore):
            shop.open().fence(1, PIPELINE)
