"""Two processes on one pipeline, each with its Spark: one of them can go on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills import Project
from tests.spark.victims import Nursery, wait_until_stopped

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")


def test_who_slept_through_a_takeover_is_fenced_when_it_wakes(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    """It sleeps at the worst moment: its epoch is decided in its home, and no sink has it."""
    project = Project(tmp_path, files=5).write()
    truth = project.truth(spark)
    first, second = processes.child(), processes.child()
    first.tell(project.asked(until_epoch=2))  # and a checkpoint of epoch 2
    assert first.until("ended", "error") == {"event": "ended", "epoch": 2}
    asleep = ["after COMMIT", 1, signal.SIGSTOP]
    first.tell(project.asked(checkpoint_epochs=0, bomb=asleep))
    assert first.until("at", "ended", "error")["event"] == "at"
    wait_until_stopped(first.pid)

    # It holds the lock of its home, also when it sleeps.
    second.tell(project.asked())
    refused = second.until("ended", "error")
    assert (refused["event"], refused.get("kind")) == ("error", "Fenced"), refused
    # Another home needs a person's word.
    second.tell(project.asked(home="other"))
    refused = second.until("ended", "error")
    assert (refused["event"], refused.get("kind")) == ("error", "Refused"), refused
    second.tell(project.asked(home="other", take_over_home=True, until_epoch=4))
    assert second.until("recovered", "error")["epoch"] == 2
    assert second.until("ended", "error") == {"event": "ended", "epoch": 4}

    first.signal(signal.SIGCONT)
    fenced = first.until("ended", "error")
    assert (fenced["event"], fenced.get("kind")) == ("error", "Fenced"), fenced
    first.tell(project.asked())  # and it cannot come back by itself
    refused = first.until("ended", "error")
    assert (refused["event"], refused.get("kind")) == ("error", "Refused"), refused

    second.tell(project.asked(home="other"))
    assert second.until("recovered", "error")["epoch"] == 4
    assert second.until("ended", "error")["event"] == "ended"
    project.check_whole(truth)
    project.check_so_far(truth, home="other")
