"""Topics of a real broker: made, written, cut and deleted; every call ends in ten seconds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from lamina.clock import SystemClock
from tests.servers.kafka import KafkaServer

ANSWER_S = 20.0
_numbers = itertools.count()


@dataclass
class Topics:
    """What a test does to the topics of a broker."""

    server: KafkaServer
    _admin: Any = field(init=False)
    _producer: Any = field(init=False)

    def __post_init__(self) -> None:
        settings = {"bootstrap.servers": self.server.bootstrap, "log_level": 0}
        self._admin = AdminClient(settings)
        self._open_producer()

    def _open_producer(self) -> None:
        """A new one: one that is open learns of new partitions only after minutes."""
        settings = {"bootstrap.servers": self.server.bootstrap, "log_level": 0}
        self._producer = Producer({**settings, "message.max.bytes": 30_000_000})

    def new(
        self, partitions: int = 1, *, name: str = "", settings: Mapping[str, str] | None = None
    ) -> str:
        """A topic of its own."""
        name = name or f"topic-{next(_numbers)}"
        made = NewTopic(name, partitions, config=dict(settings or {}))
        self._admin.create_topics([made])[name].result(timeout=ANSWER_S)
        self._wait_for(name, partitions)
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(timeout=ANSWER_S)
        self._until(lambda: name not in self._admin.list_topics(timeout=ANSWER_S).topics)

    def grow(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(ANSWER_S)
        self._wait_for(name, partitions)
        self._open_producer()

    def put(
        self,
        name: str,
        rows: Iterable[Any],
        *,
        partition: int = 0,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Rows as JSON; bytes, text and None as they are."""
        for row in rows:
            plain = row is None or isinstance(row, bytes | str)
            value = row if plain else json.dumps(row)
            extra = {"headers": list(headers.items())} if headers else {}
            self._producer.produce(name, value, key=key, partition=partition, **extra)
        assert self._producer.flush(ANSWER_S) == 0

    def transaction(
        self, name: str, rows: Iterable[Any], *, partition: int = 0, commit: bool = True
    ) -> None:
        settings = {"bootstrap.servers": self.server.bootstrap, "log_level": 0}
        producer = Producer({**settings, "transactional.id": f"test-{next(_numbers)}"})
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        for row in rows:
            producer.produce(name, json.dumps(row), partition=partition)
        assert producer.flush(ANSWER_S) == 0
        if commit:
            producer.commit_transaction(ANSWER_S)
        else:
            producer.abort_transaction(ANSWER_S)

    def end(self, name: str, partition: int = 0) -> int:
        asked = self._admin.list_offsets({TopicPartition(name, partition): OffsetSpec.latest()})
        (answer,) = (each.result(timeout=ANSWER_S) for each in asked.values())
        return int(answer.offset)

    def cut(self, name: str, before: int, partition: int = 0) -> None:
        """Delete the rows before an offset, as retention does."""
        part = TopicPartition(name, partition, before)
        asked = self._admin.delete_records([part], operation_timeout=ANSWER_S)
        for each in asked.values():
            each.result(timeout=ANSWER_S)

    def change(self, name: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name, set_config=dict(settings))
        for each in self._admin.alter_configs([resource]).values():
            each.result(timeout=ANSWER_S)

    def _wait_for(self, name: str, partitions: int) -> None:
        def is_there() -> bool:
            found = self._admin.list_topics(name, timeout=ANSWER_S).topics[name].partitions
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())

        self._until(is_there)

    def _until(self, condition: Any) -> None:
        clock = SystemClock()
        started = clock.monotonic()
        while not condition():
            assert clock.monotonic() - started < ANSWER_S
            clock.wait(0.05)
