"""A table is written to all the time, while pipeline, JVM and database are killed.

    LAMINA_KILLS=100 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_cdc_kills.py

Keys change, rows and the whole table go (TRUNCATE), transactions are larger than an epoch, columns
come and go. A second table is read without `remember_rows`, so its log says what rows were before.
The two are joined, as changes; a start may have another number of partitions. A Delta table has a
version for each epoch: every one of them is a state that the source's table was committed in. In
the end all sinks are what the tables are.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import PostgresServer, postgres, postgres_missing
from tests.servers.postgres import ADMIN
from tests.spark.cdc_writer import SELECT, Writer, state_of
from tests.spark.victims import Nursery, Process

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
pytestmark = pytest.mark.server

KILLS = int(os.environ.get("LAMINA_KILLS", "2"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
KINDS = ("database", "driver", "jvm", "database", "driver")  # again and again
TOTALS = (
    "SELECT id % 5 AS part, count(*) AS n, sum(amount) AS total, max(name) AS last FROM {table} "
    "GROUP BY id % 5"
)


JOINED = "SELECT t.id, t.amount, u.name FROM t LEFT JOIN u ON t.id = u.id"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Of this test alone: it is killed."""
    if reason := postgres_missing():
        pytest.skip(reason)
    with postgres() as made:
        yield made


def pipeline(port: int) -> str:
    login = f"host '127.0.0.1', port '{port}', database 'postgres', user '{ADMIN}'"
    return f"""
CREATE SOURCE t (id BIGINT, name STRING, amount DECIMAL(12, 2), big STRING) USING postgres_cdc
  OPTIONS ({login}, table 't', publication 'p', keys 'id', remember_rows 'true');
CREATE SOURCE u (id BIGINT, name STRING, amount DECIMAL(12, 2), big STRING) USING postgres_cdc
  OPTIONS ({login}, table 'u', publication 'pu', keys 'id');
CREATE STREAM everything AS {SELECT} t;
CREATE STREAM not_remembered AS {SELECT} u;
CREATE STREAM joined AS {JOINED};
CREATE STREAM totals AS {TOTALS.format(table="t")} EMIT CHANGES;
CREATE SINK versions FROM everything USING delta OPTIONS (path 'versions', keys 'id');
CREATE SINK versions_of_u FROM not_remembered USING delta
  OPTIONS (path 'versions_of_u', keys 'id');
CREATE SINK copy FROM everything USING postgres OPTIONS ({login}, table 'copy', keys 'id');
CREATE SINK joined_out FROM joined USING postgres
  OPTIONS ({login}, table 'joined', keys 'id');
CREATE SINK totals_out FROM totals USING postgres
  OPTIONS ({login}, table 'totals', keys 'part');
"""


def test_every_epoch_is_a_state_of_the_table_whatever_is_killed(
    processes: Nursery, server: PostgresServer, tmp_path: Path
) -> None:
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={KILLS}")
    draw = random.Random(SEED)
    kinds = [KINDS[number % len(KINDS)] for number in reversed(range(KILLS))]
    (tmp_path / "cdc.sql").write_text(pipeline(server.port))
    writer = Writer(server, "t", "p", SEED)
    other = Writer(server, "u", "pu", SEED + 1, remembered=False)
    while kinds:
        partitions = draw.choice(("1", "2", "4"))
        process = start(processes, tmp_path, "--max-rows", "200", "--partitions", partitions)
        if process.until("recovered", "error")["event"] == "recovered":
            live(process, kinds, draw, server)
    writer.stop()
    other.stop()
    process = start(processes, tmp_path, "--available-now")
    ended = process.until("ended", "error")
    assert ended["event"] == "ended", ended
    assert process.wait() == 0, process.said()
    there = set(writer.there())
    assert set(server.execute("SELECT id, name, amount, size FROM copy")) == there
    assert set(server.execute("SELECT id, amount, name FROM joined")) == set(server.execute(JOINED))
    totals = "SELECT part, n, total, last FROM totals"
    assert set(server.execute(totals)) == set(server.execute(TOTALS.format(table="t")))
    check_versions(states_of_versions(str(tmp_path / "versions")), writer)
    check_versions(states_of_versions(str(tmp_path / "versions_of_u")), other)


def check_versions(versions: list[int], writer: Writer) -> None:
    """Each is a state that the table was committed in, and the last one is the table."""
    assert versions[-1] == state_of(writer.there())
    wrong = [number for number, each in enumerate(versions) if each not in writer.states]
    assert not wrong, f"of {len(versions)} versions these are no state of the table: {wrong}"
    print(f"{writer.transactions} transactions, {len(set(versions))} states in the sink")
    assert len(versions) > 3, "so many epochs were compared"
    assert len(set(versions)) > 3 or KILLS < 10, "by chance few kills see only an empty table"


def start(processes: Nursery, folder: Path, *more: str) -> Process:
    places = ("--home", folder / "home", "--store", folder / "store")
    options = ("--checkpoint-epochs", "3", *more)
    return processes.lamina(folder / "cdc.sql", *places, *options)


def live(process: Process, kinds: list[str], draw: random.Random, server: PostgresServer) -> None:
    """Until it is dead; the database's death is not its own."""
    while kinds:
        events = [process.until("epoch", "ended", "error")]
        if events[-1]["event"] == "epoch":  # so that there are states to see between two kills
            events.append(process.until("epoch", "ended", "error"))
        event = events[-1]
        if event["event"] != "epoch":
            # It was away when the process began: then nobody waits for it.
            assert event["error"]["kind"] == "StoreUnavailable", event
            process.wait()
            return
        time.sleep(draw.random())
        match kinds.pop():
            case "database":
                with server.down():
                    time.sleep(draw.random())
            case "jvm":
                os.kill(process.jvm, signal.SIGKILL)
                assert process.until("error", "ended")["error"]["kind"] == "SparkLost"
                process.wait()
                return
            case "driver":
                process.signal(signal.SIGKILL)
                process.wait()
                return
    process.signal(signal.SIGKILL)
    process.wait()


def states_of_versions(path: str, storage: dict[str, str] | None = None) -> list[int]:
    """Of all versions of a Delta table, the oldest first."""
    from deltalake import DeltaTable  # noqa: PLC0415  an extra

    found = []
    for version in range(DeltaTable(path, storage_options=storage).version() + 1):
        rows: Any = DeltaTable(path, version, storage).to_pyarrow_table()
        columns = (rows.column(name).to_pylist() for name in ("id", "name", "amount", "size"))
        found.append(state_of(list(zip(*columns, strict=True))))
    return found
