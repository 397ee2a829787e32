"""What a cluster answers, as a source understands it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import TopicPartition

from lamina.connectors.kafka.broker import Broker
from lamina.errors import StoreUnavailable

INVALID = -1001
"""What librdkafka has where it knows no offset."""


class Client:
    """An admin client whose brokers know these offsets."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets

    def poll(self, timeout: float) -> int:
        del timeout
        return 0

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {}
        for part in asked:
            answers[part] = Future()
            answers[part].set_result(SimpleNamespace(offset=self._offsets.pop(0)))
        return answers


def broker(monkeypatch: pytest.MonkeyPatch, offsets: list[int]) -> Broker:
    client = Client(offsets)
    monkeypatch.setattr("lamina.connectors.kafka.broker.AdminClient", lambda _: client)
    return Broker({"bootstrap.servers": "127.0.0.1:1"}, "payments")


def test_an_offset_that_no_broker_knew_was_taken_for_a_topic_that_had_lost_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StoreUnavailable, match="partition 0 of the topic 't'"):
        broker(monkeypatch, [0, INVALID]).bounds([("t", 0)])
    (bounds,) = broker(monkeypatch, [0, 7]).bounds([("t", 0)]).values()
    assert (bounds.earliest, bounds.latest) == (0, 7)
