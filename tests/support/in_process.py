"""A runner without Spark: streams are Python functions over Arrow tables. For tests and simulation.

It does what tasks on Spark do, with the same code: placement by hash, one task per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lamina.engine.changing import PAIR, changes_of
from lamina.engine.model import (
    Input,
    OperatorWork,
    Seen,
    SourceRange,
    StagedRows,
    StreamResult,
    StreamWork,
    TaskResult,
    TaskWork,
)
from lamina.engine.steps import is_beside
from lamina.engine.task import combined, results_of, update_state
from lamina.engine.task_state import schema_of
from lamina.state.hashing import vnodes_of
from lamina.state.keys import normalise
from lamina.state.schema import time_values
from lamina.workspace.model import Staged


@dataclass(frozen=True, slots=True)
class LocalStream:
    """What a stream computes: of rows their partials, or their output; of state rows the output.

    Both get a table for each input or operator, None where there is nothing. Of several operators
    `partial` gives a tuple, one table each.
    """

    partial: Callable[..., pa.Table | tuple[pa.Table | None, ...]]
    final: Callable[..., pa.Table] = lambda table: table


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
        seen: dict[str, Seen] = {}
        rows = [self._input(work, each, seen) for each in work.inputs]
        stream = self._streams[work.stream]
        computed = None if all(each is None for each in rows) else stream.partial(*rows)
        if not work.operators:
            assert not isinstance(computed, tuple)
            return StreamResult((self._select(work, computed),), seen)
        partials = computed if isinstance(computed, tuple) else (computed,)
        assert len(partials) == len(_states(work))
        batches = [_one_batch(each) for each in partials]
        results = (self._task(work, stream, number, batches) for number in range(work.partitions))
        return StreamResult(results_of(results, work.partitions), seen)

    def _input(self, work: StreamWork, given: Input, seen: dict[str, Seen]) -> pa.Table | None:
        """What there is to read; None if a stream has put out nothing, not even columns."""
        match given:
            case SourceRange(source) as each:
                table, seen[source] = self._timed(source, self._read(each), work)
                return table
            case StagedRows(_, files):
                tables = [pq.read_table(work.space.open_staged(file)) for file in files]
                return pa.concat_tables(tables) if tables else None

    def _timed(self, source: str, table: pa.Table, work: StreamWork) -> tuple[pa.Table, Seen]:
        """Rows with an event time, if the source has one, and what was seen of all."""
        column = self._times.get(source)
        if column is None:
            return table, Seen(table.num_rows)
        kept = table.filter(pc.is_valid(table[column]))
        times = time_values(kept[column].combine_chunks())
        limit = work.latest_max_us.get(source)
        within = times if limit is None else times[times <= limit]
        beyond = times if limit is None else times[times > limit]
        return kept, Seen(
            table.num_rows,
            int(within.max()) if len(within) else None,
            table.num_rows - kept.num_rows,
            int(beyond.min()) if source in work.latest_max_us and len(beyond) else None,
            0 if limit is None else len(beyond),
        )

    def _select(self, work: StreamWork, rows: pa.Table | None) -> TaskResult:
        task = work.task(0, self._attempt())
        count = 0 if rows is None else rows.num_rows
        return TaskResult(0, staged=self._staged(task, rows), rows_in=count)

    def _task(
        self,
        work: StreamWork,
        stream: LocalStream,
        number: int,
        partials: Sequence[pa.RecordBatch | None],
    ) -> TaskResult:
        task = work.task(number, self._attempt())
        results, tables = list[TaskResult](), list[pa.Table | None]()
        for operator, batch in zip(_states(work), partials, strict=True):
            self._fail_point("before append")
            updated = update_state(task, operator, _owned(batch, task, operator))
            self._fail_point("after append")
            results.append(updated.result)
            rows = list(updated.rows)
            tables.append(pa.Table.from_batches(rows) if rows else None)
        is_silent = all(table is None for table in tables)
        output = None if is_silent else _as_changes(stream.final(*tables))
        return replace(combined(results), staged=self._staged(task, output))

    def _staged(self, task: TaskWork, rows: pa.Table | None) -> tuple[Staged, ...]:
        self._fail_point("before stage")
        staged = () if rows is None else task.stream.space.stage(task.writer, rows.to_batches())
        self._fail_point("after stage")
        return staged

    def _attempt(self) -> str:
        self._attempts += 1
        return str(self._attempts)


def _states(work: StreamWork) -> list[OperatorWork]:
    """The operators that rows come to; timers have none."""
    return [each for each in work.operators if not is_beside(each.plan.step)]


def _as_changes(rows: pa.Table) -> pa.Table:
    """Rows that `final` has left, as changes, if they are versions of rows."""
    if PAIR not in rows.column_names or not rows.num_rows:
        return rows
    (versions,) = rows.combine_chunks().to_batches()
    return pa.Table.from_batches([changes_of(versions)])


def _one_batch(partials: pa.Table | None) -> pa.RecordBatch | None:
    if partials is None or not partials.num_rows:
        return None
    return partials.combine_chunks().to_batches()[0]


def _owned(
    batch: pa.RecordBatch | None, task: TaskWork, operator: OperatorWork
) -> list[pa.RecordBatch]:
    """The rows whose keys belong to the partition of a task."""
    if batch is None:
        return []
    schema = schema_of(operator.plan)
    names = schema.key.names[: schema.group or None]
    keys = [normalise(batch.column(name)) for name in names]
    owners = vnodes_of(keys) % task.stream.partitions
    return [batch.filter(pa.array(owners == task.partition))]
