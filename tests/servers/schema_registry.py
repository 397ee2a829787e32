"""The smallest honest stand-in for a Schema Registry: Confluent's API for what the connectors ask.

GET  /schemas/types                 200
POST /subjects/S/versions           the id of a schema; the same one has the same id
GET  /schemas/ids/N                 the schema
GET  /subjects/S/versions/latest    the newest of a subject

A subject takes a schema if it parses as Avro and keeps the types of the fields that it had (a part
of what BACKWARD means). No package on PyPI with a real one could be had.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import fastavro


@dataclass
class SchemaRegistryServer:
    port: int
    user: str = ""  # name:password; empty: everybody may
    schemas: list[str] = field(default_factory=list)  # the id is the place, from one
    subjects: dict[str, list[int]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if method == "GET" and parts == ["schemas", "types"]:
            return 200, ["AVRO"]
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 1 <= number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, {"schema": self.schemas[number - 1]}
        if parts[0] != "subjects" or parts[2] != "versions":
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        if method == "GET":
            number = self.subjects[parts[1]][-1]
            return 200, {"subject": parts[1], "id": number, "schema": self.schemas[number - 1]}
        return self._register(parts[1], body["schema"])

    def _register(self, subject: str, schema: str) -> tuple[int, Any]:
        try:
            fastavro.parse_schema(json.loads(schema))
        except (ValueError, fastavro.schema.SchemaParseException) as error:
            return 422, {"error_code": 42201, "message": f"Invalid schema: {error}"}
        versions = self.subjects.setdefault(subject, [])
        if versions and not _fits(json.loads(self.schemas[versions[-1] - 1]), json.loads(schema)):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}


def _fits(old: Any, new: Any) -> bool:
    before = {each["name"]: each["type"] for each in old["fields"]}
    return all(before.get(each["name"], each["type"]) == each["type"] for each in new["fields"])


@contextmanager
def schema_registry(user: str = "") -> Iterator[SchemaRegistryServer]:
    """The server while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    registry = SchemaRegistryServer(server.server_address[1], user)
    server.registry = registry  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        registry: SchemaRegistryServer = self.server.registry  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = base64.b64encode(registry.user.encode()).decode()
        if registry.user and self.headers.get("Authorization") != f"Basic {token}":
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        else:
            status, answer = registry.answer(self.command, self.path, json.loads(body or b"null"))
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Quiet."""
