"""Killed with SIGKILL at places of an epoch, on Spark: what comes out is what a batch gives.

One home lives through all of them: each start is the recovery of the last kill and the victim of
the next, and some have another number of partitions: 2, then 8, then 4. By default three places,
with LAMINA_KILLS=100 all six; tests/engine kills at every step, without Spark.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.kills import Project, Truth
from tests.spark.victims import Nursery, wait_until_gone

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

IS_LONG = "LAMINA_KILLS" in os.environ
FILES = 8 if IS_LONG else 6
ALL_PLACES = (  # where, and the n-th time; whether the epoch that it happens in counts; partitions
    ("after bars", 2, False, 2),  # the state of one stream is in the log, nothing is decided
    ("before COMMIT", 2, False, 2),
    ("after COMMIT", 1, True, 8),
    ("rename to out/best/epoch-", 1, True, 8),  # two sinks have the epoch, the others not
    ("before note", 1, True, 4),  # there is a checkpoint, and the log does not know
    ("dropped driver", 1, True, 4),  # half of what nobody needs is gone
)
PLACES = ALL_PLACES if IS_LONG else ALL_PLACES[::2]


@pytest.fixture(scope="module")
def truth(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return Project(tmp_path_factory.mktemp("truth"), FILES).write().truth(spark)


def test_killed_at_places_of_an_epoch_and_rescaled_it_loses_and_doubles_nothing(
    processes: Nursery, truth: Truth, tmp_path: Path
) -> None:
    project = Project(tmp_path, FILES).write()
    assert set(range(3, FILES)) <= set(truth.epochs["bars"]), "windows are open at each of them"
    stands_at, jvms, spare = 0, [], processes.child()
    for place, nth, counts, partitions in PLACES:
        child, spare = spare, processes.child()  # its Spark starts while this one runs
        child.tell(project.asked(partitions=partitions, bomb=[place, nth, signal.SIGKILL]))
        assert child.until("recovered", "error")["epoch"] == stands_at
        jvms.append(child.jvm)
        said = list(child.events())
        assert child.wait() == -signal.SIGKILL, child.said()
        assert said[-1] == {"event": "at", "place": place}
        done = [event["epoch"] for event in said if event["event"] == "epoch"]
        last = max(done, default=stands_at)
        stands_at = project.check_so_far(truth)
        assert stands_at in (last, last + counts), place
    spare.tell(project.asked())
    assert spare.until("recovered", "error")["epoch"] == stands_at
    assert spare.until("ended", "error")["event"] == "ended"
    project.check_whole(truth)
    for jvm in jvms:  # nobody killed them: they see that their driver has gone
        wait_until_gone(jvm)

    # Rows that come out twice, or not at all, would have been seen.
    shown = max((tmp_path / "out" / "bars").glob("epoch-*/*.parquet"))
    twice = Path(shutil.copy(shown, shown.with_name("part-99999.parquet")))
    with pytest.raises(AssertionError, match="bars"):
        project.check_whole(truth)
    twice.unlink()
    shown.unlink()
    with pytest.raises(AssertionError, match="bars"):
        project.check_whole(truth)
