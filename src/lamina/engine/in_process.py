"""A runner without Spark: streams are Python functions over Arrow tables. For tests and simulation.

It does what tasks on Spark do, with the same code: placement by hash, one task per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.engine.model import (
    Seen,
    SourceRange,
    StagedRows,
    StreamResult,
    StreamWork,
    TaskResult,
)
from lamina.engine.staging import stage
from lamina.engine.task import HASH, VNODE, results_of, schema_of, update_state
from lamina.state.hashing import spark_xxhash64, vnodes_of
from lamina.state.keys import normalise
from lamina.state.schema import time_values

Table = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class LocalStream:
    """What a stream computes: of rows their partials, or their output; of state rows the output."""

    partial: Table
    final: Table = lambda table: table


class InProcessRunner:
    """Runs everything in this thread."""

    def __init__(
        self,
        read: Callable[[SourceRange], pa.Table],
        streams: Mapping[str, LocalStream],
        times: Mapping[str, str],
    ) -> None:
        """*times* names the column of event time of each source that has one."""
        self._read = read
        self._streams = streams
        self._times = times
        self._attempts = 0

    def run(self, work: StreamWork) -> StreamResult:
        table, seen = self._input(work)
        stream = self._streams[work.stream]
        if work.operator is None:
            return StreamResult((self._select(work, stream.partial(table)),), seen)
        partials = self._placed(work, stream.partial(table))
        results = (self._task(work, stream, number, partials) for number in range(work.partitions))
        return StreamResult(results_of(results, work.partitions), seen)

    def _input(self, work: StreamWork) -> tuple[pa.Table, dict[str, Seen]]:
        match work.input:
            case SourceRange(source) as each:
                table = self._read(each)
                return table, {source: self._seen(source, table)}
            case StagedRows(_, files):
                tables = [pq.read_table(Path(work.home) / file) for file in files]
                return (pa.concat_tables(tables) if tables else pa.table({})), {}

    def _seen(self, source: str, table: pa.Table) -> Seen:
        column = self._times.get(source)
        if column is None or not table.num_rows:
            return Seen(rows=table.num_rows)
        times = table[column].combine_chunks().drop_null()
        latest = int(time_values(times).max()) if len(times) else None
        return Seen(table.num_rows, latest, table.num_rows - len(times))

    def _select(self, work: StreamWork, rows: pa.Table) -> TaskResult:
        task = work.task(0, self._attempt())
        return TaskResult(0, staged=stage(task, rows.to_batches()), rows_in=rows.num_rows)

    def _placed(self, work: StreamWork, partials: pa.Table) -> pa.RecordBatch | None:
        """With the columns that Spark would add."""
        assert work.operator is not None
        if not partials.num_rows:
            return None
        batch = partials.combine_chunks().to_batches()[0]
        schema = schema_of(work.operator)
        keys = [normalise(batch.column(field.name)) for field in schema.key]
        batch = batch.append_column(VNODE, pa.array(vnodes_of(keys), pa.int32()))
        return batch.append_column(HASH, pa.array(spark_xxhash64(keys), pa.int64()))

    def _task(
        self, work: StreamWork, stream: LocalStream, number: int, partials: pa.RecordBatch | None
    ) -> TaskResult:
        task = work.task(number, self._attempt())
        mine = []
        if partials is not None:
            owners = partials.column(VNODE).to_numpy() % work.partitions
            mine = [partials.filter(pa.array(owners == number))]
        updated = update_state(task, mine)
        rows = list(updated.rows)
        output = stream.final(pa.Table.from_batches(rows)) if rows else None
        staged = stage(task, output.to_batches()) if output is not None else ()
        return replace(updated.result, staged=staged)

    def _attempt(self) -> str:
        self._attempts += 1
        return str(self._attempts)
