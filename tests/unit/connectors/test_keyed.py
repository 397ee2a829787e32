"""Rows by key: how a sink writes, and the last word of an epoch on each key."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.keyed import WriteMode, Writing, last_of_each_key, writing_of
from lamina.connectors.kinds import Given, SinkContext, Value
from lamina.engine.ports import CHANGE, Change, Output
from lamina.errors import BadPipeline, Refused
from lamina.pipeline.model import DeclaredSink
from lamina.workspace.notes import LocalNotes

SCHEMA = pa.schema({"Name": pa.string(), "n": pa.int64()})


def written(folder: Path, output: Output, **declared: Value) -> Writing:
    sink, given = DeclaredSink("o", "s", "odd"), Given("p.sql", declared)
    return writing_of(SinkContext(sink, given, LocalNotes(folder), io.StringIO(), output), output)


def by(*keys: str) -> Writing:
    return Writing(WriteMode.UPSERT, keys)


def test_a_sink_does_what_its_stream_does(tmp_path: Path) -> None:
    added = Output(SCHEMA)
    updated = Output(SCHEMA, Change.UPSERT, ("Name",))
    by_name = Writing(WriteMode.UPSERT, ("Name",), refuses_several=True)
    assert written(tmp_path, added) == Writing(WriteMode.APPEND)
    assert written(tmp_path, updated) == by_name
    ordered = Writing(WriteMode.UPSERT, ("Name",), "n")
    assert written(tmp_path, added, keys=("name",), order_by="N") == ordered, "keys say that"
    assert written(tmp_path, updated, mode="append") == Writing(WriteMode.APPEND)
    unknown = Output(SCHEMA, Change.UPSERT)
    assert written(tmp_path, unknown, keys=("NAME",)) == by_name
    changed = Output(SCHEMA, Change.CHANGES, ("Name",))
    assert written(tmp_path, changed) == by_name
    with pytest.raises(BadPipeline, match="deletes rows by n, which does not tell them apart"):
        written(tmp_path, changed, keys=("n",))


def test_a_stream_is_keyed_by_more_columns_or_by_either_end_of_its_window(tmp_path: Path) -> None:
    schema = pa.schema({"k": pa.string(), "start": pa.int64(), "end": pa.int64(), "n": pa.int64()})
    choices = (frozenset({"k"}), frozenset({"start", "end"}))
    for change in (Change.UPSERT, Change.APPEND):
        output = Output(schema, change, ("k", "start", "end"), choices)
        for keys in (("k", "start", "end"), ("END", "K"), ("start", "k", "n")):
            assert written(tmp_path, output, keys=keys).order_by == ""
        for keys in (("k",), ("start", "end"), ("k", "n")):
            with pytest.raises(BadPipeline, match="not grouped by") as raised:
                written(tmp_path, output, keys=keys)
            assert "order_by 'column'" in raised.value.advice


@pytest.mark.parametrize(
    ("output", "declared", "said"),
    [
        (Output(SCHEMA, Change.UPSERT), {}, "they are not known"),
        (Output(SCHEMA, Change.UPSERT, ()), {}, "there is one row at most"),
        (Output(SCHEMA), {"keys": ("x",)}, "'x', which is not a column"),
        (Output(SCHEMA, Change.CHANGES, ("n",)), {"mode": "append"}, "that deletes some"),
        (Output(SCHEMA), {"mode": "append", "keys": ("no_such_column",)}, "has keys, and appends"),
        (Output(SCHEMA), {"order_by": "n"}, "has order_by, and appends"),
        (Output(SCHEMA), {"keys": ("name",)}, "by Name, which the stream is not grouped by"),
        (Output(SCHEMA), {"keys": ("name",), "order_by": "x"}, "'x', which is not a column"),
        (Output(SCHEMA), {"keys": ("name",), "order_by": "NAME"}, "which is one of the keys"),
        (
            Output(pa.schema({"k": pa.int64(), "l": pa.list_(pa.int64())})),
            {"keys": ("k",), "order_by": "l"},
            "which has no order",
        ),
    ],
)
def test_what_a_sink_cannot_do_is_refused_with_advice(
    output: Output, declared: dict[str, Value], said: str, *, tmp_path: Path
) -> None:
    with pytest.raises(BadPipeline) as raised:
        written(tmp_path, output, **declared)
    assert said in str(raised.value)
    assert raised.value.advice


def test_of_several_rows_of_a_key_the_last_one_counts() -> None:
    rows = pa.table({"a": [1, None, 1, 2, None], "b": ["x", "y", "x", "z", "y"], "n": range(5)})
    kept = last_of_each_key(rows, by("a", "b"))
    assert kept.upserts["n"].to_pylist() == [2, 3, 4]
    assert kept.deletes.num_rows == 0


def test_a_key_column_may_have_the_name_of_the_row_number() -> None:
    rows = pa.table({"row": [7, 7], "n": [1, 2]})
    assert last_of_each_key(rows, by("row")).upserts["n"].to_pylist() == [2]


def test_changes_become_upserts_and_deletes() -> None:
    rows = pa.table(
        {
            "k": [1, None, 2, 3, 3, 4, None],
            "n": [10, 50, 20, 31, 30, 40, 51],
            CHANGE: ["-D", "+I", "+I", "+U", "-U", "-U", "-D"],
        }
    )
    for given in (rows, rows.take(list(reversed(range(7))))):
        kept = last_of_each_key(given, replace(by("k"), refuses_several=True))
        new = [{"k": None, "n": 50}, {"k": 2, "n": 20}, {"k": 3, "n": 31}]
        assert sorted(kept.upserts.to_pylist(), key=str) == sorted(new, key=str)
        assert sorted(kept.deletes["k"].to_pylist()) == [1, 4], "a -U without its +U, too"


def test_several_new_rows_of_a_key_are_refused_and_rows_taken_back_are_not() -> None:
    several = replace(by("k"), refuses_several=True)
    rows = pa.table({"k": [1, 1, 1], CHANGE: ["-D", "-U", "+I"]})
    assert last_of_each_key(rows, several).upserts.num_rows == 1
    with pytest.raises(Refused, match="several rows with the same k"):
        last_of_each_key(pa.table({"k": [1, 1], CHANGE: ["+I", "+U"]}), several)


def test_no_rows_are_no_rows() -> None:
    kept = last_of_each_key(SCHEMA.empty_table(), by("n"))
    assert kept.upserts.num_rows == kept.deletes.num_rows == 0


def test_of_rows_in_no_order_an_older_version_won() -> None:
    rows = pa.table({"k": [1, 1, 1, 2, 2, 3, 3], "at": [3, 9, 5, None, 1, 4, 4], "n": range(7)})
    ordered = replace(by("k"), order_by="at")
    assert sorted(last_of_each_key(rows, ordered).upserts["n"].to_pylist()) == [1, 4, 6]
    backwards = rows.take(list(reversed(range(7))))
    assert sorted(last_of_each_key(backwards, ordered).upserts["n"].to_pylist()) == [1, 4, 5]
    with pytest.raises(Refused, match="have no column 'at'"):
        last_of_each_key(rows.drop_columns(["at"]), ordered)


@pytest.mark.parametrize(
    ("values", "greatest"),
    [
        ([1.0, float("nan"), 2.0, None], 1),
        ([None, -1.0, -2.0], 1),
        ([None, None], 1),
        (["b", "a", ""], 0),
        ([datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)], 0),
        ([Decimal("1.5"), Decimal("1.25")], 0),
    ],
)
def test_the_greatest_is_what_spark_sorts_last(values: list[object], greatest: int) -> None:
    rows = pa.table({"k": [7] * len(values), "at": values, "n": range(len(values))})
    kept = last_of_each_key(rows, replace(by("k"), order_by="at"))
    assert kept.upserts["n"].to_pylist() == [greatest]


def test_several_rows_of_a_key_that_nobody_has_put_in_order_are_refused() -> None:
    unknown = replace(by("k"), refuses_several=True)
    assert last_of_each_key(pa.table({"k": [1, 2]}), unknown).upserts.num_rows == 2
    with pytest.raises(Refused, match="several rows with the same k") as raised:
        last_of_each_key(pa.table({"k": [1, 2, 1]}), unknown)
    assert "order_by" in raised.value.advice


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_both_zeros_were_two_keys(kind: pa.DataType) -> None:
    values = pa.array([0.0, -0.0, float("nan"), -float("nan"), None, 1.5], kind)
    rows = pa.table([values, pa.array(range(6))], pa.schema({"k": kind, "n": pa.int64()}))
    kept = last_of_each_key(rows, by("k")).upserts
    assert kept["n"].to_pylist() == [1, 3, 4, 5]
    assert str(kept["k"][0]) == "0.0"
    assert kept.schema == rows.schema
