"""Another number of partitions in mid-stream: 2, then 8, then 4, one of them after kill -9."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills import Project
from tests.spark.victims import Nursery

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")


def test_rescaled_from_2_to_8_to_4_it_loses_and_doubles_nothing(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    project = Project(tmp_path, files=6).write()
    truth = project.truth(spark)
    assert {3, 5} <= set(truth.epochs["bars"]), "windows are open where it is rescaled"

    child = processes.child()
    child.tell(project.asked(partitions=2, until_epoch=2))
    assert child.until("ended", "error") == {"event": "ended", "epoch": 2}
    child.tell(project.asked(partitions=8, bomb=["after COMMIT", 2, signal.SIGKILL]))
    assert child.until("recovered", "error")["epoch"] == 2
    assert child.until("at", "ended", "error")["event"] == "at"
    assert child.wait() == -signal.SIGKILL, child.said()
    assert project.check_so_far(truth) == 4

    child = processes.child()
    child.tell(project.asked(partitions=4))
    assert child.until("recovered", "error")["epoch"] == 4
    assert child.until("ended", "error")["event"] == "ended"
    project.check_whole(truth)
    project.check_so_far(truth)
