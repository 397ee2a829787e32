"""A table of a real PostgreSQL whose changes are read, epoch after epoch, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from lamina.connectors.opening import open_source
from lamina.connectors.postgres_cdc.source import PostgresChanges
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import CHANGE, NEW, Limits
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.servers.postgres import ADMIN, PostgresServer

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(12, 2)", "big": "STRING"}
DDL = "id bigint PRIMARY KEY, name text, amount numeric(12, 2), big text"
Row = tuple[Any, ...]
State = frozenset[Row]


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

    @property
    def table(self) -> str:
        return f"{self.schema}.t"

    @property
    def slot(self) -> str:
        return f"slot_{self.schema}"

    def create(self, ddl: str = DDL) -> None:
        self.run(f"CREATE TABLE {self.table} ({ddl})")
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
        source = open_source(self.declared(**options), Path(), home=self.home)
        assert isinstance(source, PostgresChanges)
        self.opened.append(source)
        return source

    def plan(self, source: PostgresChanges, rows: int | None = None) -> SourceRange:
        return source.plan(self.offset, Limits(rows=rows), None)

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
    """One transaction: rows come, change, change their keys, and go."""
    count = random.choice((1, 1, 2, 5, 30))
    rig.change(*(_statement(random) for _ in range(count)))


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
