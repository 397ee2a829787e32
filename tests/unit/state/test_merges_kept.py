"""Merge functions are part of the state: forgetting or changing them would change old values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lamina
from lamina.errors import StateChanged
from lamina.state.run_file import Epochs, read_run
from lamina.state.schema import StateSchema
from tests.support.states import run_bytes

KEY, VALUE = pa.schema({"k": pa.string()}), pa.schema({"n": pa.int64()})
SUM = lamina.Merge("sum", ("n",))


def one(n: int) -> pa.RecordBatch:
    return pa.record_batch({"k": ["a"], "n": pa.array([n], pa.int64())})


def test_a_table_opened_again_without_its_merges_still_sums(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE, merges=[SUM]).write(one(1))
        store.commit()
    for _ in range(2):  # from the WAL, then from a checkpoint
        with lamina.open(tmp_path) as store:
            store.table("t").write(one(10))
            store.commit()
            store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert store.table("t", KEY, VALUE).to_table().to_pylist() == [{"k": "a", "n": 21}]


@pytest.mark.parametrize("merges", [[], [lamina.Merge("max", ("n",))]], ids=["none", "other"])
def test_other_merges_are_refused_by_name(tmp_path: Path, merges: list[lamina.Merge]) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE, merges=[SUM]).write(one(1))
        store.commit()
    with lamina.open(tmp_path) as store, pytest.raises(StateChanged, match=r"sum\(n\)"):
        store.table("t", KEY, VALUE, merges=merges)


def test_merges_of_values_that_were_replaced_before_are_refused(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE).write(one(1))
        store.commit()
        with pytest.raises(StateChanged, match="none in its state"):
            store.table("t", KEY, VALUE, merges=[SUM])


def test_a_new_column_comes_with_a_merge_of_its_own(tmp_path: Path) -> None:
    wider = pa.schema({"n": pa.int64(), "most": pa.int64()})
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE, merges=[SUM]).write(one(1))
        store.commit()
        both = [SUM, lamina.Merge("max", ("most",))]
        table = store.table("t", KEY, wider, merges=both)
        table.write(pa.record_batch({"k": ["a"], "n": [2], "most": [7]}))
        assert table.to_table().to_pylist() == [{"k": "a", "n": 3, "most": 7}]


def test_a_table_without_rows_may_still_choose(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE)
        assert store.table("t", KEY, VALUE, merges=[SUM]).schema.merges == (SUM,)


def test_a_run_file_says_how_its_values_are_merged() -> None:
    schema = StateSchema(KEY, VALUE, merges=(lamina.Merge("last_by", ("n",), {"limit": 1}),))
    data = run_bytes([], schema, epochs=Epochs(1, 1))
    assert read_run(pa.py_buffer(data), "run").schema == schema
