"""Changes of a PostgreSQL table into the file of an epoch, against pg_recvlogical into a file.

Both read the same changes with the same plugin, from a slot that stands before them. pg_recvlogical
writes the messages as they come; Lamina parses them, folds them by key and writes Parquet.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import pyarrow as pa
from report import Number
from timing import Work, compare

from lamina.connectors.changes.remembered import memory_schema
from lamina.connectors.opening import open_source
from lamina.connectors.postgres_cdc.source import PostgresChanges
from lamina.engine.model import MemoryChange, Offset, SourceRange
from lamina.engine.ports import Limits
from lamina.engine.states import _change
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.state.partition import Looked, StatePartition, look_up
from lamina.state.run import run_of_batch
from lamina.workspace.notes import LocalNotes
from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(12, 2)", "ts": "TIMESTAMP"}
ROWS_IN_TRANSACTION = 1000
_MEMORY = memory_schema(
    pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "amount": pa.decimal128(12, 2),
            "ts": pa.timestamp("us", "UTC"),
        }
    ),
    ["id"],
)


class Remembered:
    """What the engine keeps for a source that remembers rows, in memory."""

    def __init__(self) -> None:
        self._partition = StatePartition(_MEMORY)

    def find(self, keys: pa.RecordBatch) -> Looked:
        return look_up((self._partition,), keys)

    def scan(self) -> Iterator[pa.RecordBatch]:
        return self._partition.scan()

    def run_of(self, change: MemoryChange) -> pa.RecordBatch:
        return self._partition.apply(_change(_MEMORY, change), old_values=False).run

    def learn(self, change: MemoryChange) -> None:
        self._partition = self._partition.with_run(run_of_batch(self.run_of(change)))


@dataclass
class Bench:
    """One table with as many rows as there will be changes, and then the changes."""

    folder: Path
    database: PostgresServer
    changes: int
    rounds: int
    _names: Iterator[int] = field(default_factory=count)

    def numbers(self) -> Iterator[Number]:
        self._create()
        plain, keeping = self._snapshot("plain"), self._snapshot("keeping")
        self._change()
        end = self._plan("plain", plain.end)().end["lsn"]
        compared = compare(
            lambda: self._plan("plain", plain.end),
            lambda: self._received(end),
            rounds=self.rounds,
            mib=1,
        )
        ours, bare = median(compared.ours), median(compared.bare)
        told = f"{self.changes} changes: {ours * 1000:.0f} ms, pg_recvlogical {bare * 1000:.0f} ms"
        yield Number("cdc_rows_per_s", self.changes / ours, told)
        low, high = min(compared.ratios), max(compared.ratios)
        details = f"of pg_recvlogical's rows a second, rounds {low:.2f} to {high:.2f}"
        yield Number("cdc_vs_recvlogical", compared.ratio, details, at_least=0.5)
        memory = Remembered()
        assert keeping.learned is not None
        memory.learn(keeping.learned)
        remembered = compare(
            lambda: self._plan("keeping", keeping.end, memory),
            lambda: self._plan("plain", plain.end),
            rounds=self.rounds,
            mib=1,
        )
        details = f"of the rows a second without; rounds {min(remembered.ratios):.2f} to "
        details += f"{max(remembered.ratios):.2f}; {self.changes // 2} rows are remembered"
        yield Number("cdc_remembered_ratio", remembered.ratio, details)

    # the database

    def _create(self) -> None:
        run = self.database.execute
        run(
            "CREATE TABLE t (id bigint PRIMARY KEY, name text, amount numeric(12, 2), "
            "ts timestamptz)"
        )
        run("ALTER TABLE t REPLICA IDENTITY FULL")
        run("CREATE PUBLICATION p FOR TABLE t")
        run(f"INSERT INTO t {_rows(0, self.changes // 2)}")
        run("SELECT pg_create_logical_replication_slot('base', 'pgoutput')")

    def _change(self) -> None:
        """A half new rows, a quarter updates, a quarter deletes."""
        first = self.changes // 2
        step = ROWS_IN_TRANSACTION
        with self.database.connect() as connection:
            for at in range(0, first, step):
                size = min(step, first - at)
                connection.execute(f"INSERT INTO t {_rows(first + at, size)}")
            for at in range(0, first // 2, step):
                end = min(at + step, first // 2)
                old = f"WHERE id >= {2 * at} AND id < {2 * end} AND id % 2 ="
                connection.execute(f"UPDATE t SET amount = amount + 1 {old} 0")
                connection.execute(f"DELETE FROM t {old} 1")

    # contenders

    def _source(self, slot: str) -> PostgresChanges:
        given = {
            "host": "127.0.0.1", "port": self.database.port, "database": "postgres", "user": ADMIN,
            "table": "t", "publication": "p", "keys": "id", "slot": slot,
            "max_changes": 1_000_000_000, "remember_rows": str(slot == "keeping").lower(),
        }  # fmt: skip
        columns = tuple(Column(name, kind) for name, kind in COLUMNS.items())
        options = {name: Option.plain(str(value)) for name, value in given.items()}
        declared = DeclaredSource("s", columns, "postgres_cdc", options)
        source = open_source(
            declared, Path(), notes=LocalNotes(self.folder / slot), scratch=self.folder / slot
        )
        assert isinstance(source, PostgresChanges)
        return source

    def _snapshot(self, slot: str) -> SourceRange:
        source = self._source(slot)
        memory = Remembered() if slot == "keeping" else None
        planned = source.plan({}, Limits(), memory)
        source.close()
        return planned

    def _plan(self, slot: str, start: Offset, memory: Remembered | None = None) -> Work:
        source = self._source(slot)

        def work() -> SourceRange:
            planned = source.plan(start, Limits(), memory)
            if memory is not None:
                assert planned.learned is not None
                memory.run_of(planned.learned)
            source.close()
            return planned

        return work

    def _received(self, end: str) -> Work:
        """All of it, up to *end*, into a new file."""
        slot = f"received_{next(self._names)}"
        self.database.execute(f"SELECT pg_copy_logical_replication_slot('base', '{slot}')")
        command = [str(self.database.program("pg_recvlogical")), "-h", "127.0.0.1", "-U", ADMIN]
        command += ["-p", str(self.database.port), "-d", "postgres", "--slot", slot, "--start"]
        command += ["--endpos", end, "-f", str(self.folder / slot), "--no-loop"]
        command += ["-o", "proto_version=1", "-o", "publication_names=p"]

        def work() -> None:
            subprocess.run(command, check=True, capture_output=True)
            assert (self.folder / slot).stat().st_size > self.changes * 10

        return work


def _rows(first: int, size: int) -> str:
    return (
        f"SELECT g, 'customer ' || g, g % 100000 / 100.0, '2024-01-01Z'::timestamptz + g * "
        f"INTERVAL '1 second' FROM generate_series({first}, {first + size - 1}) g"
    )


def cdc_numbers(
    folder: Path, database: PostgresServer, *, changes: int, rounds: int
) -> Iterator[Number]:
    folder.mkdir()
    yield from Bench(folder, database, changes, rounds).numbers()
