"""The list of all sinks that the contract is asked of. A new kind needs a row here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from lamina.store import RemoteStore, open_store
from tests.contract.delta_world import DeltaWorld, delta_on_s3
from tests.contract.iceberg_worlds import local_worlds, rest_worlds, s3_worlds
from tests.contract.kafka_world import make_kafka
from tests.contract.object_worlds import FunctionWorld, ObjectParquetWorld
from tests.contract.postgres_world import PostgresWorld
from tests.contract.sinks import (
    ConsoleWorld,
    LocalParquetWorld,
    MemoryWorld,
    ParquetWorld,
    ToyWorld,
    World,
)
from tests.servers import PostgresServer

SLOW_CALLS = 4
MakeWorld = Callable[[], World]
"""Each call gives a world of its own, with nothing in it."""


@dataclass(frozen=True, slots=True)
class Row:
    kind: str | None  # in the registry
    make: Callable[[pytest.FixtureRequest, Path], MakeWorld]
    is_server: bool = False  # its worlds are `ServerWorld`
    is_slow: bool = False  # a call takes tens of milliseconds, as it does on most servers

    def calls(self, count: int) -> range:
        """Those at which the suite cuts off: all, or of slow ones some, evenly spread.

        LAMINA_FAULTS=long: all of them, whatever it takes.
        """
        is_short = (self.is_server or self.is_slow) and os.environ.get("LAMINA_FAULTS") != "long"
        return range(1, count + 1, max(count // SLOW_CALLS, 1) if is_short else 1)


def _local_parquet(_: pytest.FixtureRequest, folder: Path) -> MakeWorld:
    numbers = count()
    return lambda: LocalParquetWorld(folder / f"out-{next(numbers)}")


def _parquet_on_s3(request: pytest.FixtureRequest, folder: Path) -> MakeWorld:
    server = request.getfixturevalue("seaweedfs_server")
    numbers = count()
    corner = f"sinks/{folder.name}"
    nobody = RemoteStore(server.url(corner), **server.options(endpoint="http://127.0.0.1:1"))
    return lambda: ObjectParquetWorld(
        open_store(server.url(f"{corner}/{next(numbers)}"), **server.options()), nobody
    )


def _postgres(request: pytest.FixtureRequest, _: Path) -> MakeWorld:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: PostgresWorld(server, server.new_schema())


def _delta(_: pytest.FixtureRequest, folder: Path) -> MakeWorld:
    numbers = count()
    return lambda: DeltaWorld(folder / f"delta-{next(numbers)}")


WORLDS: Mapping[str, Row] = {
    "memory": Row(None, lambda *_: MemoryWorld),
    "toy": Row(None, lambda *_: ToyWorld),
    "parquet": Row("parquet", lambda *_: ParquetWorld),
    "parquet on a disk": Row("parquet", _local_parquet),
    "parquet in a store": Row("parquet", lambda *_: ObjectParquetWorld),
    "parquet on S3": Row("parquet", _parquet_on_s3, is_server=True),
    "console": Row("console", lambda *_: ConsoleWorld),
    "function": Row("function", lambda *_: FunctionWorld),
    "postgres": Row("postgres", _postgres, is_server=True),
    "iceberg": Row("iceberg", local_worlds, is_slow=True),
    "iceberg on S3": Row("iceberg", s3_worlds, is_server=True),
    "iceberg over REST": Row("iceberg", rest_worlds, is_server=True),
    "delta": Row("delta", _delta, is_slow=True),
    "delta on S3": Row("delta", lambda request, _: delta_on_s3(request), is_server=True),
    "kafka": Row("kafka", make_kafka, is_server=True),
}
SERVERS = [name for name, row in WORLDS.items() if row.is_server]


def params(names: list[str]) -> list[ParameterSet]:
    """For `parametrize`: those with a server are marked."""
    return [
        pytest.param(name, marks=[pytest.mark.server] if WORLDS[name].is_server else [])
        for name in names
    ]
