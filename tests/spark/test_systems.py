"""SIGKILL at random of driver, JVM, Python workers, broker and database, with every system at once.

    LAMINA_KILLS=100 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_systems.py

Two Kafka topics and files on S3 go into Kafka, PostgreSQL, Delta, Iceberg and Parquet. In the end
each of them holds what one Spark batch and DuckDB make of the whole input, row by row.
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

from tests.servers import S3Server, kafka, kafka_missing, postgres, postgres_missing
from tests.spark.systems import Servers, Systems
from tests.spark.victims import Nursery, Process

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
pytestmark = pytest.mark.server

KILLS = int(os.environ.get("LAMINA_KILLS", "6"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
KINDS = ("worker", "broker", "driver", "database", "worker", "jvm", "broker", "database")
WAITS = {"StoreUnavailable"}
"""Errors with which a run may end because its broker was down when it started."""


@pytest.fixture
def servers(
    seaweedfs_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """Of this test alone: they are killed."""
    if reason := kafka_missing() or postgres_missing():
        pytest.skip(reason)
    with kafka(tmp_path_factory.mktemp("kafka")) as broker, postgres() as database:
        database.execute("CREATE SCHEMA systems")
        yield Servers(broker, database, seaweedfs_server)


def test_whatever_is_killed_every_system_holds_everything_once(
    spark: Any, processes: Nursery, servers: Servers, tmp_path: Path
) -> None:
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={KILLS}")
    draw = random.Random(SEED)
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    draw.shuffle(kinds)
    project = Systems(tmp_path / "systems", servers, epochs=2 * KILLS + 4).write()
    truth = project.truth(spark)
    while kinds:
        process = start(processes, project)
        if process.until("recovered", "error")["event"] == "recovered":
            live(process, kinds, draw, servers)
    process = start(processes, project, "--drain", "--max-rows", "100000", "--max-files", "1000")
    ended = process.until("ended", "error")
    assert ended["event"] == "ended", ended
    assert process.wait() == 0, process.said()
    project.check_whole(truth)


def start(processes: Nursery, project: Systems, *more: str) -> Process:
    options = (*project.options(), "--available-now", *more)
    return processes.lamina(
        project.folder / "systems.sql", *options, environment=project.environment
    )


def live(process: Process, kinds: list[str], draw: random.Random, servers: Servers) -> None:
    """Until it is dead; the deaths of others are not its own."""
    while kinds:
        event = process.until("epoch", "ended", "error")
        if event["event"] != "epoch":
            check_end(event)
            return
        time.sleep(draw.random())
        match kinds.pop():
            case "worker":
                if workers := process.workers():
                    os.kill(draw.choice(workers), signal.SIGKILL)
            case "broker":
                with servers.kafka.down():
                    time.sleep(draw.random())
            case "database":
                with servers.postgres.down():
                    time.sleep(draw.random())
            case "jvm":
                os.kill(process.jvm, signal.SIGKILL)
                assert process.until("error", "ended")["error"]["kind"] == "SparkLost"
                process.wait()
                return
            case "driver":
                break
    process.signal(signal.SIGKILL)
    process.wait()


def check_end(event: dict[str, Any]) -> None:
    """An end that is neither the end of the input nor an outage is a defect."""
    assert event["event"] == "ended" or event["error"]["kind"] in WAITS, event
