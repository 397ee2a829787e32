"""The S3 server goes away while a pipeline reads from it: it waits, then goes on exactly."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.object_tasks import PIECE_BYTES
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import StoreUnavailable
from lamina.running.control import Status
from lamina.store import RemoteStore
from tests.servers import S3Server
from tests.servers.gate import Gate
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY, seaweedfs
from tests.spark.projects import Project, Rows

pytest.importorskip("pyspark")
pytestmark = pytest.mark.server

_corners = count()
SQL = """
CREATE SOURCE s (a BIGINT, b STRING) USING {kind} OPTIONS (
  path '{path}', endpoint 'http://127.0.0.1:{port}', region '{region}', list_every '1 second',
  access_key_id '${{S3_KEY}}', secret_access_key '${{S3_SECRET}}');
CREATE STREAM n AS SELECT a, length(b) AS l FROM s;
CREATE SINK o FROM n USING parquet OPTIONS (path 'out');
"""


@dataclass
class Outage:
    """A pipeline behind a gate that is shut at one point, and opened when the pipeline waits."""

    folder: Path
    spark: Any
    server: S3Server
    gate: Gate
    prefix: str = field(default_factory=lambda: f"outage-{next(_corners)}")
    held: list[str] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> None:
        RemoteStore(self.server.url(self.prefix), **self.server.options()).put(name, data)

    def run(self, kind: str, shut_at: str = "", *, after_bytes: int | None = None) -> Rows:
        """*shut_at* is a step of the second epoch; or so many bytes of answers *after* it."""
        seen: list[str] = []

        def step(name: str) -> None:
            seen.append(name)
            if name == shut_at and seen.count(name) == 2:
                if after_bytes is None:
                    self.gate.close()
                else:
                    self.gate.close_after(after_bytes)

        self.project(kind).run(step, status=self._said)
        return self.project(kind).rows()

    def project(self, kind: str) -> Project:
        path = self.server.url(self.prefix)
        sql = SQL.format(kind=kind, path=path, port=self.gate.port, region=REGION)
        engine = EngineSettings(partitions=2, limits=Limits(files=1))
        environment = {"S3_KEY": ACCESS_KEY, "S3_SECRET": SECRET_KEY}
        return Project(self.folder, self.spark, sql, engine, environment=environment)

    def _said(self, status: Status) -> None:
        if status.phase == "held" and self.gate.is_shut:
            self.held.append(status.why)
            self.gate.open()


@pytest.fixture
def outage(tmp_path: Path, spark: Any, seaweedfs_server: S3Server) -> Iterator[Outage]:
    gate = Gate(seaweedfs_server.port)
    yield Outage(tmp_path, spark, seaweedfs_server, gate)
    gate.close()


@pytest.mark.parametrize("shut_at", ["before n", "after n", "after publish"])
def test_a_run_waits_for_the_server_and_goes_on_exactly(shut_at: str, outage: Outage) -> None:
    """While tasks fetch, when what they read is confirmed, and in a listing."""
    for number in range(4):
        outage.put(f"{number}.json", f'{{"a":{number},"b":"x"}}\n'.encode())
    rows = outage.run("json", shut_at)
    assert outage.held
    assert "the store cannot be reached" in outage.held[0]
    assert rows == [(number, 1) for number in range(4)]


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, spark: Any) -> None:
    """While it starts it lists objects that it cannot read yet."""
    folder = tmp_path / "server"
    folder.mkdir()
    with seaweedfs(folder) as server:
        outage = Outage(tmp_path, spark, server, Gate(server.port))
        for number in range(4):
            outage.put(f"{number}.json", f'{{"a":{number},"b":"x"}}\n'.encode())
        process, seen = server.process, list[str]()
        assert process is not None

        def step(name: str) -> None:
            seen.append(name)
            if name == "before n" and seen.count(name) == 2:
                process.kill()

        def said(status: Status) -> None:
            if status.phase == "held" and process.process.returncode is not None:
                process.start()

        project = outage.project("json")
        project.run(step, status=said)
        assert process.process.returncode is None, "it was held, and the server was started"
        assert project.rows() == [(number, 1) for number in range(4)]
        outage.gate.close()


ROWS = [(n, f"{n:0400d}"[: 300 + n % 100]) for n in range(30_000)]


def object_of(name: str, rows: list[tuple[int, str]]) -> bytes:
    if name.endswith("parquet"):
        out = io.BytesIO()
        table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
        pq.write_table(table, out, row_group_size=5_000, use_dictionary=False, compression="none")
        return out.getvalue()
    text = "".join(f'{{"a":{a},"b":"{b}"}}\n' for a, b in rows).encode()
    return gzip.compress(text, 0) if name.endswith(".gz") else text


@pytest.mark.parametrize(
    ("kind", "name"), [("json", "m.json"), ("json", "m.json.gz"), ("parquet", "m.parquet")]
)
def test_a_server_that_goes_in_the_middle_of_an_object(
    kind: str, name: str, outage: Outage
) -> None:
    data = object_of(name, ROWS)
    assert len(data) > PIECE_BYTES, "so that there is a middle"
    outage.put(f"first.{name}", object_of(name, [(-1, "x")]))
    outage.put(name, data)
    rows = outage.run(kind, "before n", after_bytes=len(data) - (1 << 20))
    assert outage.held
    assert rows == sorted(((a, len(b)) for a, b in [(-1, "x"), *ROWS]), key=repr)


def test_a_server_that_is_down_at_the_start_stops_it(outage: Outage) -> None:
    outage.put("a", b'{"a":1,"b":"x"}')
    outage.gate.close()
    with pytest.raises(StoreUnavailable):
        outage.run("json")
    assert not (outage.folder / "out").exists()
    outage.gate.open()
    assert outage.run("json") == [(1, 1)]
