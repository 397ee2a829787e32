"""A standalone cluster: exact with a shared home, whatever executors do; refused without one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from tests.spark import cluster_pipeline as pipeline
from tests.spark.cluster import (
    Cluster,
    app_settings,
    can_hide_folders,
    kill,
    running_cluster,
    wait_for,
    write_conf,
)
from tests.spark.late_twins import SPECULATION, Late, after_epoch

FAULTY = str(Path(__file__).parent / "executor_faults")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For all tests here. The shuffle files of a stopped executor are served by its worker."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.add_workers(
            "one",
            options="-Dspark.shuffle.service.enabled=true "
            f"-Dspark.shuffle.service.port={started.shuffle_port}",
        )
        started.add_workers("two")
        yield started


def test_an_executor_is_killed_in_its_task_and_the_result_is_exact(
    cluster: Cluster, tmp_path: Path
) -> None:
    file, faults = pipeline.write_project(tmp_path), tmp_path / "faults"
    faults.mkdir()
    (faults / "3-1-sync").write_text("kill")
    settings = app_settings(cores=2) | {
        "spark.executorEnv.PYTHONPATH": FAULTY,
        "spark.executorEnv.LAMINA_TEST_FAULTS": str(faults),
    }
    conf = {"SPARK_CONF_DIR": str(write_conf(tmp_path / "conf", settings))}
    with pipeline.started(file, cluster.url, cluster.environment | conf) as (process, events):
        first = next(events)
        assert first["event"] == "recovered", first
        before = set(
            wait_for("two executors", lambda: cluster.executors()[1:] and cluster.executors())
        )
        tag, worker, jvm = wait_for(
            "the fault",
            lambda: (
                (faults / "3-1-sync.struck").exists()
                and (faults / "3-1-sync.struck").read_text().split()
            ),
        )
        kill(int(worker))
        assert int(jvm) in before
        ended = list(events)[-1]
        assert process.wait() == 0
    assert (ended["event"], ended["epoch"]) == ("ended", pipeline.FILES + 1)
    tried = [line.split() for line in (faults / "attempts").read_text().splitlines()]
    synced = {each[3] for each in tried if each[:3] == ["3", "1", "synced"]}
    assert synced, "nobody did the task of the killed executor again"
    assert tag not in synced
    assert pipeline.published(tmp_path) == pipeline.truth(tmp_path)
    verify(tmp_path)


def verify(folder: Path) -> None:
    """The log of the pipeline is whole."""
    found = pipeline.ask("wal", "verify", "--home", folder / ".lamina" / "trades" / "home")
    assert found.returncode == 0, found.stdout + found.stderr


def test_late_twins_write_after_the_commit_and_nothing_is_damaged_or_counted_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two copies of one task, both alive, and the later one is the loser (R1).

    An executor is stopped in its task; Spark's speculation runs a twin elsewhere, which wins; the
    epoch is committed, and so is the next one. Then the executor goes on and writes. Once it had
    not opened the log yet and so appends behind what others have committed; once it held the lock,
    with bytes that were not synced.
    """
    file, faults = pipeline.write_project(tmp_path), tmp_path / "faults"
    faults.mkdir()
    settings = (
        app_settings(cores=2)
        | SPECULATION
        | {
            "spark.shuffle.service.enabled": "true",
            "spark.shuffle.service.port": str(cluster.shuffle_port),
            "spark.executorEnv.PYTHONPATH": FAULTY,
            "spark.executorEnv.LAMINA_TEST_FAULTS": str(faults),
        }
    )
    conf = {"SPARK_CONF_DIR": str(write_conf(tmp_path / "conf", settings))}
    environment = cluster.environment | conf
    (faults / "2-0-open").write_text("stop")
    (faults / "4-1-sync").write_text("stop")
    with pipeline.started(file, cluster.url, environment) as (process, events):
        for name, later in (("2-0-open", 3), ("4-1-sync", 5)):
            with Late(faults, name) as late:
                after_epoch(events, later)
                late.resume()
        # Killed with what the late ones wrote in its log.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    verify(tmp_path)
    with pipeline.started(file, cluster.url, environment) as (process, events):
        recovered, *_, ended = events
        assert process.wait() == 0, ended
    assert recovered["epoch"] >= 5
    assert ended["epoch"] == pipeline.FILES + 1
    assert pipeline.published(tmp_path) == pipeline.truth(tmp_path)
    verify(tmp_path)


def test_a_worker_that_does_not_see_the_home_is_refused_by_name(
    cluster: Cluster, tmp_path: Path
) -> None:
    if not can_hide_folders(tmp_path):
        pytest.skip("only root with mount namespaces can give a worker folders of its own")
    file = pipeline.write_project(tmp_path)
    cluster.add_workers("apart", hidden=tmp_path)
    conf = {"SPARK_CONF_DIR": str(write_conf(tmp_path / "conf", app_settings(cores=3)))}
    with pipeline.started(file, cluster.url, cluster.environment | conf) as (process, events):
        (refused,) = events
        assert process.wait() == 5
    error = refused["error"]
    assert error["code"] == "LAM-2104"
    assert " of 4 tasks do not see the home" in error["message"]  # one each, and one for any
    assert "/apart/" in error["message"]
    assert "--master" in error["advice"]
    home = tmp_path / ".lamina" / "trades" / "home"
    left = {path.name for path in home.iterdir()}
    assert left == {"lock", "status.json"}, "nothing was claimed, and the nonce is gone"
