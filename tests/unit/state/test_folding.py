"""Several new values of a key as one: the same as merging them one after the other."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import Overflow
from lamina.state import folding
from lamina.state.changes import changes
from lamina.state.folding import folded
from lamina.state.merge import Merge, merge_rows
from lamina.state.schema import StateSchema

VALUES = pa.schema(
    [
        ("total", pa.int64()),
        ("n", pa.int64()),
        ("least", pa.string()),
        ("most", pa.date32()),
        ("money", pa.decimal128(22, 2)),
        ("yes", pa.bool_()),
    ]
)
MERGES = (
    Merge("sum", ("total",)),
    Merge("count", ("n",)),
    Merge("min", ("least",)),
    Merge("max", ("most",)),
    Merge("sum", ("money",)),
    Merge("any", ("yes",)),
)
SCHEMA = StateSchema(pa.schema([("k", pa.string())]), VALUES, merges=MERGES)
ROW = st.tuples(
    st.one_of(st.none(), st.sampled_from("abcde")),
    st.one_of(st.none(), st.integers(-(2**50), 2**50)),
    st.integers(0, 1),
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.dates()),
    st.one_of(st.none(), st.decimals(-1000, 1000, places=2)),
    st.one_of(st.none(), st.booleans()),
)


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA.row)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.row)


def one_by_one(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """The slow way: each row merged into what its key has by then."""
    kept: dict[Any, pa.RecordBatch] = {}
    for row in rows:
        values = batch_of([row]).select(VALUES.names)
        if row[0] in kept:
            values = merge_rows(MERGES, kept[row[0]], values, np.ones(1, np.bool_))
        kept[row[0]] = values
    keys = pa.array(list(kept), pa.string())
    merged = pa.concat_batches(list(kept.values()))
    batch = pa.RecordBatch.from_arrays([keys, *merged.columns], schema=SCHEMA.row)
    return changes(SCHEMA, batch)


@given(st.lists(ROW, min_size=1, max_size=40))
def test_folding_is_merging_row_by_row(rows: list[tuple[Any, ...]]) -> None:
    assert folded(SCHEMA, batch_of(rows)).equals(one_by_one(rows))


NUMBERS = StateSchema(
    pa.schema([("k", pa.int64())]),
    pa.schema([(name, pa.int64()) for name in ("sum", "count", "min", "max")]),
    merges=tuple(Merge(name, (name,)) for name in ("sum", "count", "min", "max")),
)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-(2**50), 2**50)), min_size=1))
def test_whole_numbers_are_folded_at_once(rows: list[tuple[int, int]]) -> None:
    keys, values = (pa.array(list(column), pa.int64()) for column in zip(*rows, strict=True))
    ones = pa.array([1] * len(rows), pa.int64())
    batch = pa.RecordBatch.from_arrays([keys, values, ones, values, values], schema=NUMBERS.row)
    found = {
        row.pop("k"): row for row in folded(NUMBERS, batch).select(NUMBERS.row.names).to_pylist()
    }
    for key in dict(rows):
        mine = [value for other, value in rows if other == key]
        wanted = {"sum": sum(mine), "count": len(mine), "min": min(mine), "max": max(mine)}
        assert found.pop(key) == wanted
    assert not found


def test_a_key_with_very_many_rows_is_one() -> None:
    rows = [("a", n, 1, None, None, Decimal(n), None) for n in range(1000)]
    rows[500:500] = [("b", None, 0, "x", None, None, True)]
    (a, b) = sorted(folded(SCHEMA, batch_of(rows)).to_pylist(), key=lambda row: str(row["k"]))
    assert (a["total"], a["n"], a["money"]) == (499_500, 1000, Decimal(499_500))
    assert (b["total"], b["n"], b["least"], b["yes"]) == (None, 0, "x", True)


def test_a_sum_that_does_not_fit_is_an_error_and_does_not_wrap() -> None:
    rows = [("a", 2**63 - 1, 1, None, None, None, None), ("a", 1, 1, None, None, None, None)]
    with pytest.raises(Overflow):
        folded(SCHEMA, batch_of(rows))


def test_keys_that_share_a_slot_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys with one hash of 56 bits: rare, and then a sum of both would be silent."""
    monkeypatch.setattr(folding, "slots_of_keys", lambda keys: np.full(len(keys[0]), 7, np.uint64))
    names = ["b", "a", None, "b", "a", "b", "c"]
    rows = [(name, 1, 1, None, None, None, None) for name in names]
    found = folded(SCHEMA, batch_of(rows))
    assert found.column("k").to_pylist() == [None, "a", "b", "c"]
    assert found.column("n").to_pylist() == [1, 2, 3, 1]


def test_zeros_and_nans_are_one_key_however_they_are_written() -> None:
    schema = StateSchema(
        pa.schema([("k", pa.float64())]),
        pa.schema([("n", pa.int64())]),
        merges=(Merge("count", ("n",)),),
    )
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    keys = pa.array(np.array([0.0, -0.0, np.nan, other_nan, 1.0]), from_pandas=False)
    batch = pa.record_batch({"k": keys, "n": pa.array([1] * 5)})
    assert sorted(folded(schema, batch).column("n").to_pylist()) == [1, 2, 2]
