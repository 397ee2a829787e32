"""The rows of one planned epoch in a file that tasks read; made again whenever it is needed.

Nobody else has to keep it: the database has the same changes for as long as they may be
asked for, and a committed epoch is never read again (decision 0032). So nothing is synced here.

A transaction may be larger than memory: what does not fit goes to files by the hash of its keys,
and each of them is folded by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.changes.folding import NEVER, fold
from lamina.engine.ports import CHANGE, INSERT
from lamina.os_errors import typed_errors
from lamina.state.hashing import spark_xxhash64

BUCKETS = 64
_ROWS_IN_GROUP = 128 << 10


@dataclass(frozen=True, slots=True)
class Journal:
    """The changes of a range, as a Parquet file with the column CHANGE."""

    path: str
    rows: int


class JournalWriter:
    """Writes one; *path* is there when it is closed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._rows = 0
        with typed_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = schema.append(pa.field(CHANGE, pa.string()))
            self._writer = pq.ParquetWriter(path, whole, compression="lz4")

    def write(self, rows: pa.Table) -> None:
        with typed_errors(self._path):
            wanted = self._writer.schema
            self._writer.write_table(rows.select(wanted.names).cast(wanted), _ROWS_IN_GROUP)
        self._rows += rows.num_rows

    def insert(self, rows: pa.Table) -> None:
        """Rows of a snapshot: all of them are new."""
        kinds = pa.repeat(pa.scalar(INSERT), rows.num_rows)
        self.write(rows.append_column(CHANGE, kinds))

    def close(self) -> Journal:
        with typed_errors(self._path):
            self._writer.close()
        return Journal(str(self._path), self._rows)


class Versions:
    """What is to be folded: in memory, and in files once that would be too much."""

    def __init__(self, folder: Path, keys: Sequence[str], memory_bytes: int) -> None:
        self._folder = folder
        self._keys = list(keys)
        self._memory_bytes = memory_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._files: dict[int, pa.RecordBatchFileWriter] = {}

    def add(self, versions: pa.Table) -> None:
        self._held.append(versions)
        self._held_bytes += versions.nbytes
        if self._held_bytes > self._memory_bytes:
            self._spill()

    def fold_into(
        self,
        journal: JournalWriter,
        complete: Callable[[pa.Table], pa.Table] = lambda entries: entries,
        cleared_at: int = NEVER,
    ) -> None:
        """*complete* gets all entries of some keys, and adds what the log does not say of them."""
        if self._files:
            self._spill()
            for bucket in sorted(self._files):
                self._files[bucket].close()
                with pa.memory_map(self._path(bucket)) as file:
                    entries = complete(pa.ipc.open_file(file).read_all())
                    journal.write(fold(entries, self._keys, cleared_at))
            shutil.rmtree(self._folder)
        elif self._held:
            entries = complete(pa.concat_tables(self._held))
            journal.write(fold(entries, self._keys, cleared_at))
        self._held, self._files = [], {}

    def _spill(self) -> None:
        if not self._held:
            return
        versions = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_bytes = [], 0
        (batch,) = versions.to_batches()
        hashes = spark_xxhash64([batch.column(key) for key in self._keys]).view(np.uint64)
        buckets = (hashes >> np.uint64(32)) % np.uint64(BUCKETS)
        with typed_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for bucket in np.unique(buckets).tolist():
                if bucket not in self._files:
                    self._files[bucket] = pa.ipc.new_file(self._path(bucket), batch.schema)
                self._files[bucket].write_batch(batch.filter(pa.array(buckets == bucket)))

    def _path(self, bucket: int) -> str:
        return str(self._folder / f"{bucket:02d}.arrow")
