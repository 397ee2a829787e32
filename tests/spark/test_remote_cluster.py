"""A home in S3 on a cluster without a shared disk: exact, whichever machine or link is lost.

    LAMINA_KILLS=20 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_remote_cluster.py

Each machine has a network, a disk and processes of its own (tests/machines). One pipeline runs
through all rounds; in each round one fault comes at a random time, and the result of all of them
has to be that of one Spark batch and of DuckDB over all input.

LAMINA_FAULTS has the names of faults to take, with commas between them, instead of all.
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
from tests.spark.victims import Process

pytestmark = pytest.mark.server

ROUNDS = int(os.environ.get("LAMINA_KILLS", "3"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
FILES_BEFORE, FILES_AFTER = 3, 1  # of a round: while there is a fault, and when it is over
FAULT_S = (2, 4, 8, 20)  # and down to a half of it; after 12 s Spark takes an executor for lost
MINUTE_S = 60
KINDS = (  # a round takes one of each row in turn; the rows are shuffled
    ["a worker is lost", "the driver is lost", "the driver is replaced while it is paused",
     "the master's machine is lost"],
    ["the driver is cut off from S3", "a worker is cut off from S3", "a worker is cut off",
     "every link is slow", "every link loses frames"],
    ["S3 is killed", "S3's machine is lost", "the driver is paused", "a worker is paused"],
)  # fmt: skip
LONG = ("the driver is cut off from S3 for a minute", "a worker is cut off for a minute")
"""Only in runs of more rounds than the default has."""

CHOSEN = [each for each in os.environ.get("LAMINA_FAULTS", "").split(",") if each]
"""To look into some of them; by default all are drawn."""


def faults(draw: random.Random) -> Iterator[str]:
    if CHOSEN:
        yield from (CHOSEN[number % len(CHOSEN)] for number in range(ROUNDS))
        return
    longer = list(LONG) if ROUNDS > 3 else []
    rows = [draw.sample(row, len(row)) for row in (KINDS[0], KINDS[1] + longer, KINDS[2])]
    for number in range(ROUNDS):
        row = rows[number % len(rows)]
        yield row[number // len(rows) % len(row)]


class Rounds:
    """A pipeline that lives through faults, on one driver's machine or the other."""

    def __init__(self, cluster: RemoteCluster, project: RemoteProject, seed: int) -> None:
        self.cluster, self.project = cluster, project
        self._draw = random.Random(seed)
        self._machines = cluster.network.machines
        self._driver, self._spare = "driver", "driver2"
        self._starts = ExitStack()
        self._number = 0
        self._fastest = 2.0  # seconds of an epoch; the first takes longer, because Spark is cold
        self._replaced: list[Process] = []

    def start(self, *options: str) -> None:
        places = ("--home", self.project.home, "--store", self.project.store)
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
        self._fastest = min(self._fastest, self._until("epoch")["seconds"])
        time.sleep(self._draw.random() * self._fastest)  # somewhere in the next one
        self._strike(fault)
        due = self.project.feed(FILES_AFTER)
        while self._until("epoch")["watermark"] < due:
            pass
        while self._replaced:
            ended = self._replaced.pop().until("error", "ended")
            assert ended.get("error", {}).get("kind") == "Fenced", ended

    def _until(self, kind: str) -> dict[str, Any]:
        event = self._process.until(kind, "error", "ended")
        assert event["event"] == kind, f"{event}\n{self._process.said()}"
        return event

    def _strike(self, fault: str) -> None:
        network = self.cluster.network
        seconds = self._draw.choice(FAULT_S) * self._draw.uniform(0.5, 1)
        worker = self._draw.choice(["worker1", "worker2"])
        match fault:
            case "a worker is lost":
                self._machines[worker].kill()
                self.cluster.boot_worker(worker)
            case "the driver is lost":
                self._lose_the_driver()
            case "the driver is replaced while it is paused":
                self._replace_the_paused_driver()
            case "the master's machine is lost":
                self._machines["master"].kill()
                time.sleep(seconds)
                self.cluster.boot_master()
            case "S3 is killed":
                self.cluster.kill_s3()
                time.sleep(seconds)
                self.cluster.start_s3()
            case "S3's machine is lost":
                self._machines["s3"].kill()
                time.sleep(seconds)
                self._machines["s3"].boot()
                self.cluster.start_s3()
            case _:
                if fault in LONG:
                    fault, seconds = fault.removesuffix(" for a minute"), MINUTE_S
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
        self._take_over()
        self._machines[self._spare].boot()

    def _replace_the_paused_driver(self) -> None:
        """It comes to life again in the middle of its epoch, and knows of nothing."""
        with self._machines[self._driver].paused():
            self._replaced.append(self._process)
            self._take_over()

    def _take_over(self) -> None:
        self._driver, self._spare = self._spare, self._driver
        self.start("--take-over")


def test_whatever_happens_to_machines_and_links_the_result_is_exact(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if reason := machines_missing():
        pytest.skip(reason)
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={ROUNDS}")
    folder = tmp_path_factory.mktemp("remote")
    with running_remote_cluster(folder, seed=SEED) as cluster:
        files = ROUNDS * (FILES_BEFORE + FILES_AFTER)
        project = RemoteProject(folder / "input", cluster.s3, files)
        truth = project.truth(spark)
        rounds = Rounds(cluster, project, SEED)
        try:
            rounds.start()
            for fault in faults(random.Random(SEED)):
                began = time.monotonic()
                rounds.round(fault)
                print(f"{fault}: {time.monotonic() - began:.1f} s")
            wait_until(lambda: project.published() == truth, "what has to come out")
        finally:
            rounds.end()
