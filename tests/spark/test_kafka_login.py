"""A broker that asks for a password: both clients give it, and nobody else sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.kafka import source as kafka_source
from lamina.connectors.opening import open_source
from lamina.engine.ports import Limits
from lamina.errors import AccessDenied
from lamina.pipeline.statements import parse_pipeline
from tests.servers.kafka import KafkaServer, kafka_missing
from tests.servers.kafka_topics import Topics
from tests.servers.process import free_port
from tests.spark.running import Place, Run

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORD = "hidden-password"
JAAS = f'{MODULE} username="alice" password="{PASSWORD}";'


@dataclass
class Guarded:
    """A broker with a door for tests, and one that asks for a login."""

    topics: Topics
    address: str

    def text(self, topic: str) -> str:
        return (
            "CREATE SOURCE s (a BIGINT) USING kafka OPTIONS "
            f"(kafka.bootstrap.servers '{self.address}', subscribe '{topic}', "
            "kafka.security.protocol 'SASL_PLAINTEXT', kafka.sasl.mechanism 'PLAIN', "
            "kafka.sasl.jaas.config '${JAAS}');"
            "CREATE STREAM x AS SELECT * FROM s;"
            "CREATE SINK o FROM x USING parquet OPTIONS (path 'out');"
        )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if reason := kafka_missing():
        pytest.skip(reason)
    server = KafkaServer(tmp_path_factory.mktemp("guarded"))
    guard, controller = free_port(), free_port()
    doors = f"PLAINTEXT://127.0.0.1:{server.port},SASL_PLAINTEXT://127.0.0.1:{guard}"
    server.settings = {
        "listeners": f"{doors},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_alice="{PASSWORD}";',
    }
    server.format()
    server.start()
    try:
        yield Guarded(Topics(server), f"127.0.0.1:{guard}")
    finally:
        server.kill()


def test_rows_are_read_with_a_password_that_nobody_sees(
    guarded: Guarded, spark: Any, tmp_path: Path
) -> None:
    name = guarded.topics.new()
    guarded.topics.put(name, [{"a": 1}])
    text = guarded.text(name)
    Run(spark, Place(tmp_path), variables={"JAAS": JAAS})(text)
    assert Place(tmp_path).rows() == [{"a": 1}]
    source = parse_pipeline(text, {"JAAS": JAAS}).sources["s"]
    opened = open_source(source, tmp_path)
    planned = opened.plan({}, Limits(), None)
    frame = opened.frame(spark, planned)
    shown = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().debug().toString()
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert "KafkaRelation" in shown
    for told in (shown, repr(planned), repr(opened.__dict__["_context"])):
        assert PASSWORD not in told
    assert not any(PASSWORD.encode() in data for data in written)


def test_a_wrong_password_is_told_soon_and_before_anything_is_claimed(
    guarded: Guarded, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "FIRST_ANSWER_S", 60.0)  # it is not waited for
    name = guarded.topics.new()
    wrong = JAAS.replace(PASSWORD, "other-password")
    with pytest.raises(AccessDenied, match="'s'") as denied:
        Run(spark, Place(tmp_path), variables={"JAAS": wrong})(guarded.text(name))
    assert "other-password" not in str(denied.value)
    assert not (tmp_path / "store").exists()
