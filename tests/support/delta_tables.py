"""A Delta sink as a pipeline opens it, what is published to it, and what other tools see there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lamina.connectors.delta.sink import open_delta
from lamina.connectors.kinds import SinkContext
from lamina.connectors.opening import check_sink
from lamina.engine.ports import Change, Output, Publication, Sink
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.pipeline.model import DeclaredSink, Option
from lamina.workspace.model import Staged
from lamina.workspace.notes import LocalNotes
from lamina.workspace.staging import HomeStaged
from tests.contract.sinks import PIPELINE, Hook, nothing

ROW = pa.schema([("k", pa.int64()), ("day", pa.date32()), ("v", pa.string())])


def rows(*values: tuple[Any, ...], schema: pa.Schema = ROW) -> pa.Table:
    columns = [pa.array([row[i] for row in values], each.type) for i, each in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _named(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """The stream is grouped by what the option `keys` names."""
    return tuple(key.strip() for key in given["keys"].split(",")) if "keys" in given else None


@dataclass
class DeltaShop:
    """One table, its sink, and a home with staged files."""

    root: Path
    schema: pa.Schema = ROW
    change: Change = Change.APPEND
    keys: tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = "table"
    sink: str = "out"

    @property
    def table(self) -> Path:
        return self.root / self.name

    def open(self, hook: Hook = nothing, **options: str) -> Sink:
        given = {"path": self.name, **self.options, **options}
        written = {k: Option("${X}", v) for k, v in given.items()}
        sink = DeclaredSink(self.sink, "s", "delta", written)
        context = SinkContext(
            sink,
            check_sink(sink, self.root),
            LocalNotes(self.root / "home"),
            StringIO(),
            Output(self.schema, self.change, self.keys or _named(given)),
        )
        return open_delta(context, hook)

    def publication(
        self, epoch: int, *tables: pa.Table, generation: int = 1, pipeline: Owner = PIPELINE
    ) -> Publication:
        home = self.root / "home"
        home.mkdir(exist_ok=True)
        files = []
        for number, table in enumerate(tables):
            path = home / f"{epoch}-{number}.parquet"
            with path.open("w+b") as staged:
                pq.write_table(table, staged)
                staged.flush()
                os.fsync(staged.fileno())  # as tasks do
            data = path.read_bytes()
            sha256 = hashlib.sha256(data).hexdigest()
            files.append(Staged(path.name, len(data), sha256, table.num_rows))
        point = Point(epoch, hashlib.sha256(str(epoch).encode()).hexdigest())
        output = Output(self.schema, self.change, self.keys)
        return Publication(pipeline, generation, point, files, HomeStaged(home), output)

    def read(self) -> pa.Table:
        return DeltaTable(str(self.table)).to_pyarrow_table()

    def listed(self) -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        return sorted((tuple(row.values()) for row in self.read().to_pylist()), key=repr)

    def by_duckdb(self, query: str) -> Sequence[tuple[Any, ...]]:
        """What DuckDB makes of the files that the log names; `files` are they."""
        uris = DeltaTable(str(self.table)).file_uris()
        return duckdb.sql(query.replace("files", f"read_parquet({uris!r})")).fetchall()

    def versions(self) -> int:
        return DeltaTable(str(self.table)).version()
