"""A table of a real MariaDB whose changes are read, epoch after epoch, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from lamina.connectors.mysql_cdc.source import MySqlChanges
from lamina.connectors.opening import open_source
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.workspace.notes import LocalNotes
from tests.contract.cdc_rig import CdcRig, State
from tests.servers.mariadb import ROOT, MariaServer

DDL = "id bigint PRIMARY KEY, name varchar(100), amount decimal(12, 2), big longtext"


class MySqlRig(CdcRig):
    """As that of PostgreSQL: the schema is a database, and there is no slot."""

    server: MariaServer  # type: ignore[assignment]

    def create(self, ddl: str = DDL) -> None:
        self.run(f"CREATE TABLE {self.table} ({ddl})")

    def run(self, *statements: str) -> None:
        """One transaction, but for DDL, which ends it."""
        written = [each.replace("TABLE_", self.table) for each in statements]
        self.server.execute("START TRANSACTION", *written, "COMMIT", database=self.schema)

    def there(self) -> State:
        listed = ", ".join(self.columns)
        return frozenset(self.server.execute(f"SELECT {listed} FROM {self.table}"))

    def declared(self, **options: str) -> DeclaredSource:
        given = {
            "host": "127.0.0.1",
            "port": str(self.server.port),
            "database": self.schema,
            "table": "t",
            "user": ROOT,
            "keys": self.keys,
            "answer_timeout": "20 seconds",
            **options,
        }
        listed = tuple(Column(name, kind) for name, kind in self.columns.items())
        written = {
            name: Option("${PASSWORD}" if name == "password" else value, value)
            for name, value in given.items()
        }
        return DeclaredSource("s", listed, "mysql_cdc", written)

    def open_another(self, **options: str) -> MySqlChanges:  # type: ignore[override]
        source = open_source(
            self.declared(**options), Path(), notes=LocalNotes(self.home), scratch=self.home
        )
        assert isinstance(source, MySqlChanges)
        self.opened.append(source)  # type: ignore[arg-type]
        return source

    def drop(self) -> None:
        for source in self.opened:
            source.close()


def random_change(rig: MySqlRig, random: Random) -> None:
    """One transaction: rows come, change, change their keys, and go; some is rolled back."""
    count = random.choice((1, 1, 2, 5, 30))
    statements = [_statement(random) for _ in range(count)]
    if random.random() < 0.3:
        undone = ["SAVEPOINT s", _statement(random), "ROLLBACK TO SAVEPOINT s"]
        statements[count // 2 : count // 2] = undone
    if random.random() < 0.2:
        rig.run("DELETE FROM TABLE_", "ROLLBACK")
    rig.change(*statements)


def _statement(random: Random) -> str:
    one, other = random.sample(range(60), 2)
    amount = random.choice(("NULL", "1.5", "-20.25"))
    return random.choice(
        (
            f"INSERT INTO TABLE_ VALUES ({one}, 'n{random.random()}', {amount}, repeat('xü', 900)) "
            "ON DUPLICATE KEY UPDATE amount = VALUES(amount), name = VALUES(name)",
            f"REPLACE INTO TABLE_ VALUES ({one}, 'r', {amount}, NULL)",
            f"UPDATE TABLE_ SET amount = amount + {one} WHERE id % 7 = {one % 7}",
            f"UPDATE IGNORE TABLE_ SET id = {other} WHERE id = {one}",
            f"UPDATE TABLE_ SET big = NULL WHERE id = {one}",
            f"DELETE FROM TABLE_ WHERE id IN ({one}, {other})",
        )
    )


def all_epochs(rig: MySqlRig, source: MySqlChanges, rows: int | None = None) -> Iterator[State]:
    while rig.epoch(source, rows):  # type: ignore[arg-type]
        yield rig.state
