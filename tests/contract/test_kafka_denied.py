"""Brokers that deny: certificates, passwords, rights. All is told before anything is claimed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lamina.connectors.kafka.sink import KafkaSink
from lamina.connectors.opening import open_source
from lamina.engine.ports import Limits, Output
from lamina.errors import AccessDenied, LaminaError, StoreUnavailable
from lamina.pipeline.model import Column, DeclaredSource, Option
from tests.servers import KafkaServer, kafka_missing
from tests.servers.certificates import Authority, openssl_missing
from tests.servers.process import free_port
from tests.support.kafka import PIPELINE, TopicReader, kafka_sink, publication

pytestmark = pytest.mark.server
V = pa.schema([pa.field("v", pa.int64())])
ROWS = pa.table({"v": [1, 2]}, V)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
DOORS = ("GOOD", "MUTUAL", "EXPIRED", "ELSEWHERE")
_numbers = count()


@dataclass
class Guarded:
    """One broker with many doors; who comes by the plain one may do everything."""

    server: KafkaServer
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        ours, self.other = Authority(self.folder, "ours"), Authority(self.folder, "other").create()
        self.authority = ours.create()
        stores = {
            "GOOD": ours.sign("good", "IP:127.0.0.1"),
            "EXPIRED": ours.sign("expired", "IP:127.0.0.1", days=-1),
            "ELSEWHERE": ours.sign("elsewhere", "DNS:kafka.example.com"),
        }
        stores["MUTUAL"] = stores["GOOD"]
        self.client = ours.sign("client", "DNS:client")
        self.ports = {door: free_port() for door in (*DOORS, "LOGIN")}
        self.server.settings = self._settings(stores)
        self.server.format()
        self.server.start()

    def _settings(self, stores: dict[str, Path]) -> dict[str, str]:
        controller, plain = free_port(), self.server.port
        ports = {"PLAINTEXT": plain, **self.ports, "CONTROLLER": controller}
        protocols = dict.fromkeys(DOORS, "SSL") | {"LOGIN": "SASL_PLAINTEXT"}
        protocols |= {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        settings = {
            "listeners": ",".join(f"{door}://127.0.0.1:{port}" for door, port in ports.items()),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listener.security.protocol.map": ",".join(
                f"{door}:{protocol}" for door, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:CN=client",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="secret";',
        }
        for door, store in stores.items():
            prefix = f"listener.name.{door.lower()}.ssl."
            settings |= {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.location": str(store),
                f"{prefix}truststore.type": "PEM",
                f"{prefix}truststore.location": str(self.authority.certificate),
                f"{prefix}client.auth": "required" if door == "MUTUAL" else "none",
            }
        return settings

    def new_topic(self) -> str:
        name = f"denied-{next(_numbers)}"
        self.server.create_topic(name)
        return name

    def topics(self) -> set[str]:
        return set(self.server.admin().list_topics(timeout=30).topics)

    def tls(self, door: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.ports[door]}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.authority.certificate),
            **more,
        }

    def key(self) -> dict[str, str]:
        return {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(self.client),
        }

    def login(self, password: str = "secret") -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.ports['LOGIN']}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULE} username="alice" password="{password}";',
        }

    def allow(self, kind: str, name: str, *operations: str) -> None:
        from confluent_kafka.admin import (  # noqa: PLC0415  an extra
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        asked = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        admin = self.server.admin()
        for made in admin.create_acls(asked).values():
            made.result(30)
        wanted = AclBindingFilter(
            ResourceType[kind],
            name,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        deadline = time.monotonic() + 30  # a right counts when the broker tells it, not before
        while not set(asked) <= set(admin.describe_acls(wanted).result(30)):
            assert time.monotonic() < deadline, "a right is not told"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if reason := kafka_missing() or openssl_missing():
        pytest.skip(reason)
    server = KafkaServer(tmp_path_factory.mktemp("guarded"))
    made = Guarded(server, tmp_path_factory.mktemp("certificates"))
    try:
        made.start()
        yield made
    finally:
        server.kill()


def sink_of(options: dict[str, str], topic: str) -> KafkaSink:
    named = {name.replace(".", "__"): value for name, value in options.items()}
    servers = named.pop("kafka__bootstrap__servers")
    return kafka_sink(servers, topic, Output(V), timeout="15 seconds", **named)


def source_of(options: dict[str, str], topic: str, folder: Path) -> Any:
    written = {name: Option("${X}", value) for name, value in options.items()}
    written["subscribe"] = Option.plain(topic)
    columns = (Column("v", "BIGINT"),)
    opened = open_source(DeclaredSource("s", columns, "kafka", written), folder)
    opened._broker.patience_s = 15.0
    return opened


WRONG: dict[str, tuple[Any, type[LaminaError], str, str]] = {
    "expired": (lambda g: g.tls("EXPIRED"), AccessDenied, "certificate", "expired"),
    "other host": (
        lambda g: g.tls("ELSEWHERE"),
        AccessDenied,
        "certificate",
        "names the host",
    ),
    "other authority": (
        lambda g: g.tls("GOOD", **{"kafka.ssl.truststore.location": str(g.other.certificate)}),
        AccessDenied,
        "certificate verify failed",
        "kafka.ssl.truststore.location",
    ),
    "no client certificate": (
        lambda g: g.tls("MUTUAL"),
        AccessDenied,
        "certificate",
        "kafka.ssl.keystore.location",
    ),
    "wrong password": (
        lambda g: g.login("other"),
        AccessDenied,
        "Authentication failed",
        "password",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_certificate_or_password_is_told_with_what_to_do(
    guarded: Guarded, case: str, tmp_path: Path
) -> None:
    options, error, said, advice = WRONG[case]
    topic, given = guarded.new_topic(), options(guarded)
    sink, source = sink_of(given, topic), source_of(given, topic, tmp_path)
    asked = (
        sink.position,
        lambda: sink.fence(1, PIPELINE),
        lambda: source.plan({}, Limits(), None),
    )
    for ask in asked:
        with pytest.raises(error, match=f"(?i){said}") as raised:
            ask()
        assert given["kafka.bootstrap.servers"] in raised.value.where
        assert advice in raised.value.advice
    assert f"{topic}-lamina-mark" not in guarded.topics(), "nothing is claimed"
    sink.close()


@pytest.mark.parametrize("door", ["GOOD", "MUTUAL"])
def test_with_the_right_certificates_rows_go_through(
    guarded: Guarded, door: str, tmp_path: Path
) -> None:
    topic = guarded.new_topic()
    key = guarded.key() if door == "MUTUAL" else {}  # who gives none is User:ANONYMOUS
    options = guarded.tls(door, **key)
    sink = sink_of(options, topic)
    sink.fence(1, PIPELINE)
    sink.publish(publication(tmp_path, ROWS, 1))
    assert len(TopicReader(guarded.server.bootstrap, topic).read()) == 2
    planned = source_of(options, topic, tmp_path).plan({}, Limits(), None)
    assert planned.start != planned.end
    sink.close()


def test_speaking_without_tls_to_a_broker_that_wants_it_is_told(
    guarded: Guarded, tmp_path: Path
) -> None:
    topic = guarded.new_topic()
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{guarded.ports['GOOD']}"}
    sink, source = sink_of(options, topic), source_of(options, topic, tmp_path)
    for ask in (sink.position, lambda: source.plan({}, Limits(), None)):
        with pytest.raises(StoreUnavailable) as raised:
            ask()
        assert options["kafka.bootstrap.servers"] in raised.value.where
        assert "kafka.security.protocol" in raised.value.advice
    sink.close()


def test_every_right_that_a_sink_lacks_is_named_and_then_it_goes_on(
    guarded: Guarded, tmp_path: Path
) -> None:
    """One right after the other is given; what is denied says which one comes next."""
    topic = guarded.new_topic()
    marks = f"{topic}-lamina-mark"
    sink = sink_of(guarded.login(), topic)

    def denied(said: str, advice: str) -> None:
        for _ in range(2):
            with pytest.raises(AccessDenied, match=said) as raised:
                sink.fence(1, PIPELINE)
            assert advice in raised.value.advice

    denied("TOPIC_AUTHORIZATION_FAILED", "Describe")
    guarded.allow("TOPIC", topic, "DESCRIBE", "DESCRIBE_CONFIGS")
    denied("TOPIC_AUTHORIZATION_FAILED", "Describe")
    guarded.allow("TOPIC", marks, "DESCRIBE")
    denied(f"'{marks}' is missing, and may not be created", "Create")
    assert marks not in guarded.topics()
    guarded.allow("TOPIC", marks, "CREATE", "DESCRIBE_CONFIGS", "READ", "WRITE")
    denied("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional ids")
    guarded.allow("TRANSACTIONAL_ID", f"lamina-{topic}", "WRITE", "DESCRIBE")
    sink.fence(1, PIPELINE)
    for _ in range(2):
        with pytest.raises(AccessDenied, match="TOPIC_AUTHORIZATION_FAILED") as raised:
            sink.publish(publication(tmp_path, ROWS, 1))
        assert "Write" in raised.value.advice
        assert topic in raised.value.where
    guarded.allow("TOPIC", topic, "WRITE")
    sink.publish(publication(tmp_path, ROWS, 1))
    assert len(TopicReader(guarded.server.bootstrap, topic).read()) == 2
    sink.close()


def test_a_source_without_the_right_to_its_topic_says_so(guarded: Guarded, tmp_path: Path) -> None:
    topic = guarded.new_topic()
    source = source_of(guarded.login(), topic, tmp_path)
    with pytest.raises(AccessDenied, match="'s'") as raised:
        source.plan({}, Limits(), None)
    assert "DESCRIBE and READ" in raised.value.advice
    guarded.allow("TOPIC", topic, "DESCRIBE", "DESCRIBE_CONFIGS", "READ")
    source.plan({}, Limits(), None)
