"""Somebody who writes to a table all the time, and knows every state that it was committed in."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg

from tests.contract.cdc_rig import DDL, random_statements
from tests.servers import PostgresServer

SELECT = "SELECT id, name, amount, length(big) AS size FROM"
MANY = 3000
_FULL = "ALTER TABLE TABLE_ REPLICA IDENTITY FULL"
_SPECIAL = (
    # more rows than an epoch of these tests has
    f"INSERT INTO TABLE_ SELECT g, 'many', 1, NULL FROM generate_series(1000, {1000 + MANY}) g "
    "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount + 1",
    "UPDATE TABLE_ SET id = -id WHERE id >= 1000 "
    "AND NOT EXISTS (SELECT 1 FROM TABLE_ WHERE id < 0)",
    "DELETE FROM TABLE_ WHERE id >= 1000 OR id < 0",
    "ALTER TABLE TABLE_ ADD COLUMN IF NOT EXISTS extra int DEFAULT 7",
    "ALTER TABLE TABLE_ DROP COLUMN IF EXISTS extra",
    _FULL,
)
_OF_REMEMBERED_ROWS = "ALTER TABLE TABLE_ REPLICA IDENTITY DEFAULT"


def state_of(rows: list[tuple[Any, ...]]) -> int:
    """A number that stands for a set of rows, in this process."""
    return hash(frozenset(rows))


@dataclass
class Writer:
    """One transaction after the other until it is stopped; it waits for a database that is away."""

    server: PostgresServer
    table: str
    publication: str
    seed: int
    remembered: bool = True  # by who reads it: the log need not say what a row was before
    states: set[int] = field(default_factory=set)
    transactions: int = 0
    failed: BaseException | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.server.execute(f"CREATE TABLE {self.table} ({DDL})")
        if not self.remembered:
            self.server.execute(_FULL.replace("TABLE_", self.table))
        self.server.execute(f"CREATE PUBLICATION {self.publication} FOR TABLE {self.table}")
        self.states.add(state_of([]))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    def there(self) -> list[tuple[Any, ...]]:
        return self.server.execute(f"{SELECT} {self.table}")

    def _run(self) -> None:
        random = Random(self.seed)
        try:
            while not self._stop.is_set():
                self._write(random)
                self._stop.wait(random.random() * 0.1)
        except BaseException as error:  # noqa: BLE001  told by `stop`
            self.failed = error

    def _write(self, random: Random) -> None:
        statements = random_statements(random, truncates=self.remembered)
        if random.random() < 0.15:
            more = (_OF_REMEMBERED_ROWS,) if self.remembered else ()
            statements = [random.choice((*_SPECIAL, *more))]
        try:
            with self.server.connect(autocommit=False) as connection:
                for statement in statements:
                    connection.execute(statement.replace("TABLE_", self.table))
                rows = connection.execute(f"{SELECT} {self.table}").fetchall()
                # Before the commit: nobody can see it sooner. If nobody knows whether it was
                # committed it may stay: it would have been a state of the table.
                self.states.add(state_of(rows))
            self.transactions += 1
        except psycopg.OperationalError:
            self._stop.wait(0.1)
