"""Two copies of one task, both alive, and the later one is the loser (R1): on a real cluster.

An executor is stopped in its task; Spark's speculation runs a twin elsewhere, which wins; the epoch
is committed, and so is the next one. Then the executor goes on and writes. Once it had not opened
the log yet and so appends behind what others have committed; once it held the lock, with bytes that
were not synced.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from tests.spark import cluster_pipeline as pipeline
from tests.spark.cluster import (
    Cluster,
    app_settings,
    kill,
    running_cluster,
    wait_for,
    write_conf,
)

FAULTY = str(Path(__file__).parent / "executor_faults")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.efficiency.enabled": "false",
    # A stopped executor is not lost, however slow this machine is; but who wants something of it,
    # a piece of a broadcast, soon asks somebody else.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "600000",
    "spark.shuffle.io.connectionTimeout": "3s",
    "spark.shuffle.io.maxRetries": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shuffle files of a stopped executor are served by its worker."""
    with running_cluster(tmp_path_factory.mktemp("twins")) as started:
        started.add_workers(
            "one",
            options="-Dspark.shuffle.service.enabled=true "
            f"-Dspark.shuffle.service.port={started.shuffle_port}",
        )
        started.add_workers("two")
        yield started


class Late:
    """An attempt that a fault has stopped, with its executor."""

    def __init__(self, faults: Path, name: str) -> None:
        self._faults = faults
        self.epoch, self.core, self.place = name.split("-")
        struck = faults / f"{name}.struck"
        text = wait_for(name, lambda: struck.exists() and struck.read_text())
        self.tag, self.worker, self.jvm = text.split()

    def attempts(self, place: str) -> set[str]:
        """Who of this task came to a place."""
        lines = (self._faults / "attempts").read_text().splitlines()
        mine = [self.epoch, self.core, place]
        return {tag for *at, tag in map(str.split, lines) if at == mine}

    def resume(self) -> None:
        """First its Python, which writes on; then the JVM, which hears that it has lost."""
        twins = self.attempts("synced")
        assert twins, "no twin has won"
        assert self.tag not in twins
        os.kill(int(self.worker), signal.SIGCONT)
        wait_for("the late write", lambda: self.tag in self.attempts("synced"))
        os.kill(int(self.jvm), signal.SIGCONT)

    def __enter__(self) -> Late:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:  # nobody else ends what is stopped
            kill(int(self.worker))
            kill(int(self.jvm))


def after_epoch(events: Iterator[dict[str, Any]], epoch: int) -> None:
    for event in events:
        assert event["event"] != "error", event
        if event["event"] == "epoch" and event["epoch"] >= epoch:
            return
    raise AssertionError(f"it has ended before epoch {epoch}")


def test_late_twins_write_after_the_commit_and_nothing_is_damaged_or_counted_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
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


def verify(folder: Path) -> None:
    """The log of the pipeline is whole."""
    found = pipeline.ask("wal", "verify", "--home", folder / ".lamina" / "trades" / "home")
    assert found.returncode == 0, found.stdout + found.stderr
