"""A cluster without a shared disk: exact, whatever happens to machines, links and the S3 server.

    LAMINA_KILLS=20 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_remote_cluster.py

Each machine has a network, a disk and processes of its own (tests/machines). One pipeline runs
through all rounds; in each round one fault comes at a random time, and the result of all of them
has to be that of one Spark batch and of DuckDB over all input.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from tests.machines.network import machines_missing, wait_until
from tests.spark.remote_cluster import RemoteCluster, running_remote_cluster
from tests.spark.remote_pipeline import OPTIONS, RemoteProject

pytestmark = pytest.mark.server

ROUNDS = int(os.environ.get("LAMINA_KILLS", "3"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
FILES_BEFORE, FILES_AFTER = 3, 1  # of a round: while there is a fault, and when it is over
FAULT_S_MAX = 5.0
KINDS = (  # a round takes one of each row in turn; the rows are shuffled
    ["a worker is lost", "the driver is lost"],
    ["the driver is cut off from S3", "a worker is cut off from S3", "a worker is cut off",
     "every link is slow", "every link loses frames"],
    ["S3 is killed", "the driver is paused", "a worker is paused"],
)  # fmt: skip


def faults(draw: random.Random) -> Iterator[str]:
    rows = [draw.sample(row, len(row)) for row in KINDS]
    for number in range(ROUNDS):
        row = rows[number % len(rows)]
        yield row[number // len(rows) % len(row)]


class Rounds:
    """A pipeline that lives through faults, on one driver's machine or the other."""

    def __init__(
        self, cluster: RemoteCluster, project: RemoteProject, home: str, seed: int
    ) -> None:
        self.cluster, self.project, self._home = cluster, project, home
        self._draw = random.Random(seed)
        self._machines = cluster.network.machines
        self._driver, self._spare = "driver", "driver2"
        self._starts = ExitStack()
        self._number = 0

    def start(self, *options: str) -> None:
        places = ("--home", self._home, "--store", self.project.store)
        self._number += 1
        log = f"lamina-{self._number}"
        self._process = self.cluster.run(
            self._driver, self.project.text, *places, *OPTIONS, *options, log=log
        )
        self._starts.callback(self._process.close)
        self._until("recovered")

    def end(self) -> None:
        self._starts.close()

    def round(self, fault: str) -> None:
        self.project.feed(FILES_BEFORE)
        time.sleep(self._draw.random() * self._until("epoch")["seconds"])  # somewhere in the next
        self._strike(fault)
        due = self.project.feed(FILES_AFTER)
        while self._until("epoch")["watermark"] < due:
            pass

    def _until(self, kind: str) -> dict[str, Any]:
        event = self._process.until(kind, "error", "ended")
        assert event["event"] == kind, f"{event}\n{self._process.said()}"
        return event

    def _strike(self, fault: str) -> None:
        network, seconds = self.cluster.network, self._draw.uniform(1, FAULT_S_MAX)
        worker = self._draw.choice(["worker1", "worker2"])
        match fault:
            case "a worker is lost":
                self._machines[worker].kill()
                self.cluster.boot_worker(worker)
            case "the driver is lost":
                self._lose_the_driver()
            case "S3 is killed":
                self.cluster.kill_s3()
                time.sleep(seconds)
                self.cluster.start_s3()
            case _:
                lasting = {
                    "the driver is cut off from S3": lambda: network.cut(self._driver, "s3"),
                    "a worker is cut off from S3": lambda: network.cut(worker, "s3"),
                    "a worker is cut off": lambda: network.cut(worker),
                    "every link is slow": lambda: network.slow(by_s=0.03),
                    "every link loses frames": lambda: network.lossy(share=0.01),
                    "the driver is paused": self._machines[self._driver].paused,
                    "a worker is paused": self._machines[worker].paused,
                }
                with lasting[fault]():
                    time.sleep(seconds)

    def _lose_the_driver(self) -> None:
        """For good: the other one takes over. The next one that does is this one, empty."""
        self._machines[self._driver].kill()
        self._driver, self._spare = self._spare, self._driver
        self.start()
        self._machines[self._spare].boot()


def test_whatever_happens_to_machines_and_links_the_result_is_exact(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if reason := machines_missing():
        pytest.skip(reason)
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={ROUNDS}")
    folder = tmp_path_factory.mktemp("remote")
    shared = folder / "shared"
    shared.mkdir()
    with running_remote_cluster(folder, shared=[shared], seed=SEED) as cluster:
        files = ROUNDS * (FILES_BEFORE + FILES_AFTER)
        project = RemoteProject(folder / "input", cluster.s3, files)
        truth = project.truth(spark)
        rounds = Rounds(cluster, project, str(shared / "home"), SEED)
        try:
            rounds.start()
            for fault in faults(random.Random(SEED)):
                began = time.monotonic()
                rounds.round(fault)
                print(f"{fault}: {time.monotonic() - began:.1f} s")
            wait_until(lambda: project.published() == truth, "what has to come out")
        finally:
            rounds.end()
