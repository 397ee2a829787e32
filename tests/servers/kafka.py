"""A real Apache Kafka: one broker in KRaft mode, its jars from Maven Central (`make kafka`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lamina.spark.java import java_home
from tests.servers.process import Server, free_port

_JARS = Path(__file__).parent / "kafka_jars"
BROKER_JARS = _JARS / "broker"
SPARK_JARS = _JARS / "spark"
_CLUSTER = "bGFtaW5hIHRlc3RzIGthZg"
_MEMORY = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def kafka_missing() -> str:
    """Why no broker can run here, or the empty text."""
    return "" if BROKER_JARS.is_dir() and SPARK_JARS.is_dir() else "no jars of Kafka: make kafka"


@dataclass
class KafkaServer:
    """A broker that can be killed and started again, on the same port with the same data."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _server: Server | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Once, before the first start."""
        text = "".join(f"{name}={value}\n" for name, value in self._properties().items())
        (self.folder / "server.properties").write_text(text)
        command = [*self._java(), "kafka.tools.StorageTool", "format", "--standalone"]
        command += ["-t", _CLUSTER, "-c", "server.properties"]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def start(self) -> None:
        self._server = Server(
            [*self._java(), "kafka.Kafka", "server.properties"], self.folder, self._is_ready
        )

    def kill(self) -> None:
        """SIGKILL: what was acknowledged is in its log."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    @contextmanager
    def down(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    def _java(self) -> list[str]:
        home = java_home(self.folder)
        assert home is not None, "Spark's tests need a Java, too"
        return [str(home / "bin" / "java"), *_MEMORY, "-cp", f"{BROKER_JARS}/*"]

    def _properties(self) -> dict[str, str]:
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self.settings,
        }

    def _is_ready(self) -> bool:
        """Ready is not an open port: it answers for the whole cluster."""
        from confluent_kafka import KafkaException  # noqa: PLC0415  an extra
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


@contextmanager
def kafka(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[KafkaServer]:
    server = KafkaServer(folder, settings or {})
    server.format()
    server.start()
    try:
        yield server
    finally:
        server.kill()
