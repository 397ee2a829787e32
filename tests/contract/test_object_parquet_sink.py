"""Parquet in real object stores, opened as a pipeline opens it: bad options, and a reader."""

from __future__ import annotations

import importlib.util
from io import StringIO
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from lamina.connectors import parquet
from lamina.connectors.opening import open_sink
from lamina.engine.ports import Sink
from lamina.errors import AccessDenied, LaminaError, StoreError, StoreUnavailable
from lamina.pipeline.model import DeclaredSink, Option
from lamina.store.retry import RetryPolicy
from lamina.workspace.notes import LocalNotes
from tests.contract.sinks import PIPELINE, ROWS, Output
from tests.servers import AzureServer, S3Server
from tests.servers.azure import ACCOUNT, ACCOUNT_KEY
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PATIENCE", RetryPolicy(budget_seconds=0.3))


def opened(folder: Path, path: str, **options: str) -> Sink:
    given = {name: Option("${SOMETHING}", value) for name, value in options.items()}
    sink = DeclaredSink("out", "n", "parquet", {"path": Option.plain(path), **given})
    return open_sink(sink, folder, notes=LocalNotes(folder / "home"), out=StringIO())


def on_s3(server: S3Server, **changed: str) -> dict[str, str]:
    return {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        **changed,
    }


def rows_of(client: Any) -> list[int]:
    path = Path(__file__).parents[2] / "docs/read_parquet_sink.py"
    spec = importlib.util.spec_from_file_location("read_parquet_sink", path)
    assert spec is not None
    assert spec.loader is not None
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    rows: list[int] = reader.read(client)["v"].to_pylist()
    return rows


def test_what_is_published_on_s3_is_read_by_the_script_of_the_docs(
    seaweedfs_server: S3Server, tmp_path: Path
) -> None:
    output, url = Output(tmp_path / "staged"), "s3://bucket1/published here/ü'quoted'"
    sink = opened(tmp_path, url, **on_s3(seaweedfs_server))
    sink.fence(1, PIPELINE)
    for epoch, rows in ROWS.items():
        sink.publish(output.publication(epoch, rows))
    options = seaweedfs_server.options()
    client = obstore.store.S3Store("bucket1", prefix="published here/ü'quoted'", **options)
    assert rows_of(client) == [1, 2, 3, 4, 5, 6, 7]
    again = opened(tmp_path, url, **on_s3(seaweedfs_server))
    assert again.position() == sink.position()
    assert SECRET_KEY not in repr(sink.__dict__)


def test_what_is_published_on_azure_is_read_by_the_script_of_the_docs(
    azurite_server: AzureServer, tmp_path: Path
) -> None:
    output = Output(tmp_path / "staged")
    endpoint = f"http://127.0.0.1:{azurite_server.port}/{ACCOUNT}"
    options = {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
    sink = opened(tmp_path, "az://container1/published", **options)
    sink.fence(1, PIPELINE)
    for epoch, rows in ROWS.items():
        sink.publish(output.publication(epoch, rows))
    sink.fence(2, PIPELINE)
    given = azurite_server.options()
    client = obstore.store.AzureStore("container1", prefix="published", **given)
    assert rows_of(client) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("path", "changed", "kind"),
    [
        ("s3://bucket1/x", {"secret_access_key": "wrong"}, AccessDenied),
        ("s3://bucket1/x", {"access_key_id": "nobody"}, AccessDenied),
        ("s3://bucket1/x", {"endpoint": "http://127.0.0.1:1"}, StoreUnavailable),
        ("s3://no-such-bucket/x", {}, StoreError),
    ],
)
def test_what_cannot_work_is_said_when_the_position_is_asked_for(
    path: str,
    changed: dict[str, str],
    kind: type[LaminaError],
    *,
    seaweedfs_server: S3Server,
    tmp_path: Path,
) -> None:
    sink = opened(tmp_path, path, **on_s3(seaweedfs_server, **changed))
    with pytest.raises(kind) as raised:
        sink.position()
    assert path in raised.value.where
    assert SECRET_KEY not in str(raised.value)
    assert "wrong" not in str(raised.value)
