"""A runner without Spark: streams are Python functions over Arrow tables. For tests and simulation.

It does what tasks on Spark do, with the same code: placement by hash, one task per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lamina.engine.model import (
    Seen,
    SourceRange,
    Staged,
    StagedRows,
    StreamResult,
    StreamWork,
    TaskResult,
    TaskWork,
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
        fail_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        """*times* names the column of event time of each source that has one."""
        self._read = read
        self._streams = streams
        self._times = times
        self._fail_point = fail_point
        self._attempts = 0

    def run(self, work: StreamWork) -> StreamResult:
        rows, seen = self._input(work)
        stream = self._streams[work.stream]
        computed = None if rows is None else stream.partial(rows)
        if work.operator is None:
            return StreamResult((self._select(work, computed),), seen)
        placed = None if computed is None else self._placed(work, computed)
        results = (self._task(work, stream, number, placed) for number in range(work.partitions))
        return StreamResult(results_of(results, work.partitions), seen)

    def _input(self, work: StreamWork) -> tuple[pa.Table | None, dict[str, Seen]]:
        """What there is to read; None if a stream has put out nothing, not even columns."""
        match work.input:
            case SourceRange(source) as each:
                table, seen = self._timed(source, self._read(each), work.latest_max_us)
                return table, {source: seen}
            case StagedRows(_, files):
                tables = [pq.read_table(Path(work.home) / file) for file in files]
                return (pa.concat_tables(tables) if tables else None), {}

    def _timed(
        self, source: str, table: pa.Table, latest_max_us: int | None
    ) -> tuple[pa.Table, Seen]:
        """Rows with an event time, if the source has one, and what was seen of all."""
        column = self._times.get(source)
        if column is None:
            return table, Seen(table.num_rows)
        kept = table.filter(pc.is_valid(table[column]))
        times = time_values(kept[column].combine_chunks())
        if latest_max_us is not None:
            times = times[times <= latest_max_us]
        latest = int(times.max()) if len(times) else None
        return kept, Seen(table.num_rows, latest, table.num_rows - kept.num_rows)

    def _select(self, work: StreamWork, rows: pa.Table | None) -> TaskResult:
        task = work.task(0, self._attempt())
        count = 0 if rows is None else rows.num_rows
        return TaskResult(0, staged=self._staged(task, rows), rows_in=count)

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
        self._fail_point("before append")
        updated = update_state(task, mine)
        self._fail_point("after append")
        rows = list(updated.rows)
        output = stream.final(pa.Table.from_batches(rows)) if rows else None
        return replace(updated.result, staged=self._staged(task, output))

    def _staged(self, task: TaskWork, rows: pa.Table | None) -> tuple[Staged, ...]:
        self._fail_point("before stage")
        staged = () if rows is None else stage(task, rows.to_batches())
        self._fail_point("after stage")
        return staged

    def _attempt(self) -> str:
        self._attempts += 1
        return str(self._attempts)
