"""A table of a real PostgreSQL whose changes are read, epoch after epoch, without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.changes.remembered import memory_schema
from lamina.connectors.changes.types import arrow_type
from lamina.connectors.opening import open_source
from lamina.connectors.postgres_cdc.source import PostgresChanges
from lamina.engine.model import MemoryChange, Offset, SourceRange
from lamina.engine.ports import CHANGE, NEW, Limits
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.state.partition import Looked
from lamina.state.schema import StateSchema
from lamina.workspace.notes import LocalNotes
from tests.servers.postgres import ADMIN, PostgresServer

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(12, 2)", "big": "STRING"}
DDL = "id bigint PRIMARY KEY, name text, amount numeric(12, 2), big text"
Row = tuple[Any, ...]
State = frozenset[Row]


class DictMemory:
    """What a source remembers, as a dict: the engine has it as keyed state."""

    def __init__(self, schema: StateSchema) -> None:
        self.schema = schema
        self.rows: dict[Row, Row] = {}

    def find(self, keys: pa.RecordBatch) -> Looked:
        asked = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        found = np.array([key in self.rows for key in asked], np.bool_)
        nothing = (None,) * len(self.schema.value)
        return Looked(found, self._batch([self.rows.get(key, nothing) for key in asked], 0))

    def scan(self) -> Iterator[pa.RecordBatch]:
        rows = [(*key, *value) for key, value in self.rows.items()]
        for start in range(0, len(rows), 7):
            yield self._batch(rows[start : start + 7], -len(self.schema.key))

    def learn(self, change: MemoryChange) -> None:
        names = self.schema.key.names
        for gone in change.gone.to_pylist() if change.gone is not None else ():
            self.rows.pop(tuple(gone[name] for name in names))
        for row in change.rows.to_pylist():
            key = tuple(row[name] for name in names)
            self.rows[key] = tuple(row[name] for name in self.schema.value.names)

    def _batch(self, rows: Sequence[Row], first: int) -> pa.RecordBatch:
        fields = list(self.schema.value) if first == 0 else list(self.schema.row)
        columns = [[row[number] for row in rows] for number in range(len(fields))]
        arrays = [pa.array(each, f.type) for each, f in zip(columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, [field.name for field in fields])


@dataclass
class CdcRig:
    """The table, what was read of it so far, and every state that it was committed in."""

    server: PostgresServer
    schema: str
    home: Path
    columns: Mapping[str, str] = field(default_factory=lambda: dict(COLUMNS))
    keys: str = "id"
    offset: Offset = field(default_factory=dict)
    rows: dict[Row, Row] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    opened: list[PostgresChanges] = field(default_factory=list)
    memory: DictMemory | None = None  # of a source that remembers rows
    notes: list[str] = field(default_factory=list)

    @property
    def table(self) -> str:
        return f"{self.schema}.t"

    @property
    def slot(self) -> str:
        return f"slot_{self.schema}"

    def remember(self) -> CdcRig:
        """From the first epoch on."""
        kinds = {name: arrow_type(kind) for name, kind in self.columns.items()}
        self.memory = DictMemory(memory_schema(pa.schema(kinds), self.keys.split(", ")))
        return self

    def create(self, ddl: str = DDL) -> None:
        self.run(f"CREATE TABLE {self.table} ({ddl})")
        if self.memory is None:
            self.run(f"ALTER TABLE {self.table} REPLICA IDENTITY FULL")
        self.run(f"CREATE PUBLICATION {self.schema} FOR TABLE {self.table}")

    def run(self, *statements: str) -> None:
        """One transaction."""
        with self.server.connect(autocommit=False) as connection:
            for statement in statements:
                connection.execute(statement.replace("TABLE_", self.table))

    def change(self, *statements: str) -> None:
        self.run(*statements)
        self.states.append(self.there())

    def there(self) -> State:
        listed = ", ".join(self.columns)
        return frozenset(self.server.execute(f"SELECT {listed} FROM {self.table}"))

    def declared(self, **options: str) -> DeclaredSource:
        given = {
            "host": "127.0.0.1",
            "port": str(self.server.port),
            "database": "postgres",
            "user": ADMIN,
            "schema": self.schema,
            "table": "t",
            "publication": self.schema,
            "slot": self.slot,
            "keys": self.keys,
            "lock_timeout": "1 second",
            **({"remember_rows": "true"} if self.memory is not None else {}),
            **options,
        }
        listed = tuple(Column(name, kind) for name, kind in self.columns.items())
        written = {name: Option.plain(value) for name, value in given.items()}
        return DeclaredSource("s", listed, "postgres_cdc", written)

    def open(self, **options: str) -> PostgresChanges:
        """As a new process would, after the old one is gone."""
        for source in self.opened:
            source.close()
        return self.open_another(**options)

    def open_another(self, **options: str) -> PostgresChanges:
        source = open_source(
            self.declared(**options), Path(), notes=LocalNotes(self.home), scratch=self.home
        )
        assert isinstance(source, PostgresChanges)
        self.opened.append(source)
        return source

    def plan(self, source: PostgresChanges, rows: int | None = None) -> SourceRange:
        return source.plan(self.offset, Limits(rows=rows), self.memory)

    def epoch(self, source: PostgresChanges, rows: int | None = None) -> bool:
        """Plan and commit; whether there was anything."""
        planned = self.plan(source, rows)
        if planned.start == planned.end:
            return False
        source.confirm(planned)
        self.commit(planned)
        return True

    def commit(self, planned: SourceRange) -> None:
        """Apply the rows as an upsert sink does, and see that they fit what was there."""
        at = [list(self.columns).index(key.strip()) for key in self.keys.split(",")]
        found = pq.read_table(planned.data.path)
        assert found.num_rows == planned.data.rows
        changes = found[CHANGE].to_pylist()
        rows = list(zip(*(found[name].to_pylist() for name in self.columns), strict=True))
        keyed = [(tuple(row[number] for number in at), row) for row in rows]
        old = [each for each, kind in zip(keyed, changes, strict=True) if kind not in NEW]
        new = [each for each, kind in zip(keyed, changes, strict=True) if kind in NEW]
        assert len({key for key, _ in old}) == len(old), "a key is taken back once"
        assert len({key for key, _ in new}) == len(new), "a key is put there once"
        for key, row in old:
            assert self.rows.pop(key) == row, "what is taken back is what was there"
        for key, row in new:
            assert key not in self.rows, "what was there is taken back"
            self.rows[key] = row
        self.offset = planned.end
        self.notes += planned.notes
        if planned.learned is not None and self.memory is not None:
            self.memory.learn(planned.learned)
        if self.memory is not None:
            assert len(self.memory.rows) == len(self.rows), "what is remembered is what is there"

    def drop(self) -> None:
        """The slot, which would hold the log of the server."""
        for source in self.opened:
            source.close()
        sql = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name"
        self.server.execute(f"{sql} = '{self.slot}'")

    @property
    def state(self) -> State:
        return frozenset(self.rows.values())


def random_change(rig: CdcRig, random: Random) -> None:
    """One transaction: rows come, change, change their keys, and go; all of them, if rows are
    remembered."""
    rig.change(*random_statements(random, truncates=rig.memory is not None))


def random_statements(random: Random, *, truncates: bool) -> list[str]:
    count = random.choice((1, 1, 2, 5, 30))
    statements = [_statement(random) for _ in range(count)]
    if truncates and random.random() < 0.2:
        statements.insert(random.randrange(count + 1), "TRUNCATE TABLE_")
    return statements


def _statement(random: Random) -> str:
    one, other = random.sample(range(60), 2)
    amount = random.choice(("NULL", "1.5", "-20.25"))
    return random.choice(
        (
            f"INSERT INTO TABLE_ VALUES ({one}, 'n{random.random()}', {amount}, "
            "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 100))) "
            "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount, name = EXCLUDED.name",
            f"UPDATE TABLE_ SET amount = amount + {one} WHERE id % 7 = {one % 7}",
            f"UPDATE TABLE_ SET id = {other} WHERE id = {one} AND NOT EXISTS "
            f"(SELECT 1 FROM TABLE_ WHERE id = {other})",
            f"UPDATE TABLE_ SET big = NULL WHERE id = {one}",
            f"DELETE FROM TABLE_ WHERE id IN ({one}, {other})",
        )
    )
