"""Tasks that fail after their WAL append and are run again: the first append does not exist."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills import Project
from tests.spark.victims import Nursery

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

FAULTS = Path(__file__).parent / "worker_faults"


def test_a_task_that_fails_or_dies_after_its_append_is_run_again_and_doubles_nothing(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    """Where it fails: tests/spark/worker_faults/sitecustomize.py."""
    project = Project(tmp_path / "project", files=4).write()
    truth = project.truth(spark)
    tripped = tmp_path / "tripped"
    tripped.mkdir()
    path = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    child = processes.child(PYTHONPATH=path, TRIP_FOLDER=str(tripped))
    asleep = ["after publish", 4, signal.SIGSTOP]
    child.tell(project.asked(checkpoint_epochs=0, bomb=asleep))
    said = child.until("at", "ended", "error")
    assert said["event"] == "at", said
    assert {each.name for each in tripped.iterdir()} == {"raise-1", "die-2", "raise-3", "die-4"}
    assert project.check_so_far(truth) == 4
    assert project.plan()["entries_dropped"] > 0, "a failed task has appended nothing"
    child.signal(signal.SIGCONT)
    ended = child.until("ended", "error")
    assert ended["event"] == "ended", ended
    project.check_whole(truth)
    project.check_so_far(truth)
