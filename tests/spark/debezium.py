"""A table whose changes Debezium would write to a topic: envelopes as its documentation has them.

No connector runs here: it is 200 MB of Java. The envelopes are those of its converters.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import fastavro

from tests.servers.kafka_topics import Topics

Row = dict[str, Any]
COLUMNS = "id BIGINT, name STRING, amount DECIMAL(12, 2), day DATE, at TIMESTAMP"
PARTITIONS = 2
_VALUE = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.t",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "amount",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": 12,
                    "scale": 2,
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            ],
            "default": None,
        },
        {
            "name": "day",
            "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
            "default": None,
        },
        {
            "name": "at",
            "type": [
                "null",
                {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
            ],
            "default": None,
        },
        {
            "name": "local",
            "type": [
                "null",
                {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
            ],
            "default": None,
        },
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.t",
    "fields": [
        {"name": "before", "type": ["null", _VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
_PARSED = fastavro.parse_schema(ENVELOPE)
Encode = Callable[[str, Row | None, Row | None], bytes]


def plain_json(op: str, before: Row | None, after: Row | None) -> bytes:
    event = {"before": before, "after": after, "source": {"lsn": 1}, "op": op, "ts_ms": 1}
    return json.dumps(event, default=str).encode()


def wrapped_json(op: str, before: Row | None, after: Row | None) -> bytes:
    payload = json.loads(plain_json(op, before, after))
    schema = {"type": "struct", "fields": [], "name": "shop.public.t.Envelope"}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def framed_avro(op: str, before: Row | None, after: Row | None, number: int = 7) -> bytes:
    file = io.BytesIO()
    sides = {"before": _exact(before), "after": _exact(after)}
    fastavro.schemaless_writer(file, _PARSED, {**sides, "op": op, "ts_ms": 1})
    return b"\0" + number.to_bytes(4, "big") + file.getvalue()


def _exact(row: Row | None) -> Row | None:
    if row is None or row.get("amount") is None:
        return row
    return {**row, "amount": Decimal(row["amount"])}


@dataclass
class Connector:
    """One table, its log of changes, and the topics that have them."""

    topics: Topics
    encoders: Mapping[str, Encode]  # by topic
    full: bool = True  # REPLICA IDENTITY FULL: old rows are whole
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[list[tuple[str, Row | None, Row | None]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    states: list[list[dict[int, Row]]] = field(
        default_factory=lambda: [[{}] for _ in range(PARTITIONS)]
    )

    def put(self, row: Row, op: str = "") -> None:
        old = self.rows.get(row["id"])
        self.rows[row["id"]] = row
        kind = op or ("c" if old is None else "u")
        self._emit(row["id"], kind, old if self.full else None, row)

    def delete(self, key: int) -> None:
        old = self.rows.pop(key)
        nulls = dict.fromkeys(old)
        self._emit(key, "d", old if self.full else {**nulls, "id": key}, None)

    def move(self, key: int, to: int) -> None:
        """A new key is a delete and a create."""
        row = self.rows[key]
        self.delete(key)
        self.put({**row, "id": to})

    def crash(self, random: Random) -> None:
        """Debezium goes on from the last offset that it has stored: events come again."""
        for part in range(PARTITIONS):
            again = self.log[part][-random.randrange(1, 8) :]
            for op, before, after in list(again):
                row = after or before
                assert row is not None
                self._write(row["id"], op, before, after)

    def _emit(self, key: int, op: str, before: Row | None, after: Row | None) -> None:
        self.log[key % PARTITIONS].append((op, before, after))
        self._write(key, op, before, after)

    def _write(self, key: int, op: str, before: Row | None, after: Row | None) -> None:
        part = key % PARTITIONS
        state = dict(self.states[part][-1])
        if after is None:
            state.pop(key, None)
        else:
            state[key] = after
        self.states[part].append(state)
        for topic, encode in self.encoders.items():
            event: list[bytes | None] = [encode(op, before, after)]
            tombstone = [None] if op == "d" else []
            self.topics.put(topic, event + tombstone, partition=part, key=str(key))


def random_row(random: Random, key: int) -> Row:
    return {
        "id": key,
        "name": random.choice((None, "a", "ü\n\"'", "long " * 9)),
        "amount": random.choice((None, "1.50", "-20.25", "1000000.00")),
        "day": random.choice((None, 0, 19782, -1)),
        "at": random.choice((None, "2024-02-29T12:30:00.123456Z", "1969-12-31T23:59:59Z")),
    }


def random_change(connector: Connector, random: Random) -> None:
    key, other = random.sample(range(20), 2)
    match random.choice(("put", "put", "put", "delete", "move", "crash")):
        case "delete" if key in connector.rows:
            connector.delete(key)
        case "move" if key in connector.rows and other not in connector.rows:
            connector.move(key, other)
        case "crash":
            connector.crash(random)
        case _:
            connector.put(random_row(random, key))
