"""Rows of state in a file of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from lamina.clock import SystemClock, new_writer_id
from lamina.errors import AlreadyExists, UsageError
from lamina.os_errors import typed_errors


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first *limit* rows; None is all of them."""
    left = limit
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        left = None if left is None else left - batch.num_rows
        yield batch


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows to a new file and return how many; AlreadyExists if there is a file.

    The file is complete or not there at all, whatever happens meanwhile.
    """
    aside = path.with_name(f"{path.name}.{new_writer_id(SystemClock())}.tmp")
    rows = 0
    with typed_errors(path):
        if path.exists():
            raise AlreadyExists("this file exists", where=str(path), advice="Choose another name")
        try:
            with parquet.ParquetWriter(aside, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
            aside.rename(path)
        except pa.ArrowException as error:
            raise UsageError(f"Parquet cannot hold this state: {error}") from error
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
    return rows
