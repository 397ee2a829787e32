"""SIGKILL at random times of driver, JVM and Python workers, while `lamina run` runs.

    LAMINA_KILLS=100 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_random_kills.py

A worker that dies is Spark's to replace, and the run goes on. A JVM that dies takes the run with
it: that has to be said, in one line. A driver that dies leaves a JVM behind, whose tasks may still
write when the next process is already recovering. All kills are of one pipeline in one home.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.support.exits import Exit
from tests.spark.kills import Project
from tests.spark.victims import Nursery, Process, wait_until_gone

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

KILLS = int(os.environ.get("LAMINA_KILLS", "2"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
KINDS = ("driver", "worker", "jvm", "worker", "driver", "worker")  # again and again, shuffled
FIRST_EPOCH_S = 2.0  # it takes longer: Spark is cold


def test_killed_at_random_it_loses_and_doubles_nothing(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={KILLS}")
    draw = random.Random(SEED)
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    draw.shuffle(kinds)
    if kinds[0] == "worker":  # the last one of all is the end of its process
        other = kinds.index("driver")
        kinds[0], kinds[other] = kinds[other], kinds[0]
    project = Project(tmp_path, files=2 * KILLS).write()
    truth, jvms, stands_at = project.truth(spark), [], 0
    while kinds:
        process = start(processes, project)
        assert process.until("recovered", "error")["epoch"] == stands_at
        jvms.append(process.jvm)
        live(process, kinds, draw)
        stands_at = project.check_so_far(truth)
    process = start(processes, project)
    assert process.until("recovered", "error")["epoch"] == stands_at
    assert process.until("ended", "error")["event"] == "ended"
    assert process.wait() == 0, process.said()
    project.check_whole(truth)
    for jvm in jvms:
        wait_until_gone(jvm)


def start(processes: Nursery, project: Project) -> Process:
    return processes.lamina(project.folder / "kills.sql", *project.options(), "--available-now")


def live(process: Process, kinds: list[str], draw: random.Random) -> None:
    """Until it is dead; a worker's death is not its own."""
    fastest = FIRST_EPOCH_S
    while kinds:
        if draw.random() < 0.5:
            fastest = min(fastest, process.until("epoch", "ended", "error")["seconds"])
        time.sleep(draw.random() * fastest)
        match kinds.pop():
            case "worker":
                kill_a_worker(process, draw)
            case "jvm":
                os.kill(process.jvm, signal.SIGKILL)
                ended = process.until("error", "ended")
                assert ended["error"]["kind"] == "SparkLost", ended
                assert process.wait() == Exit.FAILED, process.said()
                return
            case "driver":
                process.signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL, process.said()
                return


def kill_a_worker(process: Process, draw: random.Random) -> None:
    """There is none before the first job; it may be at work or wait for some."""
    while not (workers := process.workers()):
        time.sleep(0.01)
    os.kill(draw.choice(workers), signal.SIGKILL)
