"""Delta tables as the contract of sinks sees them: in a folder, and on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lamina.connectors.delta.place import LocalPlace, RemotePlace
from lamina.connectors.delta.schema import Wanted
from lamina.connectors.delta.sink import DeltaSink
from lamina.connectors.keyed import WriteMode, Writing
from lamina.engine.ports import Sink
from tests.contract.sinks import Hook, Shown, by_epoch, nothing
from tests.servers import S3Server
from tests.servers.gate import Gate
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY

WANTED = Wanted(pa.schema([pa.field("v", pa.int64())]), (), Writing(WriteMode.APPEND))
_tables = count()


@dataclass
class DeltaWorld:
    """A table in a folder of this machine."""

    folder: Path
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return DeltaSink("out", LocalPlace(self.folder, hook), WANTED, hook=hook)

    def open_without_stream(self) -> Sink:
        return DeltaSink("out", LocalPlace(self.folder, nothing), None)

    def shown(self) -> Shown:
        return by_epoch(values_in(str(self.folder)))


def s3_options(port: int) -> dict[str, str]:
    """The options of a pipeline."""
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }


@dataclass
class S3DeltaWorld:
    """A table on SeaweedFS."""

    gate: Gate
    url: str
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return DeltaSink("out", self._place(hook), WANTED, hook=hook)

    def shown(self) -> Shown:
        return by_epoch(values_in(self.url, self._place(nothing).options))

    def down(self) -> AbstractContextManager[None]:
        return self.gate.shut()

    def _place(self, hook: Hook) -> RemotePlace:
        return RemotePlace(self.url, hook, s3_options(self.gate.port))


def delta_on_s3(request: pytest.FixtureRequest) -> Callable[[], S3DeltaWorld]:
    server: S3Server = request.getfixturevalue("seaweedfs_server")
    gate = Gate(server.port)
    request.addfinalizer(gate.close)
    return lambda: S3DeltaWorld(gate, server.url(f"delta-{next(_tables)}"))


def values_in(uri: str, options: Mapping[str, str] | None = None) -> list[int]:
    """What a reader of the table gets; nothing if there is none yet."""
    try:
        table = DeltaTable(uri, storage_options=dict(options) if options else None)
    except TableNotFoundError:
        return []
    values: list[int] = table.to_pyarrow_table()["v"].to_pylist()
    return values
