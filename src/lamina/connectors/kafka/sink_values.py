"""The formats of a message's value: json, avro, raw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        self._known: EncodeValues | None = None
        self._encoders: dict[tuple[object, ...], EncodeValues] = {}

    def check(self) -> None:
        if self._registry is not None:
            self._registry.check()

    def begin(self) -> None:
        self._known = self._begin(self._schema)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """By the schema of the rows: an epoch may be older than the stream that the sink knows."""
        from lamina.connectors.kafka.avro_rows import avro_schema  # noqa: PLC0415  fastavro

        columns = tuple((field.name, field.type) for field in batch.schema)
        if columns not in self._encoders:
            schema = avro_schema(batch.schema)
            known = self._known if schema == self._schema else None
            self._encoders[columns] = known or self._begin(schema)
        return self._encoders[columns](batch)

    def _begin(self, schema: Any) -> EncodeValues:
        from lamina.connectors.kafka.avro_rows import avro_encoder  # noqa: PLC0415  fastavro

        prefix = b""
        if self._registry is not None:
            number = self._registry.register(self._subject, schema)
            prefix = b"\0" + number.to_bytes(4, "big")
        return avro_encoder(schema, prefix)
