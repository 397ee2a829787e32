"""A broker that answers late: it is waited for up to `timeout`, and no row is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.connectors.kafka.sink import KafkaSink
from lamina.connectors.opening import open_source
from lamina.engine.ports import Limits, Output
from lamina.errors import StoreUnavailable
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.servers import KafkaServer, kafka_missing
from tests.servers.process import free_port
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.kafka import PIPELINE, TopicReader, kafka_sink, publication

pytestmark = pytest.mark.server
V = pa.schema([pa.field("v", pa.int64())])
LATE_S = 0.2
TOO_LATE_S = 30.0


@dataclass
class Slow:
    """A broker with a door that is a proxy: what it advertises there is the proxy's address."""

    server: KafkaServer
    proxy: TcpProxy

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def sink(self, topic: str, timeout: str) -> KafkaSink:
        return kafka_sink(self.address, topic, Output(V), timeout=timeout)

    def source(self, topic: str, folder: Path) -> Any:
        options = {"kafka.bootstrap.servers": self.address, "subscribe": topic}
        given = {name: Option.plain(value) for name, value in options.items()}
        return open_source(DeclaredSource("s", (Column("v", "BIGINT"),), "kafka", given), folder)

    def seen(self, topic: str) -> list[int]:
        read = TopicReader(self.server.bootstrap, topic).read()
        return [json.loads(each.value or b"")["v"] for each in read]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slow]:
    if reason := kafka_missing():
        pytest.skip(reason)
    server, behind, controller = (
        KafkaServer(tmp_path_factory.mktemp("slow")),
        free_port(),
        free_port(),
    )
    with tcp_proxy(behind) as proxy:
        doors = f"PLAINTEXT://127.0.0.1:{server.port},SLOW://127.0.0.1:"
        server.settings = {
            "listeners": f"{doors}{behind},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{doors}{proxy.port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SLOW:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        server.format()
        server.start()
        try:
            yield Slow(server, proxy)
        finally:
            server.kill()


@pytest.fixture(autouse=True)
def _quick_again(slow: Slow) -> Iterator[None]:
    yield
    slow.proxy.delay_s = 0.0


def table(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())}, V)


def test_a_sink_waits_for_a_broker_that_is_slow(slow: Slow, tmp_path: Path) -> None:
    slow.server.create_topic("late")
    sink = slow.sink("late", "30 seconds")
    slow.proxy.delay_s = LATE_S
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table(1, 2), 1))
    sink.publish(publication(tmp_path, table(3), 2))
    assert slow.seen("late") == [1, 2, 3]
    sink.close()


def test_a_sink_gives_up_after_its_timeout_and_goes_on_with_every_row_once(
    slow: Slow, tmp_path: Path
) -> None:
    slow.server.create_topic("too-late")
    sink = slow.sink("too-late", "3 seconds")
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table(1), 1))
    slow.proxy.delay_s = TOO_LATE_S
    with pytest.raises(StoreUnavailable) as raised:
        sink.publish(publication(tmp_path, table(2, 3), 2))
    assert slow.address in raised.value.where
    slow.proxy.delay_s = 0.0
    slow.proxy.cut()
    for epoch, rows in ((2, table(2, 3)), (3, table(4))):
        sink.publish(publication(tmp_path, rows, epoch))
    assert slow.seen("too-late") == [1, 2, 3, 4]
    sink.close()


def test_a_source_waits_gives_up_and_then_plans_the_same_rows(slow: Slow, tmp_path: Path) -> None:
    slow.server.create_topic("read")
    producer = slow.server.producer()
    for _ in range(3):
        producer.produce("read", b'{"v": 1}')
    assert producer.flush(30) == 0
    source = slow.source("read", tmp_path)
    slow.proxy.delay_s = LATE_S
    planned = source.plan({}, Limits(), None)
    assert sum(each.end - each.start for each in planned.data) == 3
    slow.proxy.delay_s, source._broker.patience_s = TOO_LATE_S, 3.0
    with pytest.raises(StoreUnavailable, match="'s'") as raised:
        source.plan({}, Limits(), None)
    assert slow.address in raised.value.where
    slow.proxy.delay_s, source._broker.patience_s = 0.0, 30.0
    slow.proxy.cut()
    again = source.plan({}, Limits(), None)
    assert (again.start, again.end) == (planned.start, planned.end)
