"""Rows by key: how a sink writes, and the last word of an epoch on each key."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.keyed import WriteMode, Writing, last_of_each_key, writing_of
from lamina.connectors.kinds import Given, SinkContext, Value
from lamina.engine.ports import CHANGE, Change, Output
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink
from lamina.workspace.notes import LocalNotes

SCHEMA = pa.schema({"Name": pa.string(), "n": pa.int64()})


def written(folder: Path, output: Output, **declared: Value) -> Writing:
    sink, given = DeclaredSink("o", "s", "odd"), Given("p.sql", declared)
    return writing_of(SinkContext(sink, given, LocalNotes(folder), io.StringIO(), output), output)


def test_a_sink_does_what_its_stream_does(tmp_path: Path) -> None:
    added = Output(SCHEMA)
    updated = Output(SCHEMA, Change.UPSERT, ("Name",))
    by_name = Writing(WriteMode.UPSERT, ("Name",))
    assert written(tmp_path, added) == Writing(WriteMode.APPEND)
    assert written(tmp_path, updated) == by_name
    assert written(tmp_path, added, keys=("name",)) == by_name, "keys say that it goes by them"
    assert written(tmp_path, updated, mode="append") == Writing(WriteMode.APPEND)
    assert written(tmp_path, Output(SCHEMA, Change.UPSERT), keys=("NAME",)) == by_name


@pytest.mark.parametrize(
    ("output", "declared", "said"),
    [
        (Output(SCHEMA, Change.UPSERT), {}, "they are not known"),
        (Output(SCHEMA, Change.UPSERT, ()), {}, "there is one row at most"),
        (Output(SCHEMA), {"keys": ("x",)}, "'x', which is not a column"),
        (Output(SCHEMA, Change.CHANGES, ("n",)), {"mode": "append"}, "that deletes some"),
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
    kept = last_of_each_key(rows, ("a", "b"))
    assert kept.upserts["n"].to_pylist() == [2, 3, 4]
    assert kept.deletes.num_rows == 0


def test_a_key_column_may_have_the_name_of_the_row_number() -> None:
    rows = pa.table({"row": [7, 7], "n": [1, 2]})
    assert last_of_each_key(rows, ("row",)).upserts["n"].to_pylist() == [2]


def test_changes_become_upserts_and_deletes() -> None:
    rows = pa.table(
        {
            "k": [1, 1, 2, 3, 3, 4],
            "n": [10, 11, 20, 30, 31, 40],
            CHANGE: ["+I", "-D", "+I", "-U", "+U", "-U"],
        }
    )
    kept = last_of_each_key(rows, ("k",))
    assert kept.upserts.to_pylist() == [{"k": 2, "n": 20}, {"k": 3, "n": 31}]
    assert kept.deletes.to_pylist() == [{"k": 1}]


def test_no_rows_are_no_rows() -> None:
    kept = last_of_each_key(SCHEMA.empty_table(), ("n",))
    assert kept.upserts.num_rows == kept.deletes.num_rows == 0
