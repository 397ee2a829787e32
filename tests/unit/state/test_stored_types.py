"""What differs only in spelling is one type: a session's settings do not change a key."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lamina.errors import StateChanged
from lamina.state.changes import changes
from lamina.state.schema import StateSchema, check_successor
from lamina.state.stored_types import stored_type

PLAIN = pa.struct([pa.field("a", pa.string()), pa.field("b", pa.list_(pa.int32()))])
SPARK = pa.struct(
    [
        pa.field("a", pa.large_string(), nullable=False),
        pa.field("b", pa.large_list(pa.field("element", pa.int32(), nullable=False))),
    ]
)


@pytest.mark.parametrize(
    ("spelt", "kept"),
    [
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (SPARK, PLAIN),
        (pa.list_(pa.field("element", pa.int8()), 3), pa.list_(pa.int8(), 3)),
        (pa.int64(), pa.int64()),
    ],
)
def test_one_spelling_of_each_type_is_kept(spelt: pa.DataType, kept: pa.DataType) -> None:
    assert stored_type(spelt) == kept
    assert stored_type(kept) == kept


def test_another_session_zone_is_not_another_key_type() -> None:
    value = pa.schema({"n": pa.int64()})
    berlin = StateSchema(pa.schema({"t": pa.timestamp("us", "Europe/Berlin")}), value)
    tokyo = StateSchema(pa.schema({"t": pa.timestamp("us", "Asia/Tokyo")}), value)
    check_successor(berlin, tokyo, "stream")
    assert berlin == tokyo


def test_a_time_with_a_zone_and_one_without_are_two_types() -> None:
    value = pa.schema({"n": pa.int64()})
    zoned = StateSchema(pa.schema({"t": pa.timestamp("us", "UTC")}), value)
    naive = StateSchema(pa.schema({"t": pa.timestamp("us")}), value)
    with pytest.raises(StateChanged, match="'t'"):
        check_successor(zoned, naive, "stream")


def test_changes_come_in_any_spelling_and_hash_alike() -> None:
    schema = StateSchema(pa.schema({"k": SPARK}), pa.schema({"s": pa.large_string()}))
    rows = [{"k": {"a": "x", "b": [1, 2]}, "s": "v"}]
    made = [
        changes(schema, pa.RecordBatch.from_pylist(rows, pa.schema({"k": kind, "s": text})))
        for kind, text in ((SPARK, pa.large_string()), (PLAIN, pa.string()))
    ]
    assert made[0].equals(made[1])
    assert made[0].schema.field("s").type == pa.string()
