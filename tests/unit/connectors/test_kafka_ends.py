"""Where a topic ends, and what that says about a transaction that hangs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lamina.connectors.kafka.ends import Ends, open_since, written_since
from lamina.connectors.kafka.failures import no_call
from lamina.connectors.kafka.mark import Mark, decode_mark, encode_mark
from lamina.connectors.kafka.topics import Place
from lamina.engine.ports import Output
from lamina.errors import NotFound, StoreUnavailable
from lamina.format.commit import Point
from lamina.testing.clock import ManualClock
from tests.support.kafka import PIPELINE, kafka_sink

PLACE = Place("127.0.0.1:1", "t", "t-lamina-mark", 5.0)
UNHEARD = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
EPOCH = Mark("t", "out", PIPELINE, 1, Point(1, "ab" * 32), 3, {0: 5})


@dataclass
class Client:
    """A consumer of a broker that tells, in turn, what it has heard of the topic."""

    told: list[Any]
    ends: dict[int, int] = field(default_factory=lambda: {0: 8, 1: 0})

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        now = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        found = (
            SimpleNamespace(error=now, partitions={})
            if isinstance(now, KafkaError)
            else SimpleNamespace(error=None, partitions=dict.fromkeys(now))
        )
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, part: TopicPartition, timeout: float) -> tuple[int, int]:
        del timeout
        return 0, self.ends[part.partition]


def ends_of(*told: Any) -> dict[int, int]:
    client: Any = Client(list(told))
    return Ends(PLACE, clock=ManualClock(), call=no_call).now(client)


def test_a_topic_that_the_broker_has_not_heard_of_yet_was_taken_for_an_empty_one() -> None:
    assert ends_of(UNHEARD, [], [0, 1]) == {0: 8, 1: 0}
    with pytest.raises(NotFound, match="UNKNOWN_TOPIC"):
        ends_of(UNHEARD)
    with pytest.raises(StoreUnavailable, match="no partitions"):
        ends_of([])


def test_what_hangs_is_aborted_only_if_no_reader_has_got_past_where_it_began() -> None:
    before = {0: 5, 1: 0, 2: 7}
    ends = {0: 8, 1: 0, 2: 9}
    assert written_since(before, stable={0: 5, 1: 0, 2: 7}, ends=ends) == [0, 2]
    assert written_since(before, stable={0: 5, 1: 0, 2: 8}, ends=ends) is None


def test_what_hangs_was_aborted_without_its_rows_when_a_partition_was_not_told() -> None:
    before = {0: 5, 1: 0}
    assert written_since(before, stable={}, ends={}) is None
    assert written_since(before, stable={0: 5}, ends={0: 8}) is None
    assert written_since(before, stable={0: 5, 1: 0}, ends={0: 8}) is None


def test_rows_of_what_hangs_in_a_partition_that_is_new_were_not_aborted() -> None:
    before = {0: 5}
    assert written_since(before, stable={0: 5, 1: 0}, ends={0: 5, 1: 3}) == [1]
    assert written_since(before, stable={0: 5, 1: 2}, ends={0: 5, 1: 3}) is None


def test_what_is_open_behind_the_last_epoch_may_be_its_rows() -> None:
    before, ends = {0: 5, 1: 2}, {0: 8, 1: 2, 2: 1}
    assert open_since(before, stable={0: 8, 1: 2, 2: 1}, ends=ends) == []
    assert open_since(before, stable={0: 5, 1: 2, 2: 1}, ends=ends) == [0]
    assert open_since(before, stable={0: 7, 1: 2, 2: 0}, ends=ends) == [0, 2]
    assert open_since(before, stable={0: 4, 1: 2, 2: 1}, ends=ends) == [], "older than the epoch"


class KnownEnds(Ends):
    """Of a topic that somebody has written to, up to these places."""

    def __init__(self, stable: dict[int, int], ends: dict[int, int]) -> None:
        self._told = [ends, stable]

    def now(self, client: Consumer) -> dict[int, int]:
        del client
        return self._told.pop(0)


def test_a_claim_that_hangs_has_no_rows_whatever_the_epoch_before_it_had() -> None:
    sink = kafka_sink(PLACE.servers, "t", Output(pa.schema([("v", pa.int64())])))
    claim = Mark("t", "out", PIPELINE, 2, EPOCH.point, 3, {0: 5}, is_claim=True)
    assert decode_mark(encode_mark(claim), "") == claim
    assert sink._written([claim]) == []
    for mark in (EPOCH, Mark("t", "out", PIPELINE, 1, EPOCH.point, 3, {})):
        sink._ends = KnownEnds({0: 8}, {0: 8})
        assert sink._written([mark]) is None, "readers have seen rows"
    sink._ends = KnownEnds({0: 5}, {0: 8})
    assert sink._written([claim, EPOCH]) == [0]
    sink.close()
