"""A key of a join with more rows than fit into one task is named, not an error of Arrow's."""

from __future__ import annotations

import mmap

import pyarrow as pa
import pytest

from lamina.engine.join_rows import AT, RIGHT, one_batch, with_kept
from lamina.engine.task_state import TIME
from lamina.errors import Refused

LARGE = 1_100 << 20
SCHEMA = pa.schema([("k0", pa.string()), (RIGHT, pa.bool_()), (AT, TIME), ("l0", pa.string())])


def large(rows: int) -> pa.Array:
    """Texts of 1.1 GiB together; the memory is never touched, so there is none."""
    size = LARGE // rows
    offsets = pa.array([number * size for number in range(rows + 1)], pa.int32())
    data = pa.py_buffer(mmap.mmap(-1, LARGE))
    return pa.StringArray.from_buffers(rows, offsets.buffers()[1], data)


def batch(keys: list[str]) -> pa.RecordBatch:
    rows = len(keys)
    columns = [pa.array(keys), pa.array([False] * rows), pa.array(range(rows), TIME), large(rows)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_the_largest_key_is_named() -> None:
    new, kept = batch(["cold"]), batch(["hot", "cold", "hot", "hot"])
    with pytest.raises(Refused, match=r"The largest key is hot, with 3 rows") as refused:
        with_kept(new, [new.column("k0")], kept)
    assert "do not fit together in one task" in refused.value.message
    assert "closer bounds" in refused.value.advice


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(pa.ArrowInvalid, match="300"), one_batch("rows"):
        pa.array([300]).cast(pa.int8())
