"""A Kafka source beside a broker that is killed and started again: it waits, and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.connectors.opening import open_source
from lamina.connectors.spark_source import SparkSource
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits
from lamina.errors import StoreUnavailable
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.servers import KafkaServer, kafka, kafka_missing

pytestmark = pytest.mark.server
PATIENCE_S = 120
ROWS = 5


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaServer]:
    """Of this test alone: it is killed."""
    if reason := kafka_missing():
        pytest.skip(reason)
    with kafka(tmp_path) as server:
        yield server


def source(broker: KafkaServer, folder: Path, **options: str) -> SparkSource:
    given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    columns = (Column("a", "BIGINT"),)
    listed = {name: Option.plain(value) for name, value in given.items()}
    return open_source(DeclaredSource("s", columns, "kafka", listed), folder)


def test_the_same_source_goes_on_after_every_restart(broker: KafkaServer, tmp_path: Path) -> None:
    """A client that lost its broker is not asked again, and nothing seems to be gone."""
    broker.create_topic("t", 2)
    read, offset = source(broker, tmp_path, subscribePattern="t"), {}
    for number in range(3):
        put(broker)
        planned = until_it_answers(read, offset)
        read.confirm(planned)
        offset = planned.end
        assert rows_of(planned) == ROWS, f"after {number} restarts"
        broker.kill()
        if number == 1:  # it is asked while nobody is there, too
            with pytest.raises(StoreUnavailable):
                quickly(read).plan(offset, Limits(), None)
        broker.start()


def quickly(read: SparkSource) -> SparkSource:
    vars(read)["_broker"].patience_s = 3.0
    return read


def until_it_answers(read: SparkSource, offset: Offset) -> SourceRange:
    """As the engine does: it tries again, and nothing but an outage is forgiven."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            planned = read.plan(offset, Limits(), None)
        except StoreUnavailable:
            assert time.monotonic() < deadline, "it does not come back"
            time.sleep(0.5)
        else:
            if planned.start != planned.end:
                return planned
            assert time.monotonic() < deadline, "rows that are there are not seen"
            time.sleep(0.1)


def rows_of(planned: SourceRange) -> int:
    return sum(each.end - each.start for each in planned.data)


def put(broker: KafkaServer) -> None:
    producer = broker.producer()
    for at in range(ROWS):
        producer.produce("t", b'{"a": 1}', partition=at % 2)
    assert producer.flush(60) == 0
