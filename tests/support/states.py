"""Small states for tests: changes in one line, runs in files or in memory, rows as dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lamina.state.changes import changes
from lamina.state.partition import StatePartition
from lamina.state.run import Run, run_of_batch
from lamina.state.run_file import Epochs, _write, open_run, write_run
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Slots

KV = StateSchema(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))
TIMED = StateSchema(
    pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64()), ("t", pa.int64())]), "t"
)
WINDOWED = StateSchema(
    pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))]),
    pa.schema([("v", pa.int64())]),
    "t",
)
EPOCH = Epochs(1, 1)

Rows = list[dict[str, Any]]


def rows_batch(schema: StateSchema, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), pa.schema(list(schema.row)))


def made(
    schema: StateSchema,
    rows: Sequence[dict[str, Any]],
    *,
    deleted: Sequence[bool] | None = None,
    slots: Sequence[int] | Slots | None = None,
) -> pa.RecordBatch:
    """Rows as sorted changes."""
    return changes(
        schema,
        rows_batch(schema, rows),
        deletes=None if deleted is None else np.array(deleted, np.bool_),
        slots=None if slots is None else np.array(slots, np.uint64),
    )


def kv(values: dict[int, int | None], slots: Sequence[int] | None = None) -> pa.RecordBatch:
    """Keys and values as changes; None deletes the key."""
    rows = [{"k": key, "v": value} for key, value in values.items()]
    return made(KV, rows, deleted=[v is None for v in values.values()], slots=slots)


def apply_all(state: StatePartition, *batches: pa.RecordBatch) -> StatePartition:
    """Every batch as an epoch of its own."""
    for batch in batches:
        state = state.with_run(run_of_batch(state.apply(batch).run))
    return state


def scanned(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def as_dict(state: StatePartition) -> dict[int, int]:
    """All of a state of KV."""
    rows = scanned(state.scan())
    assert len({row["k"] for row in rows}) == len(rows), "a key is there once"
    return {row["k"]: row["v"] for row in rows}


def in_files(
    folder: Path, schema: StateSchema, *, compression: str | None = None
) -> Callable[[Iterator[pa.RecordBatch], int | None], Run]:
    """What `StatePartition.compact` writes with."""
    numbers = count()

    def write(batches: Iterator[pa.RecordBatch], floor: int | None) -> Run:
        path = folder / f"{next(numbers)}.run"
        write_run(path, batches, schema, epochs=EPOCH, floor=floor, compression=compression)
        return open_run(path)

    return write


def run_bytes(
    batches: Iterable[pa.RecordBatch],
    schema: StateSchema,
    *,
    epochs: Epochs = EPOCH,
    floor: int | None = None,
) -> bytes:
    """A run file in memory."""
    file = BytesIO()
    _write(file, batches, schema, epochs=epochs, floor=floor, compression=None)
    return file.getvalue()
