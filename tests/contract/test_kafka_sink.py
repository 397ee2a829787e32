"""The Kafka sink on a real broker: what readers get, what is refused, and who wins a race."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lamina.clock import SystemClock
from lamina.connectors.kafka.mark import transactional_id
from lamina.connectors.kafka.messages import HEADER_SIZE
from lamina.connectors.kafka.sink import KafkaSink
from lamina.connectors.kafka.topics import BATCH_OVERHEAD, Topics
from lamina.engine.ports import CHANGE, Change, Output
from lamina.errors import (
    AccessDenied,
    Diverged,
    Fenced,
    NotFound,
    Refused,
    StoreError,
    StoreUnavailable,
)
from lamina.testing.faulty import Killed
from tests.servers import KafkaServer
from tests.servers.process import free_port
from tests.servers.schema_registry import SchemaRegistryServer, schema_registry
from tests.support.kafka import PIPELINE, TopicReader, create_topic, kafka_sink, publication

pytestmark = pytest.mark.server
_numbers = count()
V = pa.schema([pa.field("v", pa.int64())])


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    name = f"sink-{next(_numbers)}"
    create_topic(kafka_server.bootstrap, name)
    return name


def numbers(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())}, V)


def seen(server: KafkaServer, topic: str, isolation: str = "read_committed") -> list[int]:
    read = TopicReader(server.bootstrap, topic, isolation=isolation).read()
    return [json.loads(each.value or b"")["v"] for each in read]


def test_keys_headers_partitions_times_and_values_are_where_they_belong(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    create_topic(kafka_server.bootstrap, "everywhere", 3)
    table = pa.table(
        {
            "Id": pa.array([1, 2, None]),
            "name": ["ä", None, "c"],
            "trace": ["t1", None, "t3"],
            "part": pa.array([2, 0, 1], pa.int32()),
            "ts": pa.array([1_700_000_000_123_456] * 3, pa.timestamp("us", "UTC")),
        }
    )
    sink = kafka_sink(
        kafka_server.bootstrap,
        "everywhere",
        Output(table.schema),
        keys="id",
        headers="trace",
        partition="part",
        timestamp="ts",
    )
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table, 1))
    found = sorted(
        TopicReader(kafka_server.bootstrap, "everywhere", 3).read(), key=lambda m: m.value or b""
    )
    assert [(m.key, json.loads(m.value or b""), m.partition) for m in found] == [
        (b"1", {"Id": 1, "name": "ä"}, 2),
        (b"2", {"Id": 2}, 0),
        (None, {"name": "c"}, 1),
    ]
    assert [m.headers for m in found] == [[("trace", b"t1")], [("trace", None)], [("trace", b"t3")]]
    assert {m.timestamp_ms for m in found} == {1_700_000_000_123}
    sink.close()
    sink.close()


def test_a_stream_of_changes_is_a_table_that_a_reader_of_the_topic_can_keep(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    create_topic(kafka_server.bootstrap, "changes", cleanup_policy="compact")
    epochs = [
        [("a", 1, "+I"), ("b", 1, "+I"), ("d", 7, "+I")],
        [("a", 2, "+U"), ("a", 1, "-U"), ("b", 1, "-D"), ("c", 5, "+I"), ("d", 7, "-U")],
    ]
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    output = Output(schema, Change.CHANGES, ("k",))
    sink = kafka_sink(kafka_server.bootstrap, "changes", output)
    sink.fence(1, PIPELINE)
    for number, rows in enumerate(epochs, start=1):
        columns = dict(zip(("k", "n", CHANGE), map(list, zip(*rows, strict=True)), strict=True))
        sink.publish(publication(tmp_path, pa.table(columns), number, output=output))
    read = TopicReader(kafka_server.bootstrap, "changes").read()
    kept: dict[bytes | None, bytes | None] = {}
    for message in read:
        kept[message.key] = message.value
    left = {key: json.loads(value)["n"] for key, value in kept.items() if value is not None}
    assert left == {b"a": 2, b"c": 5}, "a new row counts, wherever the old one came"
    assert len(read) == 7, "one message for each key and epoch"


def test_raw_values_are_the_bytes_of_the_column(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    table = pa.table({"key": ["k", None], "value": pa.array([b"\x00\xff", None])})
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(table.schema), format="raw")
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table, 1))
    read = TopicReader(kafka_server.bootstrap, topic).read()
    assert [(m.key, m.value) for m in read] == [(b"k", b"\x00\xff"), (None, None)]


def test_a_hundred_thousand_rows_are_all_there_in_order(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, numbers(*range(100_000)), 1))
    assert seen(kafka_server, topic) == list(range(100_000))


def test_a_key_goes_to_the_partition_that_java_clients_choose(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """murmur2: what Kafka Streams and Spark write is joined partition by partition."""
    create_topic(kafka_server.bootstrap, "murmur", 7)
    table = pa.table({"k": ["21", "foobar", "a-little-bit-long-string"]})
    sink = kafka_sink(kafka_server.bootstrap, "murmur", Output(table.schema), keys="k")
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table, 1))
    found = {m.key: m.partition for m in TopicReader(kafka_server.bootstrap, "murmur", 7).read()}
    # Of Kafka's own tests: the hashes that its Utils.murmur2 has for these texts.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert found == {key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()}


# avro


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry("user:secret") as server:
        yield server


def avro(server: KafkaServer, topic: str, output: Output, **options: str) -> KafkaSink:
    return kafka_sink(server.bootstrap, topic, output, format="avro", **options)


def with_registry(registry: SchemaRegistryServer, user: str = "user:secret") -> dict[str, str]:
    return {
        "schema__registry__url": registry.url,
        "schema__registry__basic__auth__user__info": user,
    }


EVERYTHING = pa.table(
    {
        "b": [True, None],
        "i": pa.array([1, None], pa.int32()),
        "l": [2**60, None],
        "d": [0.5, None],
        "s": ["é", None],
        "raw": [b"\xff", None],
        "t": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
        "n": pa.array([1_700_000_000_123_456, None], pa.timestamp("us")),
        "day": pa.array([20_000, None], pa.date32()),
        "dec": pa.array([None, None], pa.decimal128(20, 4)),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "deep": pa.array([{"x": {"y": "z"}}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_avro_without_a_registry_is_the_bare_record(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    from lamina.connectors.kafka.avro_rows import avro_schema  # noqa: PLC0415

    sink = avro(kafka_server, topic, Output(EVERYTHING.schema))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, EVERYTHING, 1))
    schema = fastavro.parse_schema(avro_schema(EVERYTHING.schema))
    read = TopicReader(kafka_server.bootstrap, topic).read()
    rows = [fastavro.schemaless_reader(io.BytesIO(m.value or b""), schema, None) for m in read]
    expected = EVERYTHING.to_pylist()
    expected[0]["map"] = dict(expected[0]["map"])
    assert rows == expected


def test_avro_with_a_registry_has_the_framing_of_confluent(
    kafka_server: KafkaServer, topic: str, tmp_path: Path, registry: SchemaRegistryServer
) -> None:
    table = pa.table({"id": [7], "name": ["x"]})
    sink = avro(kafka_server, topic, Output(table.schema), keys="id", **with_registry(registry))
    assert sink.position().point is None
    assert registry.subjects == {}, "position changes nothing"
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table, 1))
    [message] = TopicReader(kafka_server.bootstrap, topic).read()
    assert message.value is not None
    assert message.value[0] == 0
    number = int.from_bytes(message.value[1:5], "big")
    assert registry.subjects == {f"{topic}-value": [number]}
    schema = fastavro.parse_schema(json.loads(registry.schemas[number - 1]))
    row = fastavro.schemaless_reader(io.BytesIO(message.value[5:]), schema, None)
    assert row == {"id": 7, "name": "x"}
    again = avro(kafka_server, topic, Output(table.schema), **with_registry(registry))
    again.fence(2, PIPELINE)
    assert registry.subjects == {f"{topic}-value": [number]}, "the same schema once"


def test_a_schema_that_the_registry_refuses_stops_the_sink_before_it_is_claimed(
    kafka_server: KafkaServer, topic: str, registry: SchemaRegistryServer
) -> None:
    first = avro(
        kafka_server, topic, Output(pa.schema([("a", pa.int64())])), **with_registry(registry)
    )
    first.fence(1, PIPELINE)
    before = first.position()
    changed = Output(pa.schema([("a", pa.string())]))
    with pytest.raises(Refused, match="incompatible"):
        avro(kafka_server, topic, changed, **with_registry(registry)).fence(2, PIPELINE)
    assert first.position() == before


def test_a_registry_that_is_away_or_wants_another_password_is_told_at_once(
    kafka_server: KafkaServer, topic: str, registry: SchemaRegistryServer
) -> None:
    output = Output(pa.schema([("a", pa.int64())]))
    with pytest.raises(AccessDenied) as denied:
        avro(kafka_server, topic, output, **with_registry(registry, "user:wrong")).position()
    assert "wrong" not in str(denied.value)
    away = {"schema__registry__url": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(StoreUnavailable, match="Schema Registry does not answer"):
        avro(kafka_server, topic, output, **away).position()


# what is refused


def test_a_topic_that_is_missing_is_named_and_created_only_if_the_sink_says_so(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    name = f"missing-{next(_numbers)}"
    sink = kafka_sink(kafka_server.bootstrap, name, Output(V), timeout="1 second")
    with pytest.raises(NotFound, match=name) as raised:
        sink.position()
    assert "create_partitions" in raised.value.advice
    with pytest.raises(NotFound):
        sink.fence(1, PIPELINE)
    creating = kafka_sink(kafka_server.bootstrap, name, Output(V), create_partitions="2")
    assert creating.position().point is None
    with pytest.raises(NotFound):
        sink.position()
    creating.fence(1, PIPELINE)
    creating.publish(publication(tmp_path, numbers(1), 1))
    reader = TopicReader(kafka_server.bootstrap, name, 2)
    assert [json.loads(m.value or b"") for m in reader.read()] == [{"v": 1}]


def test_a_mark_topic_that_was_created_beforehand_was_created_again(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    """For which a user needs a right that the docs do not ask for."""

    class NothingCreated(Topics):
        def _create(self, admin: AdminClient, new: NewTopic) -> None:
            raise AssertionError(new)

    create_topic(kafka_server.bootstrap, f"{topic}-lamina-mark", cleanup_policy="compact")
    options = {"create_partitions": "1"}
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), **options)
    sink._topics = NothingCreated(
        sink._place, sink._shared, clock=SystemClock(), call=lambda _: None
    )
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, numbers(1), 1))
    assert seen(kafka_server, topic) == [1]


def test_a_look_creates_nothing_even_if_brokers_create_topics_by_themselves(
    kafka_server: KafkaServer, topic: str
) -> None:
    sink = kafka_sink(kafka_server.bootstrap, topic, None)
    assert sink.position().point is None
    topics = TopicReader(kafka_server.bootstrap, topic)._client.list_topics(timeout=10).topics
    assert f"{topic}-lamina-mark" not in topics


def test_a_wrong_address_is_told_soon(tmp_path: Path) -> None:
    clock = SystemClock()
    wrong = {f"127.0.0.1:{free_port()}": "refused", "no.such.host.invalid:1": "resolve"}
    for servers, said in wrong.items():
        started = clock.monotonic()
        with pytest.raises(StoreUnavailable, match=said) as raised:
            kafka_sink(servers, "t", Output(V)).position()
        assert clock.monotonic() - started < 15
        assert servers in raised.value.where


def test_a_message_that_is_too_large_is_named_and_nothing_of_its_epoch_is_seen(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    table = pa.table({"k": ["small", "big"], "v": ["x", "y" * (10 << 20)]})
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(table.schema), keys="k")
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match=r"10,485,7.. bytes, with the key 'big'") as raised:
        sink.publish(publication(tmp_path, table, 1))
    assert "max.message.bytes" in raised.value.advice
    assert sink.position().point is None
    assert TopicReader(kafka_server.bootstrap, topic).read() == []
    sink.publish(publication(tmp_path, table.slice(0, 1), 1))
    assert len(TopicReader(kafka_server.bootstrap, topic).read()) == 1


def test_a_message_that_was_a_little_too_large_was_tried_for_ever(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """The client counts what is around it; and nobody counted headers."""
    create_topic(kafka_server.bootstrap, "tight", max_message_bytes="10000")
    tight = kafka_sink(
        kafka_server.bootstrap,
        "tight",
        Output(pa.schema([("k", pa.string()), ("value", pa.string()), ("h", pa.string())])),
        format="raw",
        keys="k",
        headers="h",
    )
    tight.fence(1, PIPELINE)
    fits = 10_000 - BATCH_OVERHEAD - len("k") - len("h") - HEADER_SIZE

    def rows(value: int, header: int) -> pa.Table:
        return pa.table({"k": ["k"], "value": ["v" * value], "h": ["h" * header]})

    for epoch, sizes in enumerate(((fits + 1, 0), (0, fits + 1), (9_990, 0), (50, 20_000)), 1):
        with pytest.raises(Refused, match=r"a message of [\d,]+ bytes, with the key 'k', is too"):
            tight.publish(publication(tmp_path, rows(*sizes), epoch))
    tight.publish(publication(tmp_path, rows(fits, 0), 5))
    tight.publish(publication(tmp_path, rows(0, fits), 6))
    read = TopicReader(kafka_server.bootstrap, "tight").read()
    assert [len(each.value or b"") for each in read] == [fits, 0]


def test_a_message_that_is_larger_than_the_client_may_send_is_named(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    table = pa.table({"k": ["a", "b"], "value": ["v", "v" * 1_990]})
    small = {"format": "raw", "keys": "k", "kafka__message__max__bytes": "2000"}
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(table.schema), **small)
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match="1,991 bytes, with the key 'b', is too large"):
        sink.publish(publication(tmp_path, table, 1))


def test_an_epoch_with_the_columns_of_an_older_stream_is_sent_by_its_own(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    """It was decided before the SELECT was changed, and is published by the next start."""
    changed = pa.schema([("v", pa.int64()), ("new", pa.int64())])
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(changed))
    sink.fence(1, PIPELINE)
    old = pa.table({"v": [1], "gone": ["x"]})
    sink.publish(publication(tmp_path, old, 1, output=Output(changed)))
    [message] = TopicReader(kafka_server.bootstrap, topic).read()
    assert json.loads(message.value or b"") == {"v": 1, "gone": "x"}
    keyed = kafka_sink(kafka_server.bootstrap, topic, Output(changed), keys="new")
    with pytest.raises(Refused, match="has no column 'new'"):
        keyed.publish(publication(tmp_path, old, 2, output=Output(changed)))


def test_ten_megabytes_go_through_where_the_topic_takes_them(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    create_topic(kafka_server.bootstrap, "large", max_message_bytes=str(12 << 20))
    table = pa.table({"v": ["y" * (10 << 20), "z", "x" * (10 << 20)]})
    sink = kafka_sink(kafka_server.bootstrap, "large", Output(table.schema))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, table, 1))
    read = TopicReader(kafka_server.bootstrap, "large").read()
    assert [json.loads(m.value or b"")["v"] for m in read] == table["v"].to_pylist()


def test_small_messages_fill_no_batch_that_the_topic_refuses(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    create_topic(kafka_server.bootstrap, "small", max_message_bytes="10000")
    sink = kafka_sink(kafka_server.bootstrap, "small", Output(V))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, numbers(*range(20_000)), 1))
    assert seen(kafka_server, "small") == list(range(20_000))


def test_a_null_key_in_a_compacted_topic_is_refused_and_nothing_is_seen(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    create_topic(kafka_server.bootstrap, "compacted", cleanup_policy="compact")
    sink = kafka_sink(kafka_server.bootstrap, "compacted", Output(V))
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match="INVALID_RECORD") as raised:
        sink.publish(publication(tmp_path, numbers(1), 1))
    assert "null keys" in raised.value.advice
    assert TopicReader(kafka_server.bootstrap, "compacted").read() == []


def test_a_partition_that_is_not_there_is_refused(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    table = pa.table({"v": [1], "p": pa.array([5], pa.int32())})
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(table.schema), partition="p")
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match="_UNKNOWN_PARTITION"):
        sink.publish(publication(tmp_path, table, 1))
    assert TopicReader(kafka_server.bootstrap, topic).read() == []


def test_a_transaction_timeout_that_the_brokers_do_not_allow_is_refused(
    kafka_server: KafkaServer, topic: str
) -> None:
    options = {"kafka__transaction__timeout__ms": "9000000"}
    with pytest.raises(Refused, match="INVALID_TRANSACTION_TIMEOUT"):
        kafka_sink(kafka_server.bootstrap, topic, Output(V), **options).fence(1, PIPELINE)


def test_two_sinks_of_a_pipeline_do_not_share_a_topic(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    """The mark would say of one what the other has published, and rows would be lost."""
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), name="one")
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, numbers(1), 1))
    other = kafka_sink(kafka_server.bootstrap, topic, Output(V), name="two")
    for attempt in (
        other.position,
        lambda: other.fence(2, PIPELINE),
        lambda: other.publish(publication(tmp_path, numbers(2), 2)),
    ):
        with pytest.raises(Refused, match="is written by the sink 'one'"):
            attempt()
    same = kafka_sink(kafka_server.bootstrap, topic, Output(V), name="ONE")
    assert same.position() == sink.position(), "case does not tell sinks apart"


def test_a_mark_topic_of_another_topic_or_another_shape_is_refused(
    kafka_server: KafkaServer, topic: str
) -> None:
    servers = kafka_server.bootstrap
    other = f"other-{next(_numbers)}"
    create_topic(servers, other)
    kafka_sink(servers, topic, Output(V)).fence(1, PIPELINE)
    shared = kafka_sink(servers, other, Output(V), mark_topic=f"{topic}-lamina-mark")
    with pytest.raises(Refused, match="is used for another topic"):
        shared.position()
    create_topic(servers, f"{other}-wide", 2)
    with pytest.raises(Refused, match="has 2 partitions"):
        kafka_sink(servers, other, Output(V), mark_topic=f"{other}-wide").position()
    create_topic(servers, f"{other}-short", 1, cleanup_policy="delete", retention_ms="1000")
    forgetful = kafka_sink(servers, other, Output(V), mark_topic=f"{other}-short")
    with pytest.raises(Refused, match="deletes old records"):
        forgetful.fence(1, PIPELINE)


def test_a_topic_that_is_deleted_while_the_sink_runs_is_named(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    fast = {"kafka__topic__metadata__propagation__max__ms": "500"}
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), timeout="10 seconds", **fast)
    sink.fence(1, PIPELINE)
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(10)
    with pytest.raises(NotFound, match="UNKNOWN_TOPIC"):
        sink.publish(publication(tmp_path, numbers(1), 1))


# races


class At:
    """Does something at a call, once."""

    def __init__(self, call: str, act: Any) -> None:
        self.call, self.act, self.done, self.armed = call, act, False, False

    def __call__(self, call: str) -> None:
        if self.armed and call == self.call and not self.done:
            self.done = True
            self.act()


def intruder(server: KafkaServer, topic: str) -> Producer:
    """An old process that starts late: it has the same transactional id."""
    settings = {
        "bootstrap.servers": server.bootstrap,
        "transactional.id": transactional_id(topic),
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(20)
    return producer


@pytest.mark.parametrize("call", ["send rows", "have sent rows", "send the mark", "commit"])
def test_fenced_in_mid_publish_it_goes_on_if_its_generation_is_still_the_highest(
    call: str, kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    at = At(call, lambda: intruder(kafka_server, topic))
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), call=at)
    sink.fence(1, PIPELINE)
    at.armed = True
    sink.publish(publication(tmp_path, numbers(1, 2, 3), 1))
    assert at.done
    assert seen(kafka_server, topic) == [1, 2, 3]


@pytest.mark.parametrize("call", ["inited", "have sent rows", "commit"])
def test_a_newer_process_that_claims_in_mid_publish_stops_the_older_one(
    call: str, kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    new = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    at = At(call, lambda: new.fence(2, PIPELINE))
    old = kafka_sink(kafka_server.bootstrap, topic, Output(V), call=at)
    old.fence(1, PIPELINE)
    at.armed = True
    with pytest.raises(Fenced):
        old.publish(publication(tmp_path, numbers(1, 2, 3), 1))
    assert seen(kafka_server, topic) == []
    new.publish(publication(tmp_path, numbers(1, 2, 3), 1, generation=2))
    assert seen(kafka_server, topic) == [1, 2, 3]


def test_what_was_aborted_is_in_the_topic_and_no_reader_of_committed_rows_sees_it(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    def die() -> None:
        producers[0].flush(10)
        raise Killed("commit")

    producers: list[Producer] = []
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    sink.fence(1, PIPELINE)
    made = sink._producers.new

    def new() -> Producer:
        producers[:] = [made()]
        return producers[0]

    sink._producers.new = new  # type: ignore[method-assign]
    sink._call = At("commit", die)
    sink._call.armed = True
    with pytest.raises(Killed):
        sink.publish(publication(tmp_path, numbers(1, 2), 1))
    assert seen(kafka_server, topic) == []
    assert seen(kafka_server, topic, "read_uncommitted") == [1, 2]
    again = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    again.fence(2, PIPELINE)
    again.publish(publication(tmp_path, numbers(1, 2), 1, generation=2))
    assert seen(kafka_server, topic) == [1, 2]
    assert seen(kafka_server, topic, "read_uncommitted") == [1, 2, 1, 2]


@pytest.mark.parametrize("call", ["send rows", "commit", "see the mark"])
def test_the_broker_dies_in_mid_publish_and_every_row_is_there_once(
    call: str, kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    threads: list[threading.Thread] = []

    def restart() -> None:
        kafka_server.kill()
        threads.append(threading.Thread(target=kafka_server.start))
        threads[0].start()

    at = At(call, restart)
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), call=at)
    sink.fence(1, PIPELINE)
    at.armed, errors = True, list[StoreError]()
    for epoch in (1, 2):
        for _ in range(10):
            try:
                sink.publish(publication(tmp_path, numbers(10 * epoch, 10 * epoch + 1), epoch))
                break
            except StoreError as error:
                errors.append(error)
                SystemClock().wait(0.5)
    threads[0].join()
    assert seen(kafka_server, topic) == [10, 11, 20, 21], errors
    position = sink.position().point
    assert position is not None
    assert position.epoch == 2


def test_a_transaction_that_hangs_in_the_mark_topic_stops_the_sink_before_it_doubles_rows(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    """As a broker leaves it that restarts between its answer to a commit and the commit."""
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V), timeout="20 seconds")
    sink.fence(1, PIPELINE)
    settings = {"bootstrap.servers": kafka_server.bootstrap, "transactional.id": "hangs"}
    hanging = Producer({**settings, "log_level": 0})
    hanging.init_transactions(20)
    hanging.begin_transaction()
    hanging.produce(f"{topic}-lamina-mark", key=b"x", value=b"x")
    hanging.flush(20)
    with pytest.raises(Refused, match="is used for another topic"):
        sink.publish(publication(tmp_path, numbers(1), 1))
    assert seen(kafka_server, topic) == []
    hanging.abort_transaction(20)
    sink.publish(publication(tmp_path, numbers(1), 1))
    assert seen(kafka_server, topic) == [1]


def test_another_history_of_an_epoch_is_told_by_its_digest(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, numbers(1), 1))
    other = publication(tmp_path, numbers(1), 1)
    object.__setattr__(other, "point", type(other.point)(1, "ab" * 32))
    with pytest.raises(Diverged):
        sink.publish(other)


# the mark


def test_a_new_process_reads_few_records_however_many_epochs_there_were(
    kafka_server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    sink.fence(1, PIPELINE)
    for epoch in range(1, 81):
        sink.publish(publication(tmp_path, numbers(epoch), epoch))
    new = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    decoded: list[object] = []
    marks = new._marks
    read_mark = marks._mark
    marks._mark = lambda m: decoded.append(m) or read_mark(m)  # type: ignore[func-returns-value, method-assign]
    position = new.position().point
    assert position is not None
    assert position.epoch == 80
    assert 0 < len(decoded) <= 32
    assert marks.client.get_watermark_offsets(TopicPartition(f"{topic}-lamina-mark", 0))[1] == 162
    new.position()
    assert len(decoded) <= 32, "a mark that has not changed is not read again"


def test_people_can_read_the_mark(kafka_server: KafkaServer, topic: str, tmp_path: Path) -> None:
    sink = kafka_sink(kafka_server.bootstrap, topic, Output(V))
    sink.fence(4, PIPELINE)
    sink.publish(publication(tmp_path, numbers(1, 2), 3, generation=4))
    mark = TopicReader(kafka_server.bootstrap, f"{topic}-lamina-mark").read()[-1]
    assert json.loads(mark.key or b"") == {"topic": topic}
    assert json.loads(mark.value or b"") == {
        "version": 1,
        "topic": topic,
        "sink": "out",
        "pipeline": "p",
        "pipeline_id": "p" * 32,
        "generation": 4,
        "epoch": 3,
        "commit_digest": f"{3:064x}",
        "rows": 2,
        "before": {"0": 0},
        "claim": False,
    }
