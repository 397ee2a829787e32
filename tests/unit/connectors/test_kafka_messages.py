"""Rows that cannot become messages, or not those that they seem to be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

pytest.importorskip("fastavro")

from lamina.connectors.kafka.messages import (
    HEADER_SIZE,
    Layout,
    Messages,
    json_values,
    messages_of,
    raw_values,
)
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.sink_values import AvroValues
from lamina.errors import Refused


def messages(batch: pa.RecordBatch, layout: Layout) -> Messages:
    [found] = messages_of(batch, layout, raw_values if layout.is_raw else json_values)
    return found


def times(*micros: int | None) -> pa.RecordBatch:
    return pa.record_batch({"v": [1] * len(micros), "ts": pa.array(micros, pa.timestamp("us"))})


AT = Layout(("v",), timestamp="ts")


def test_the_beginning_of_1970_became_the_time_of_sending() -> None:
    """librdkafka takes 0 for now, and -1 for no time."""
    assert messages(times(1_000, 1_999, None, 2_000), AT).timestamps == [1, 1, None, 2]
    for micros in (0, 999, -1, -1_000, -1_001, -(10**15)):
        with pytest.raises(Refused, match=r"'ts' has a time of -?[\d,]+ ms since 1970") as refused:
            messages(times(5_000, micros), AT)
        assert "null" in refused.value.advice


def test_times_before_1970_were_rounded_up() -> None:
    with pytest.raises(Refused, match="time of -2 ms"):
        messages(times(-1_001), AT)


@pytest.mark.parametrize("number", [-1, -5, 1 << 31, 1 << 40])
def test_a_number_that_is_no_partition_was_left_to_kafka_or_overflowed(number: int) -> None:
    layout = Layout(("v",), partition="p")
    given = pa.record_batch({"v": [1, 2], "p": pa.array([0, None], pa.int64())})
    assert list(messages(given, layout).columns()[2]) == [0, -1]
    wrong = pa.record_batch({"v": [1, 2], "p": pa.array([0, number], pa.int64())})
    with pytest.raises(Refused, match=rf"'p' has {number}, which is not"):
        messages(wrong, layout)


def test_headers_were_not_counted() -> None:
    headers: list[list[tuple[str, str | bytes | None]]] = [[("hé", b"12345")], [("hé", None)]]
    found = Messages(pa.array([b"123", None]), pa.array([b"k", b"kk"]), headers)
    assert found.sizes().to_pylist() == [3 + 1 + 3 + 5 + HEADER_SIZE, 2 + 3 + HEADER_SIZE]


OLD = pa.record_batch({"k": ["a"], "gone": [7], "v": [1]})
"""Of an epoch that was decided before its stream was changed."""


def test_a_column_of_an_older_stream_was_lost() -> None:
    found = messages(OLD, Layout(("k", "v"), ("k",)))
    assert found.values.to_pylist() == [b'{"k":"a","gone":7,"v":1}']
    assert found.keys is not None
    assert found.keys.to_pylist() == [b"a"]


def test_a_column_that_an_older_stream_lacks_was_a_key_error_at_every_start() -> None:
    assert messages(OLD, Layout(("k", "v", "new"), ("k",))).values.to_pylist() == [
        b'{"k":"a","gone":7,"v":1}'
    ]
    lacking = (
        Layout(("v",), ("new",)),
        Layout(("v",), headers=("new",)),
        Layout(("v",), partition="new"),
        Layout(("v",), timestamp="new"),
        Layout(("new",), is_raw=True),
    )
    for layout in lacking:
        with pytest.raises(Refused, match="has no column 'new'") as refused:
            messages(OLD, layout)
        assert "options of before" in refused.value.advice
    with pytest.raises(Refused, match="'k' has 'a', which is not the number"):
        messages(OLD, Layout(("v",), partition="k"))
    with pytest.raises(Refused, match="'v' is int64: a message cannot have that time"):
        messages(OLD, Layout(("k",), timestamp="v"))
    assert messages(OLD, Layout(("k",), is_raw=True)).values.to_pylist() == [b"a"]


@dataclass
class Registry:
    """Numbers schemas as they come."""

    schemas: list[object] = field(default_factory=list)

    def register(self, subject: str, schema: object) -> int:
        del subject
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1


def test_rows_of_an_older_stream_have_the_avro_schema_of_their_own() -> None:
    registry = Registry()
    known: SchemaRegistry = registry  # type: ignore[assignment]
    new = pa.record_batch({"k": ["a"], "v": [1]})
    values = AvroValues(new.schema, "s", known)
    values.begin()
    assert values.encode(new).to_pylist()[0].startswith(b"\0\0\0\0\1")
    assert len(registry.schemas) == 1
    [value] = values.encode(OLD).to_pylist()
    assert value.startswith(b"\0\0\0\0\2")
    assert "gone" in str(registry.schemas[1])
    assert values.encode(new).to_pylist()[0].startswith(b"\0\0\0\0\1")
