"""The client of the Schema Registry, which source and sink share: what it says of every answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable
from tests.servers.process import free_port
from tests.servers.schema_registry import SchemaRegistryServer, schema_registry

pytestmark = pytest.mark.server
SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "a", "type": "long"}]}
OTHER = {"type": "record", "name": "row", "fields": [{"name": "a", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with schema_registry("user:secret") as opened:
        yield opened


@pytest.fixture
def client(server: SchemaRegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url + "/", "user:secret", 5)


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """The address of something that says *answer* to whatever it is asked."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_what_a_sink_registers_a_source_reads(client: SchemaRegistry) -> None:
    client.check()
    number = client.register("a/b c-value", SCHEMA)
    assert client.register("a/b c-value", SCHEMA) == number
    assert json.loads(client.schema(number)) == SCHEMA


def test_a_schema_that_is_not_there_is_named(client: SchemaRegistry) -> None:
    with pytest.raises(NotFound, match="the schema 99, and says 404: Schema not found") as raised:
        client.schema(99)
    assert raised.value.where == client.url


def test_only_a_definite_answer_counts_as_one(
    server: SchemaRegistryServer, client: SchemaRegistry
) -> None:
    assert isinstance(client.lookup(99), NotFound)
    server.answer = lambda *_: (404, {"error_code": 404, "message": "HTTP 404 Not Found"})  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        client.lookup(99)


def test_a_schema_that_does_not_fit_its_subject_is_refused(client: SchemaRegistry) -> None:
    client.register("s", SCHEMA)
    with pytest.raises(Refused, match="409: Schema being registered is incompatible"):
        client.register("s", OTHER)


@pytest.mark.parametrize("login", ["user:wrong", ""])
def test_a_wrong_login_is_told_and_not_shown(server: SchemaRegistryServer, login: str) -> None:
    client = SchemaRegistry(server.url, login, 5)
    asked = (
        client.check,
        lambda: client.schema(1),
        lambda: client.register("s", SCHEMA),
    )
    for ask in asked:
        with pytest.raises(AccessDenied, match="401") as raised:
            ask()
        assert "basic.auth.user.info" in raised.value.advice
        assert "wrong" not in f"{raised.value} {client!r}"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "is of the type PROTOBUF"),
        ({"schema": "{}", "references": [{"name": "x"}]}, "refers to others"),
        ({}, "not a Schema Registry"),
        ([], "not a Schema Registry"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(
    server: SchemaRegistryServer, client: SchemaRegistry, found: object, told: str
) -> None:
    server.answer = lambda *_: (200, found)  # type: ignore[method-assign]
    with pytest.raises(Refused, match=told):
        client.schema(3)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<htm",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
    ids=["no JSON", "no number", "not HTTP"],
)
def test_something_else_at_its_address_is_refused(answer: bytes) -> None:
    with stranger(answer) as url, pytest.raises(Refused, match="not a Schema Registry") as raised:
        SchemaRegistry(url, timeout_s=5).register("s", SCHEMA)
    assert raised.value.advice == "Check schema.registry.url"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", StoreUnavailable),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", AccessDenied),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", StoreUnavailable),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 90\r\n\r\n{}", StoreUnavailable),
        (b"HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\nnull", NotFound),
        (b"", StoreUnavailable),
    ],
)
def test_an_outage_and_a_denial_are_told_apart(answer: bytes, error: type[LaminaError]) -> None:
    with stranger(answer) as url, pytest.raises(error, match="Schema Registry"):
        SchemaRegistry(url, timeout_s=5).check()


def test_a_registry_that_is_away_is_waited_for_by_the_caller() -> None:
    client = SchemaRegistry(f"http://127.0.0.1:{free_port()}", timeout_s=5)
    with pytest.raises(StoreUnavailable, match="does not answer when asked for the schema 1"):
        client.schema(1)
