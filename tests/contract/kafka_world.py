"""A topic of a real Kafka as a world of the sink contract.

It has one partition: Kafka shows a transaction partition by partition, each part of it at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest

from lamina.engine.ports import Sink
from tests.contract.sinks import APPENDED, Hook, Shown, by_epoch, nothing
from tests.servers import KafkaServer
from tests.support.kafka import TopicReader, create_topic, kafka_sink

_numbers = count()


class KafkaWorld:
    exactly_once = True

    def __init__(self, server: KafkaServer) -> None:
        self._server, self._topic = server, f"contract-{next(_numbers)}"
        create_topic(server.bootstrap, self._topic)
        self._reader = TopicReader(server.bootstrap, self._topic)

    def open(self, hook: Hook = nothing) -> Sink:
        return kafka_sink(
            self._server.bootstrap, self._topic, APPENDED, call=hook, timeout="5 seconds"
        )

    def open_without_stream(self) -> Sink:
        return kafka_sink(self._server.bootstrap, self._topic, None, timeout="5 seconds")

    def shown(self) -> Shown:
        return by_epoch(json.loads(each.value or b"")["v"] for each in self._reader.read())

    def down(self) -> AbstractContextManager[None]:
        return self._server.down()


def make_kafka(request: pytest.FixtureRequest, _: Path) -> Callable[[], KafkaWorld]:
    server: KafkaServer = request.getfixturevalue("kafka_server")
    return lambda: KafkaWorld(server)
