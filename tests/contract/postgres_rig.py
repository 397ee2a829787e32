"""A schema of a real PostgreSQL, and streams of any columns for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.postgres.session import Hook, Server
from lamina.connectors.postgres.sink import Place, PostgresSink
from lamina.engine.ports import CHANGE, Change, Output, Publication
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.workspace.model import Staged
from lamina.workspace.staging import HomeStaged
from tests.contract.sinks import PIPELINE
from tests.servers.postgres import ADMIN, PostgresServer


@dataclass
class Rig:
    server: PostgresServer
    schema: str
    home: Path
    _files: Iterator[int] = field(default_factory=count)

    def sink(
        self,
        schema: pa.Schema,
        *,
        keys: tuple[str, ...] = (),
        order_by: str = "",
        change: Change | None = None,
        table: str = "t",
        name: str = "out",
        create: bool = True,
        hook: Hook | None = None,
        **server: Any,
    ) -> PostgresSink:
        """By key, if there are any."""
        change = change or (Change.UPSERT if keys else Change.APPEND)
        writing = Writing(WriteMode.UPSERT if keys else WriteMode.APPEND, keys, order_by)
        return PostgresSink(
            name,
            replace(self.login, **server),
            Place(self.schema, table, create),
            output=Output(schema, change, keys or None),
            writing=writing,
            hook=hook,
        )

    @property
    def login(self) -> Server:
        return Server("127.0.0.1", self.server.port, "postgres", ADMIN)

    def publication(
        self,
        epoch: int,
        *tables: pa.Table,
        generation: int = 1,
        pipeline: Owner = PIPELINE,
    ) -> Publication:
        """One staged file for each of *tables*."""
        point = Point(epoch, f"{epoch:064x}")
        staged = [self._stage(table) for table in tables]
        return Publication(pipeline, generation, point, staged, HomeStaged(self.home))

    def _stage(self, table: pa.Table) -> Staged:
        self.home.mkdir(exist_ok=True)
        path = self.home / f"{next(self._files)}.parquet"
        pq.write_table(table, path)
        data = path.read_bytes()
        return Staged(path.name, len(data), hashlib.sha256(data).hexdigest(), table.num_rows)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """*statement* may name the schema as {s}."""
        return self.server.execute(statement.replace("{s}", self.schema))

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        """All of them, in an order that does not depend on the table."""
        return sorted(self.execute(f'SELECT * FROM {{s}}."{table}"'), key=repr)

    def tables(self) -> set[str]:
        found = self.execute("SELECT tablename FROM pg_tables WHERE schemaname = '{s}'")
        return {name for (name,) in found}


def table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """Rows of *schema*, or of a stream of changes of it."""
    if CHANGE in columns:
        schema = schema.append(pa.field(CHANGE, pa.string()))
    return pa.table(columns, schema)
