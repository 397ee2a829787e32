"""What the pipelines of the engine's benchmark read, and what must come out of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = "k BIGINT, v BIGINT"
Longs = npt.NDArray[np.int64]


class Files:
    """Input files, made before anything is timed; every contender reads the same ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._random = np.random.default_rng(7)
        self._made = 0
        folder.mkdir(parents=True)

    def uniform(self, rows: int, keys: int) -> Path:
        """Rows with keys drawn from the first *keys* numbers."""
        return self._write(self._random.integers(0, keys, rows, dtype=np.int64))

    def every(self, first: int, last: int) -> Path:
        """One row for each of these keys."""
        return self._write(np.arange(first, last, dtype=np.int64))

    def _write(self, keys: Longs) -> Path:
        """Two row groups, one for each core."""
        values = self._random.integers(0, 1000, len(keys), dtype=np.int64)
        path = self._folder / f"{self._made:06d}.parquet"
        self._made += 1
        pq.write_table(
            pa.table({"k": keys, "v": values}), path, row_group_size=max(1, (len(keys) + 1) // 2)
        )
        return path


def hand_over(file: Path, folder: Path) -> None:
    """The file into the folder of a source, whole, in one step."""
    os.link(file, folder / file.name)


def check_totals(name: str, read: Path, rows: str, order: str) -> None:
    """The last row of every key must have the sum and count over all that was read.

    *rows* is a pattern of Parquet files with k, total and n; *order* is what tells, of a file's
    name, the epoch it is of.
    """
    wrong = _one(
        f"""
        WITH truth AS (
          SELECT k, sum(v)::BIGINT AS total, count(*) AS n FROM '{read}/*.parquet' GROUP BY k
        ), had AS (
          SELECT k, max_by(total, epoch) AS total, max_by(n, epoch) AS n FROM (
            SELECT *, regexp_extract(filename, '{order}', 1)::BIGINT AS epoch
            FROM read_parquet('{rows}', filename = true)
          ) GROUP BY k
        )
        SELECT count(*) FROM truth FULL JOIN had USING (k)
        WHERE truth.total IS DISTINCT FROM had.total OR truth.n IS DISTINCT FROM had.n
        """
    )
    if wrong:
        raise AssertionError(f"{name} has {wrong} keys wrong: its times mean nothing")


def check_sums(name: str, read: Sequence[Path], rows: str) -> None:
    """Without state: all that was read is in what was written, once."""
    listed = ", ".join(f"'{file}'" for file in read)
    truth = _one(f"SELECT sum(v) + count(*) FROM read_parquet([{listed}])")
    had = _one(f"SELECT sum(total) + sum(n) FROM '{rows}'")
    if truth != had:
        raise AssertionError(f"{name} has written {had} and not {truth}: its times mean nothing")


def _one(query: str) -> int:
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '4GB'; SET threads = 2")
        found = connection.execute(query).fetchone()
    assert found is not None
    return int(found[0])
