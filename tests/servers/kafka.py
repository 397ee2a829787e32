"""A real Apache Kafka: one broker in KRaft mode, its jars from Maven Central (`make kafka`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

    def log_of(self, topic: str) -> Path:
        """The newest records of partition 0, on disk; a topic of the tests has one segment."""
        return self.folder / "data" / f"{topic}-0" / "00000000000000000000.log"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        from confluent_kafka.admin import NewTopic  # noqa: PLC0415  an extra

        topic, admin = NewTopic(name, partitions, config=settings), self.admin()
        for made in admin.create_topics([topic]).values():
            made.result(timeout=30)

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  an extra

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def producer(self, **settings: str) -> Any:
        from confluent_kafka import Producer  # noqa: PLC0415  an extra

        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **settings})

    def read_all(self, topic: str) -> list[Any]:
        """Every message that a reader of committed ones sees, partition by partition."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition  # noqa: PLC0415  an extra

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            found: list[Any] = []
            for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
                consumer.assign([TopicPartition(topic, partition, 0)])
                while True:
                    message = consumer.poll(30)
                    assert message is not None, f"the end of {topic} does not come"
                    if message.error() is None:
                        found.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        break
                    else:
                        raise AssertionError(message.error())
            return found
        finally:
            consumer.close()

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
            # A killed broker may not register again before its old session is over.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self.settings,
        }

    def _is_ready(self) -> bool:
        """Ready is not an open port: it answers for the whole cluster."""
        from confluent_kafka import KafkaException  # noqa: PLC0415  an extra

        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
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
