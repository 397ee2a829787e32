"""The formats of a message's value: json, avro, raw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lamina.connectors.kafka.messages import EncodeValues
from lamina.connectors.kafka.schema_registry import SchemaRegistry


@dataclass(frozen=True, slots=True)
class PlainValues:
    """JSON or raw: nothing outside has to know of them."""

    encode: EncodeValues

    def check(self) -> None:
        """There is nothing to ask."""

    def begin(self) -> None:
        """There is nothing to tell."""


class AvroValues:
    """Avro; with a Schema Registry each value begins with a zero byte and the schema's number."""

    def __init__(self, columns: pa.Schema, subject: str, registry: SchemaRegistry | None) -> None:
        """Refused for columns that Avro cannot hold; nobody is asked yet."""
        from lamina.connectors.kafka.avro_rows import avro_schema  # noqa: PLC0415  fastavro

        self._schema, self._subject, self._registry = avro_schema(columns), subject, registry
        self._encode: Callable[[pa.RecordBatch], pa.Array] | None = None

    def check(self) -> None:
        if self._registry is not None:
            self._registry.check()

    def begin(self) -> None:
        from lamina.connectors.kafka.avro_rows import avro_encoder  # noqa: PLC0415  fastavro

        prefix = b""
        if self._registry is not None:
            number = self._registry.register(self._subject, self._schema)
            prefix = b"\0" + number.to_bytes(4, "big")
        self._encode = avro_encoder(self._schema, prefix)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        assert self._encode is not None, "begin comes first"
        return self._encode(batch)
