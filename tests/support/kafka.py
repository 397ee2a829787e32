"""Kafka for tests: sinks as a pipeline opens them, and topics as a reader sees them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lamina.clock import SystemClock
from lamina.connectors.kafka.failures import Call, no_call
from lamina.connectors.kafka.sink import KafkaSink
from lamina.connectors.kafka.sink_opening import open_sink
from lamina.connectors.kinds import SinkContext
from lamina.connectors.opening import check_sink
from lamina.engine.ports import Output, Publication
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.pipeline.model import DeclaredSink, Option
from lamina.workspace.model import Staged
from lamina.workspace.notes import LocalNotes
from lamina.workspace.staging import HomeStaged

_SETTLED_S = 0.1


def kafka_sink(
    servers: str,
    topic: str,
    output: Output | None,
    *,
    name: str = "out",
    call: Call = no_call,
    **options: str,
) -> KafkaSink:
    """With *options*, in whose names __ stands for a dot."""
    texts = {"kafka.bootstrap.servers": servers, "topic": topic}
    texts |= {option.replace("__", "."): value for option, value in options.items()}
    written = {key: Option("${X}", value) for key, value in texts.items()}
    sink = DeclaredSink(name, "stream", "kafka", written)
    given = check_sink(sink, Path())
    return open_sink(
        SinkContext(sink, given, LocalNotes(Path("none")), sys.stdout, output), call=call
    )


def create_topic(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)


@dataclass(frozen=True, slots=True)
class Read:
    """A message that a reader got."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


@dataclass
class TopicReader:
    """Reads a topic from its beginning, as often as it is asked."""

    servers: str
    topic: str
    partitions: int = 1
    isolation: str = "read_committed"

    def __post_init__(self) -> None:
        self._lock = Lock()

    def read(self) -> list[Read]:
        """All messages up to the end."""
        with self._lock:
            self._wait_until_settled()
            client = self._client
            client.assign([TopicPartition(self.topic, n, 0) for n in range(self.partitions)])
            try:
                return self._messages(client)
            finally:
                client.unassign()

    def _messages(self, client: Consumer) -> list[Read]:
        found: list[Read] = []
        ended: set[int] = set()
        while len(ended) < self.partitions:
            message = client.poll(20)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                found.append(_read(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return found

    def _wait_until_settled(self) -> None:
        """A commit is answered a moment before it is visible; what is open stays invisible."""
        clock = SystemClock()
        started = clock.monotonic()
        while clock.monotonic() - started < _SETTLED_S:
            stable = [self._end(self._client, n) for n in range(self.partitions)]
            if stable == [self._end(self._any_client, n) for n in range(self.partitions)]:
                return
            clock.wait(0.005)

    def _end(self, client: Consumer, partition: int) -> Any:
        return client.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=20)[1]

    @cached_property
    def _client(self) -> Consumer:
        return self._consumer(self.isolation)

    @cached_property
    def _any_client(self) -> Consumer:
        return self._consumer("read_uncommitted")

    def _consumer(self, isolation: str) -> Consumer:
        settings: Mapping[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 20 << 20,
            "log_level": 0,
        }
        return Consumer(dict(settings))


def _read(message: Any) -> Read:
    return Read(
        message.partition(),
        message.key(),
        message.value(),
        message.headers() or [],
        message.timestamp()[1],
    )


PIPELINE = Owner("p" * 32, "p")


def publication(
    home: Path,
    table: pa.Table,
    epoch: int,
    *,
    generation: int = 1,
    output: Output | None = None,
) -> Publication:
    """An epoch whose output is *table*, in one staged file."""
    home.mkdir(exist_ok=True)
    path = home / f"{epoch}-{generation}.parquet"
    pq.write_table(table, path)
    data = path.read_bytes()
    staged = Staged(path.name, len(data), hashlib.sha256(data).hexdigest(), table.num_rows)
    point = Point(epoch, f"{epoch:064x}")
    return Publication(
        PIPELINE, generation, point, [staged], HomeStaged(home), output or Output(table.schema)
    )
