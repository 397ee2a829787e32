"""Delta tables as the contract of sinks sees them: in a folder, and on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lamina.connectors.delta_place import LocalPlace, RemotePlace
from lamina.connectors.delta_schema import Wanted
from lamina.connectors.delta_sink import DeltaSink
from lamina.connectors.keyed import WriteMode, Writing
from lamina.engine.ports import Sink
from tests.contract.sinks import Hook, Shown, by_epoch, nothing
from tests.servers import S3Server
from tests.servers.fault_proxy import fault_proxy
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

    def shown(self) -> Shown:
        return by_epoch(values_in(str(self.folder)))


@dataclass
class S3Gate:
    """A way to the server that can be shut."""

    server: S3Server
    held: ExitStack = field(default_factory=ExitStack)
    port: int = 0

    def open(self) -> None:
        self.port = self.held.enter_context(fault_proxy(self.server.port, self.port)).port

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.held.close()
        try:
            yield
        finally:
            self.open()

    @property
    def given(self) -> dict[str, str]:
        """The options of a pipeline."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": REGION,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }


@dataclass
class S3DeltaWorld:
    """A table on SeaweedFS."""

    gate: S3Gate
    url: str
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return DeltaSink("out", RemotePlace(self.url, hook, self.gate.given), WANTED, hook=hook)

    def shown(self) -> Shown:
        return by_epoch(
            values_in(self.url, RemotePlace(self.url, nothing, self.gate.given).options)
        )

    @contextmanager
    def down(self) -> Iterator[None]:
        with self.gate.shut():
            yield


def delta_on_s3(request: pytest.FixtureRequest) -> Callable[[], S3DeltaWorld]:
    gate = S3Gate(request.getfixturevalue("seaweedfs_server"))
    gate.open()
    request.addfinalizer(gate.held.close)
    return lambda: S3DeltaWorld(gate, gate.server.url(f"delta-{next(_tables)}"))


def values_in(uri: str, options: Mapping[str, str] | None = None) -> list[int]:
    """What a reader of the table gets; nothing if there is none yet."""
    try:
        table = DeltaTable(uri, storage_options=dict(options) if options else None)
    except TableNotFoundError:
        return []
    values: list[int] = table.to_pyarrow_table()["v"].to_pylist()
    return values
