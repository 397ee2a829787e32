"""Tasks that fail after their WAL append and are run again: the first append does not exist."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills import Project
from tests.spark.victims import Nursery, nursery

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(tmp_path_factory) as made:
        yield made


def test_a_task_that_fails_or_dies_after_its_append_is_run_again_and_doubles_nothing(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    """The final projection comes after the append: a function in it fails there, the first time."""
    project = Project(tmp_path / "project", files=6)
    project.write(totals_symbol="trip(symbol, CAST(count(*) AS INT))")
    truth = project.truth(spark)
    tripped = tmp_path / "tripped"
    tripped.mkdir()
    child = processes.child()
    asleep = ["after publish", 6, signal.SIGSTOP]
    child.tell(project.asked(trip=str(tripped), checkpoint_epochs=0, bomb=asleep))
    assert child.until("at", "ended", "error")["event"] == "at"
    assert {each.name for each in tripped.iterdir()} >= {"raise-0", "raise-1", "die-0", "die-1"}
    assert project.check_so_far(truth) == 6
    assert project.plan()["entries_dropped"] > 0, "a failed task has appended nothing"
    child.signal(signal.SIGCONT)
    ended = child.until("ended", "error")
    assert ended["event"] == "ended", ended
    project.check_whole(truth)
    project.check_so_far(truth)
