"""One job per stream and epoch, however many files there are; the state step is in its last stage.

A join is a step of its own. The rows of both sides of it come together in its job; a join with a
table is a part of the job of the stream that reads it.

A job more is time; an exchange behind the state step would run it twice (R8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.spark.running import PARTITIONS, Place, Run, comparable, job_count

COLUMNS = "k STRING, v INT, ts TIMESTAMP"
TEXT = f"""
CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 1 SECOND;
CREATE TABLE names (k STRING, name STRING) USING csv OPTIONS (path 'names');
CREATE STREAM windowed AS SELECT k, window.start AS s, sum(v) / count(*) AS mean FROM t
  GROUP BY k, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE STREAM chosen AS SELECT k, v FROM t WHERE v = 7;
CREATE STREAM counted AS SELECT k, sum(v) AS v FROM chosen GROUP BY k EMIT ON UPDATE;
CREATE STREAM copied AS SELECT * FROM chosen;
CREATE STREAM pairs AS SELECT a.k, a.v, b.v AS w FROM t a LEFT JOIN (SELECT k, v, ts FROM t) b
  ON a.k = b.k AND a.v < b.v AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 SECOND;
CREATE STREAM newest AS SELECT a.k, b.v FROM t a ASOF JOIN (SELECT k, v, ts FROM t) b
  MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k;
CREATE STREAM named AS SELECT t.k, name, v FROM t LEFT JOIN names n ON t.k = n.k WHERE v = 7;
CREATE STREAM by_name AS SELECT name, count(*) AS n FROM t JOIN names n ON t.k = n.k GROUP BY name
  EMIT ON UPDATE;
CREATE SINK a FROM windowed USING parquet OPTIONS (path 'windowed');
CREATE SINK b FROM counted USING parquet OPTIONS (path 'counted');
CREATE SINK c FROM copied USING parquet OPTIONS (path 'copied');
CREATE SINK d FROM pairs USING parquet OPTIONS (path 'pairs');
CREATE SINK e FROM newest USING parquet OPTIONS (path 'newest');
CREATE SINK f FROM named USING parquet OPTIONS (path 'named');
CREATE SINK g FROM by_name USING parquet OPTIONS (path 'by_name');
"""
STREAMS = (
    *("windowed", "chosen", "counted", "copied", "named", "by_name"),
    *("pairs.join", "pairs", "newest.join", "newest"),
)
MANY = 100


class Jobs:
    """The jobs of every stream in every epoch, as the tasks of each of their stages."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._before = 0
        self.epochs: list[dict[str, list[Sequence[int]]]] = [{}]

    def __call__(self, point: str) -> None:
        step, _, stream = point.partition(" ")
        if stream not in STREAMS:
            return
        if step == "before" and stream in self.epochs[-1]:
            self.epochs.append({})  # the next one
        if step == "before":
            self._before = job_count(self._spark)
            self.epochs[-1][stream] = []
        else:
            numbers = range(self._before, job_count(self._spark))
            self.epochs[-1][stream] = [self._stages(number) for number in numbers]

    def _stages(self, job: int) -> Sequence[int]:
        context = self._spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        tracker = context.statusTracker()
        found = [tracker.getStageInfo(each) for each in sorted(tracker.getJobInfo(job).stageIds)]
        return [stage.numTasks for stage in found]


@pytest.fixture(scope="module")
def jobs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """One file, then the step of the watermark; then a hundred files, and the step again."""
    place = Place(tmp_path_factory.mktemp("jobs"))
    jobs = Jobs(spark)
    run = Run(spark, place, files=None, fail_point=jobs)
    row = {"k": "a", "v": 1, "ts": "2024-01-01T00:00:59Z"}
    (place.folder / "names").mkdir()
    (place.folder / "names" / "all.csv").write_text("a,the first\n")
    place.put_json([[row, {**row, "ts": "2024-01-01T00:01:30Z"}]])
    run(TEXT)
    later = [[{"k": "a", "v": 7, "ts": f"2024-01-01T00:{n % 50 + 2:02d}:00Z"}] for n in range(MANY)]
    place.put_json([[row, {**row, "ts": "2024-01-01T00:01:30Z"}], *later])
    run(TEXT)
    assert comparable(place.latest(1, "counted")) == ["['a', 700]"]
    assert len(place.rows("copied")) == MANY
    return jobs


ONE_FILE, NO_FILE, MANY_FILES, NO_FILE_AGAIN = range(4)


def test_the_epochs_are_those_that_the_other_tests_mean(jobs: Jobs) -> None:
    assert len(jobs.epochs) == 4


@pytest.mark.parametrize("epoch", [ONE_FILE, MANY_FILES])
def test_a_stream_with_state_is_one_job_of_two_stages(jobs: Jobs, epoch: int) -> None:
    (stages,) = jobs.epochs[epoch]["windowed"]
    assert len(stages) == 2
    assert stages[-1] == PARTITIONS  # both steps in Python are in it: nothing follows the state


@pytest.mark.parametrize("epoch", [ONE_FILE, MANY_FILES])
def test_a_stream_without_state_is_one_job_of_one_stage(jobs: Jobs, epoch: int) -> None:
    (stages,) = jobs.epochs[epoch]["chosen"]
    assert len(stages) == 1


@pytest.mark.parametrize("epoch", [NO_FILE, NO_FILE_AGAIN])
def test_a_step_of_the_watermark_is_one_job_of_one_task_for_each_partition(
    jobs: Jobs, epoch: int
) -> None:
    found = jobs.epochs[epoch]
    assert found["windowed"] == found["counted"] == [[PARTITIONS]]


@pytest.mark.parametrize("epoch", [NO_FILE, NO_FILE_AGAIN])
def test_without_input_and_state_there_is_no_job(jobs: Jobs, epoch: int) -> None:
    assert jobs.epochs[epoch]["chosen"] == jobs.epochs[epoch]["copied"] == []


def test_a_stream_on_a_stream_without_rows_has_nothing_to_read(jobs: Jobs) -> None:
    assert jobs.epochs[ONE_FILE]["counted"] == [[PARTITIONS]]
    assert jobs.epochs[ONE_FILE]["copied"] == []


def test_a_stream_on_a_stream_is_one_job(jobs: Jobs) -> None:
    (counted,) = jobs.epochs[MANY_FILES]["counted"]
    (copied,) = jobs.epochs[MANY_FILES]["copied"]
    assert (len(counted), counted[-1], len(copied)) == (2, PARTITIONS, 1)


@pytest.mark.parametrize("epoch", [ONE_FILE, MANY_FILES])
@pytest.mark.parametrize("join", ["pairs", "newest"])
def test_a_join_is_one_job_for_both_of_its_sides(jobs: Jobs, join: str, epoch: int) -> None:
    """And one for the SELECT that reads its pairs, if there are any."""
    (stages,) = jobs.epochs[epoch][f"{join}.join"]
    assert len(stages) == 2
    assert stages[-1] == PARTITIONS
    assert [len(each) for each in jobs.epochs[epoch][join]] in ([1], [])


@pytest.mark.parametrize("epoch", [NO_FILE, NO_FILE_AGAIN])
@pytest.mark.parametrize("join", ["pairs.join", "newest.join"])
def test_rows_of_a_join_that_wait_for_the_watermark_are_one_job(
    jobs: Jobs, join: str, epoch: int
) -> None:
    assert jobs.epochs[epoch][join] == [[PARTITIONS]]


@pytest.mark.parametrize(("stream", "stages"), [("named", 1), ("by_name", 2)])
def test_a_small_table_is_sent_in_a_job_of_its_own_and_joined_in_that_of_the_stream(
    jobs: Jobs, stream: str, stages: int
) -> None:
    for epoch in (ONE_FILE, MANY_FILES):
        sent, joined = sorted(jobs.epochs[epoch][stream], key=len)
        assert len(sent) == 1
        assert len(joined) == stages
    assert jobs.epochs[NO_FILE][stream] == ([[PARTITIONS]] if stages == 2 else [])
