"""A broker that answers a commit, is killed, and has forgotten the transaction when it is back.

Kafka 4.3.1 was seen to do that when it is killed within milliseconds. Here it is made to: while it
is down, its log of transactions is cut to what it was before the transaction, and those of the
topics to what they were before the markers of the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from lamina.connectors.kafka.sink import KafkaSink
from lamina.engine.ports import Output
from lamina.errors import StoreUnavailable
from tests.servers import KafkaServer, kafka, kafka_missing
from tests.support.kafka import PIPELINE, TopicReader, create_topic, kafka_sink, publication

pytestmark = pytest.mark.server
TOPIC = "rows"
MARKS = f"{TOPIC}-lamina-mark"
TRANSACTIONS = "__transaction_state"
V = pa.schema([pa.field("v", pa.int64())])
FIRST, SECOND = pa.table({"v": [10, 11]}, V), pa.table({"v": [20, 21]}, V)


@dataclass
class Forgetful:
    """A broker and a sink; when the sink is told of its commit, the broker dies and forgets it."""

    server: KafkaServer
    forgets: tuple[str, ...]  # topics whose markers are gone, too
    producers: list[Producer] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    has_forgotten: bool = False

    def sink(self) -> KafkaSink:
        sink = kafka_sink(self.server.bootstrap, TOPIC, Output(V), call=self, timeout="20 seconds")
        sink.fence(1, PIPELINE)
        made = sink._producers.new

        def new() -> Producer:
            self.producers[:] = [made()]
            return self.producers[0]

        sink._producers.new = new  # type: ignore[method-assign]
        return sink

    def __call__(self, call: str) -> None:
        if not self.producers or self.has_forgotten:
            return
        if call == "send rows":
            self._remember(TRANSACTIONS)
        if call == "commit":
            assert self.producers[0].flush(20) == 0
            self._remember(*self.forgets)
        if call == "have seen the mark":  # so that every marker was there before it is cut off
            self.has_forgotten = True
            self.server.kill()
            for topic, size in self.sizes.items():
                log = self.server.log_of(topic)
                assert log.stat().st_size > size, f"nothing to forget in {topic}"
                with log.open("r+b") as opened:
                    opened.truncate(size)
            self.server.start()
            raise StoreUnavailable("the connection is lost", where=TOPIC)

    def _remember(self, *topics: str) -> None:
        self.sizes |= {topic: self.server.log_of(topic).stat().st_size for topic in topics}

    def seen(self, isolation: str = "read_committed") -> list[int]:
        read = TopicReader(self.server.bootstrap, TOPIC, isolation=isolation).read()
        return [json.loads(each.value)["v"] for each in read if each.value]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    """Of one test alone: its files are cut."""
    if reason := kafka_missing():
        pytest.skip(reason)
    folder = tmp_path / "kafka"
    folder.mkdir()
    with kafka(folder) as started:
        create_topic(started.bootstrap, TOPIC)
        yield started


def test_rows_whose_commit_was_forgotten_are_published_again_and_seen_once(
    server: KafkaServer, tmp_path: Path
) -> None:
    broker = Forgetful(server, (TOPIC, MARKS))
    sink = broker.sink()
    with pytest.raises(StoreUnavailable, match="lost"):
        sink.publish(publication(tmp_path, FIRST, 1))
    assert broker.seen() == []
    assert broker.seen("read_uncommitted") == [10, 11]
    sink.publish(publication(tmp_path, FIRST, 1))
    sink.publish(publication(tmp_path, SECOND, 2))
    assert broker.seen() == [10, 11, 20, 21]
    assert broker.seen("read_uncommitted")[:4] == [10, 11, 10, 11], "the first two are aborted"


def test_rows_that_readers_have_seen_are_not_published_again(
    server: KafkaServer, tmp_path: Path
) -> None:
    """The rows are committed, and the mark hangs: the sink says so, and waits for somebody."""
    broker = Forgetful(server, (MARKS,))
    sink = broker.sink()
    with pytest.raises(StoreUnavailable, match="lost"):
        sink.publish(publication(tmp_path, FIRST, 1))
    assert broker.seen() == [10, 11]
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="a transaction hangs") as raised:
            sink.publish(publication(tmp_path, FIRST, 1))
        assert "docs/connectors.md" in raised.value.advice
    assert broker.seen() == [10, 11]


def test_rows_that_a_broker_forgot_to_show_vanished_with_the_next_abort(
    server: KafkaServer, tmp_path: Path
) -> None:
    """The mark is committed, and the rows hang: the next epoch waits."""
    broker = Forgetful(server, (TOPIC,))
    sink = broker.sink()
    with pytest.raises(StoreUnavailable, match="lost"):
        sink.publish(publication(tmp_path, FIRST, 1))
    assert broker.seen() == []
    sink.publish(publication(tmp_path, FIRST, 1))  # done already, says the mark
    with pytest.raises(StoreUnavailable, match="is open in partition 0 from offset 0 on"):
        sink.publish(publication(tmp_path, SECOND, 2))
    assert broker.seen("read_uncommitted") == [10, 11], "nothing is written behind them"


def test_a_transaction_of_another_producer_is_waited_for(
    server: KafkaServer, tmp_path: Path
) -> None:
    sink = kafka_sink(server.bootstrap, TOPIC, Output(V))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, FIRST, 1))
    other = server.producer(**{"transactional.id": "another"})
    other.init_transactions(20)
    other.begin_transaction()
    other.produce(TOPIC, b'{"v": 1}')
    assert other.flush(20) == 0
    with pytest.raises(StoreUnavailable, match="is open in partition 0"):
        sink.publish(publication(tmp_path, SECOND, 2))
    other.commit_transaction(20)
    sink.publish(publication(tmp_path, SECOND, 2))
    read = TopicReader(server.bootstrap, TOPIC).read()
    assert [json.loads(each.value or b"")["v"] for each in read] == [10, 11, 1, 20, 21]
