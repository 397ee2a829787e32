"""Rows as JSON: what a reader parses is what was in the columns, whatever they hold."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.connectors.kafka.json_rows import json_objects, json_tokens
from lamina.connectors.kafka.messages import (
    Layout,
    batches_to_send,
    json_values,
    messages_of,
    plain_bytes,
)
from lamina.connectors.kafka.times_text import times_text
from lamina.engine.ports import CHANGE

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
EXAMPLES: dict[str, tuple[pa.Array, list[str | None]]] = {
    "boolean": (pa.array([True, None, False]), ["true", None, "false"]),
    "bytes of a number": (pa.array([-128, None, 127], pa.int8()), ["-128", None, "127"]),
    "bigint": (pa.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
    "double": (pa.array([1.0, 0.1, -2.5, 1e20]), ["1.0", "0.1", "-2.5", "1e+20"]),
    "float": (pa.array([0.1, 16777216.0], pa.float32()), ["0.1", "16777216.0"]),
    "not finite": (
        pa.array([math.nan, math.inf, -math.inf, None]),
        ['"NaN"', '"Infinity"', '"-Infinity"', None],
    ),
    "decimal": (
        pa.array([Decimal("1.10"), Decimal("-0.05"), None], pa.decimal128(38, 2)),
        ["1.10", "-0.05", None],
    ),
    "string": (
        pa.array(['a"b\\c', "\n\t\b\f\r", "\x00\x1f", "é🙂", "", None]),
        ['"a\\"b\\\\c"', '"\\n\\t\\b\\f\\r"', '"\\u0000\\u001F"', '"é🙂"', '""', None],
    ),
    "binary": (pa.array([b"ab", b"\xff\x00", None]), ['"YWI="', '"/wA="', None]),
    "date": (pa.array([date(2026, 1, 2), None]), ['"2026-01-02"', None]),
    "timestamp": (
        pa.array([0, 1_000, 1_001, -1], pa.timestamp("us", "UTC")),
        [
            '"1970-01-01T00:00:00.000Z"',
            '"1970-01-01T00:00:00.001Z"',
            '"1970-01-01T00:00:00.001001Z"',
            '"1969-12-31T23:59:59.999999Z"',
        ],
    ),
    "timestamp of another zone": (
        pa.array([0], pa.timestamp("us", "Asia/Tokyo")),
        ['"1970-01-01T00:00:00.000Z"'],
    ),
    "timestamp_ntz": (pa.array([0, None], pa.timestamp("us")), ['"1970-01-01T00:00:00.000"', None]),
    "list": (
        pa.array([[1, None], [], None, [2]], pa.list_(pa.int64())),
        ["[1,null]", "[]", None, "[2]"],
    ),
    "struct": (
        pa.array([{"x": 1, "y": None}, {"x": None, "y": None}, None, {"x": 2, "y": "z"}], STRUCT),
        ['{"x":1}', "{}", None, '{"x":2,"y":"z"}'],
    ),
    "map": (
        pa.array([[("k", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int64())),
        ['{"k":1,"\\"":null}', "{}", None],
    ),
    "list of structs": (
        pa.array([[{"x": 1, "y": "a"}, None], None], pa.list_(STRUCT)),
        ['[{"x":1,"y":"a"},null]', None],
    ),
    "nothing": (pa.nulls(2), [None, None]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_type_has_its_text_also_in_a_slice(name: str) -> None:
    values, expected = EXAMPLES[name]
    assert json_tokens(values).to_pylist() == expected
    for start in range(len(values)):
        assert json_tokens(values.slice(start, 1)).to_pylist() == expected[start : start + 1]


def test_fields_that_are_null_are_left_out_wherever_they_stand() -> None:
    for a, b, c in ((0, 1, 2), (None, 1, None), (None, None, 2), (None, None, None), (0, None, 2)):
        columns = [pa.array([value, 7], pa.int64()) for value in (a, b, c)]
        found = [json.loads(text) for text in json_objects(("a", "b", "c"), columns, 2).to_pylist()]
        there = {n: v for n, v in {"a": a, "b": b, "c": c}.items() if v is not None}
        assert found == [there, {"a": 7, "b": 7, "c": 7}]
    assert json_objects((), [], 2).to_pylist() == ["{}", "{}"]


def test_names_of_columns_may_be_anything() -> None:
    names = ('a"b', "c\\d", "e.f g", "ü", "\n", "{,")
    columns = [pa.array([number, None]) for number in range(len(names))]
    first, second = json_objects(names, columns, 2).to_pylist()
    assert json.loads(first) == dict(zip(names, range(len(names)), strict=True))
    assert second == "{}"


SCALARS = st.one_of(
    st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(pa.float64()), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just(pa.string()), st.text(st.characters(codec="utf-8"))),
    st.tuples(st.just(pa.binary()), st.binary()),
    st.tuples(st.just(pa.bool_()), st.booleans()),
    st.tuples(
        st.just(pa.list_(pa.struct([("s", pa.string())]))),
        st.lists(st.fixed_dictionaries({"s": st.text(st.characters(codec="utf-8"))}), max_size=3),
    ),
)


@given(st.lists(SCALARS, min_size=1, max_size=5), st.data())
def test_what_is_parsed_is_what_was_written(
    columns: list[tuple[pa.DataType, Any]], data: st.DataObject
) -> None:
    arrays, rows = [], 3
    for kind, value in columns:
        there = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        arrays.append(pa.array([value if each else None for each in there], kind))
    names = [f"c{number}" for number in range(len(arrays))]
    for row, text in enumerate(json_objects(names, arrays, rows).to_pylist()):
        expected = {n: _plain(a[row].as_py()) for n, a in zip(names, arrays, strict=True)}
        assert json.loads(text) == {n: v for n, v in expected.items() if v is not None}


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@given(st.lists(st.datetimes(), max_size=20))
def test_times_are_what_python_reads(times: list[datetime]) -> None:
    aware = [each.replace(tzinfo=UTC) for each in times]
    micros = [
        (each - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for each in aware
    ]
    texts = times_text(pa.array(micros, pa.timestamp("us", "UTC"))).to_pylist()
    assert [datetime.fromisoformat(text) for text in texts] == aware
    assert all(
        len(text) == (24 if each.microsecond % 1000 == 0 else 27)
        for text, each in zip(texts, aware, strict=True)
    )


def test_years_of_five_digits_are_written_too() -> None:
    texts = times_text(pa.array([253402300800000000, None], pa.timestamp("us", "UTC")))
    assert texts.to_pylist() == ["10000-01-01T00:00:00.000000Z", None]


def test_a_key_of_one_column_is_plain_and_of_several_an_object() -> None:
    batch = pa.record_batch(
        {"a": ["x", None], "b": pa.array([1, 2]), "c": pa.array([b"\xff", b""])}
    )
    one, several = (
        next(messages_of(batch, Layout(("b",), keys), json_values)).keys
        for keys in (("a",), ("a", "b"))
    )
    assert one is not None
    assert several is not None
    assert one.to_pylist() == [b"x", None]
    assert several.to_pylist() == [b'{"a":"x","b":1}', b'{"b":2}']
    assert plain_bytes(batch["c"]).to_pylist() == [b"\xff", b""]
    assert plain_bytes(pa.array([1.0, math.nan])).to_pylist() == [b"1.0", b"NaN"]


def test_versions_of_a_row_with_a_null_key_stay_in_one_partition() -> None:
    """Kafka spreads null keys: a reader got an old version after a newer one."""
    batch = pa.record_batch({"k": ["a", None, "b", None], "v": [1, 2, 3, 4]})
    [spread] = messages_of(batch, Layout(("v",), ("k",)), json_values)
    [kept] = messages_of(batch, Layout(("v",), ("k",), replaces=True), json_values)
    assert spread.partitions is None
    assert kept.partitions == [None, 0, None, 0]
    assert kept.columns()[2] == [-1, 0, -1, 0]


def test_deletes_have_no_value_and_what_is_replaced_has_no_message() -> None:
    changes = ["+I", "+U", "-U", "-D", "-U"]
    batch = pa.record_batch({"k": [1, 2, 2, 3, 4], "v": [1, 2, 1, 2, 2], CHANGE: changes})
    layout = Layout(("k", "v"), ("k",))
    [sent] = batches_to_send(iter([batch]), layout)
    [messages] = messages_of(sent, layout, json_values)
    found = dict(zip(messages.columns()[1], messages.values.to_pylist(), strict=True))
    assert found == {b"1": b'{"k":1,"v":1}', b"2": b'{"k":2,"v":2}', b"3": None, b"4": None}
    assert len(messages.values) == 4
