"""Avro values, plain and in Confluent's frame; the registry is the smallest honest stand-in.

It speaks the three requests of Confluent's API that a reader makes, over real HTTP.
"""

from __future__ import annotations

import io
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lamina.connectors.kafka import avro
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.values import UNKNOWN_SCHEMA
from lamina.errors import AccessDenied, NotFound, Refused, StoreUnavailable
from lamina.pipeline.model import DeclaredSource
from tests.servers.kafka_topics import Topics
from tests.spark.running import Place, Run
from tests.spark.test_kafka_source import Reader

ONE = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
}
TWO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "c", "type": "double"}, {"name": "a", "type": "long"}],
}
COLUMNS = "a BIGINT, b STRING, c DOUBLE"
LOGIN = "user:secret"


def encoded(schema: dict[str, Any], row: dict[str, Any], number: int | None = None) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), row)
    frame = b"" if number is None else b"\0" + number.to_bytes(4, "big")
    return frame + file.getvalue()


class Registry:
    """Schemas by id, for whoever knows the password; every request is noted."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.answers: dict[int, tuple[int, Any]] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                status, body = registry.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, login: str) -> tuple[int, Any]:
        if login != f"Basic {b64encode(LOGIN.encode()).decode()}":
            return 401, {"error_code": 401}
        if path == "/schemas/types":
            return 200, ["AVRO"]
        number = int(path.rpartition("/")[2])
        if number in self.answers:
            return self.answers[number]
        schema = self.schemas.get(number)
        if schema is None:
            return 404, {"error_code": 40403}
        return 200, {"schema": json.dumps(schema)}


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def reader(spark: Any, tmp_path: Path, topics: Topics) -> Reader:
    made = Reader(spark, tmp_path, topics)
    made.run = Run(spark, Place(tmp_path), variables={"LOGIN": LOGIN, "WRONG": "user:other"})
    return made


def framed(registry: Registry, topic: str, login: str = "LOGIN") -> dict[str, str]:
    return {
        "subscribe": topic,
        "format": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": f"${{{login}}}",
    }


def test_plain_avro(reader: Reader, topics: Topics) -> None:
    name = topics.new()
    good = [encoded(ONE, {"a": 1, "b": "x"}), encoded(ONE, {"a": -2, "b": None})]
    topics.put(name, [*good, b"\x02", b"", None])
    options = {"subscribe": name, "format": "avro", "avroSchema": json.dumps(ONE)}
    found = reader(COLUMNS, **options, bad_rows_path="bad")
    assert [tuple(row.values()) for row in found] == [
        (1, "x", None),
        (-2, None, None),
        (None, None, None),
    ]
    assert [row["bytes"] for row in reader.place.rows("bad")] == [b"\x02", b""]


def test_a_schema_that_does_not_fit_is_refused_before_anything_is_claimed(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    options = {"subscribe": name, "format": "avro", "avroSchema": json.dumps(TWO)}
    with pytest.raises(Refused, match="'a' is int, and in its avroSchema it is bigint"):
        reader("a INT", **options)
    assert not (reader.place.folder / "store").exists()


def test_framed_avro_with_schemas_that_come_later(
    reader: Reader, topics: Topics, registry: Registry
) -> None:
    name = topics.new()
    registry.schemas = {7: ONE, 300: TWO}
    topics.put(name, [encoded(ONE, {"a": 1, "b": "x"}, 7), encoded(TWO, {"a": 2, "c": 0.5}, 300)])
    topics.put(name, [b"no frame", None])
    options = framed(registry, name)
    found = reader(COLUMNS, **options, bad_rows_path="bad")
    assert [tuple(row.values()) for row in found] == [
        (1, "x", None),
        (2, None, 0.5),
        (None, None, None),
    ]
    assert [row["bytes"] for row in reader.place.rows("bad")] == [b"no frame"]
    assert registry.asked == ["/schemas/types", "/schemas/ids/7", "/schemas/ids/300"]


def test_a_schema_that_nobody_knows_stops_the_epoch_and_then_it_goes_on(
    reader: Reader, topics: Topics, registry: Registry
) -> None:
    name = topics.new()
    topics.put(name, [encoded(ONE, {"a": 1, "b": "x"}, 9)])
    with pytest.raises(NotFound, match="the schema 9"):
        reader(COLUMNS, **framed(registry, name))
    registry.schemas[9] = ONE
    assert [row["a"] for row in reader(COLUMNS, **framed(registry, name))] == [1]


def test_one_record_with_a_schema_that_nobody_can_read_stopped_the_pipeline_for_good(
    reader: Reader, topics: Topics, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a place for bad rows it is one; an outage of the registry is still an outage."""
    monkeypatch.setattr(avro, "ASK_AGAIN_S", 0.0)
    name = topics.new()
    misfit = {**ONE, "fields": [{"name": "a", "type": "string"}]}
    registry.schemas = {1: ONE, 2: misfit}
    registry.answers[3] = 200, {"schema": "{}", "schemaType": "PROTOBUF"}
    good, bad = encoded(ONE, {"a": 1, "b": "x"}, 1), encoded(misfit, {"a": "text"}, 2)
    strange, unknown = b"\0\0\0\0\3proto", encoded(ONE, {"a": 2, "b": "y"}, 9)
    topics.put(name, [good, bad, strange, unknown, good])
    found = reader(COLUMNS, **framed(registry, name), bad_rows_path="bad")
    assert [row["a"] for row in found] == [1, 1]
    assert [row["bytes"] for row in reader.place.rows("bad")] == [bad, strange, unknown]
    topics.put(name, [encoded(ONE, {"a": 3, "b": "z"}, 4)])
    registry.answers[4] = 404, {"error_code": 404}  # not what a registry says: another address
    with pytest.raises(NotFound, match="the schema 4"):
        reader(COLUMNS, **framed(registry, name), bad_rows_path="bad")


def test_an_outage_of_the_registry_makes_no_bad_rows(registry: Registry) -> None:
    registry.answers[4] = 503, {"error_code": 50301}
    source, client = DeclaredSource("s", (), "kafka", {}), SchemaRegistry(registry.url, LOGIN)
    values = avro.FramedAvro(source, (), client, keeps_bad_rows=True)
    with pytest.raises(StoreUnavailable, match="the schema 4"):
        values.learn(Refused(f"{UNKNOWN_SCHEMA} 00000004"))


def test_a_registry_that_does_not_answer_to_us_is_named_before_anything_is_claimed(
    reader: Reader, topics: Topics, registry: Registry
) -> None:
    name = topics.new()
    with pytest.raises(AccessDenied, match="401"):
        reader(COLUMNS, **framed(registry, name, "WRONG"))
    away = {**framed(registry, name), "schema.registry.url": "http://127.0.0.1:1"}
    with pytest.raises(StoreUnavailable, match="Schema Registry"):
        reader(COLUMNS, **away)
    assert not (reader.place.folder / "store").exists()
